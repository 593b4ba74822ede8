"""What a request may meet: a full pool, a quota, a policy, the host's limits."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rich.markup import escape

from computeplatform.demo.client import until
from computeplatform.demo.story.scene import PATIENCE, Scene, expect
from computeplatform.demo.telling import clock, state

POLICY = """\
@id("research-24h")
forbid (principal in Compute::Group::"{tenant}/research",
        action == Compute::Action::"compute:reservations:create",
        resource)
when {{ resource.durationHours > 24 }};
"""


def one_waits_and_is_woken(scene: Scene) -> None:
    """globex takes all nodes but one; acme's gang of two waits, and so does its call, until globex lets go."""
    scene.teller.chapter("One that waits, and is woken")
    render = scene.create(scene.gil, "render", scene.whole_nodes(scene.ground.nodes - 2))
    scene.follow(scene.gil, render, "active")
    scene.teller.say("ann asks first what would become of it; nothing is stored:")
    _what_if(scene, scene.whole_nodes(2))
    scene.teller.say("She asks for it, and her call is held while it is pending:")
    asked = scene.whole_nodes(2, wait={"timeoutMs": int(PATIENCE * 1_000)})
    scene.tell_request(scene.ann, "sweep", asked)
    with ThreadPoolExecutor(1) as at_the_same_time:
        held = at_the_same_time.submit(scene.send, scene.ann, "sweep", asked)
        [waiting] = until(lambda: _pending(scene), bool, seconds=PATIENCE, what="sweep is pending")
        [condition] = waiting["conditions"]
        scene.teller.answer(f"{state('pending')}, as reservations/list shows; the call goes on waiting")
        words = f"{condition['type']}, {condition['reason']}: [italic]{escape(condition['message'])}[/]"
        scene.teller.answer(words)
        scene.teller.call(scene.gil.name, "reservations/release", "render")
        scene.release(render)
        sweep = held.result()["reservation"]
    scene.remember(scene.ann, "sweep", sweep, "answered when gil had released")
    expect(sweep["state"] != "pending", "its call was answered before gil had released")
    scene.follow(scene.ann, sweep, "active")
    scene.happened(sweep, "pending", "placed", "binding", "active")
    scene.release(sweep)


def _pending(scene: Scene) -> list[Any]:
    return list(scene.ann("reservations/list", state="pending")["reservations"])


def _what_if(scene: Scene, asked: dict[str, Any]) -> None:
    """A dry run of what does not fit yet; it can start when ann's own node is free again, if not before."""
    asked |= {"dryRun": True}
    before = scene.quota(scene.ann)
    scene.tell_request(scene.ann, "sweep", asked)
    foreseen = scene.send(scene.ann, "sweep", asked)["dryRun"]
    expect((foreseen["decision"], foreseen["outcome"]) == ("allow", "pending"), f"it would be pending, not {foreseen}")
    expect(foreseen["charge"] == {"gpu": 2 * scene.ground.gpus}, f"it would be charged {foreseen['charge']}")
    earliest = foreseen["earliestStart"]["startsAt"]
    expect(earliest <= scene.training["endsAt"], "it could not even start when training has ended")
    scene.teller.answer(f"allowed, but pending ({foreseen['reason']}); it could start at {clock(earliest)}")
    expect(scene.quota(scene.ann) == before, "the dry run was charged")


def one_is_over_quota(scene: Scene) -> None:
    """More than the offer allows, whatever is free."""
    ground = scene.ground
    scene.teller.chapter("One that is over quota")
    refused = scene.refused(scene.gil, "greedy", "QUOTA_EXCEEDED", scene.whole_nodes(ground.nodes - 1))
    wanted = {"resource": "gpu", "requested": (ground.nodes - 1) * ground.gpus, "used": 0}
    wanted |= {"max": (ground.nodes - 2) * ground.gpus}
    expect(refused.error["details"] == wanted, f"the details were to be {wanted}")
    expect(refused.status == 429, "the status was to be 429")
    scene.teller.say("Nothing was charged in part, and after a change of quota the same key would be decided again.")


def one_is_against_policy(scene: Scene) -> None:
    """acme's administrator writes a rule; it holds from the next call on."""
    scene.teller.chapter("One that is against policy")
    text = POLICY.format(tenant=scene.ann.tenant_id)
    scene.teller.call(scene.acme_admin.name, "policies/put", "research-24h")
    stored = scene.acme_admin.iam("policies/put", name="research-24h", text=text)
    expect(not stored["warnings"], f"the policy was stored with warnings: {stored['warnings']}")
    for line in text.splitlines():
        scene.teller.say(f"      [green]{escape(line)}[/]")
    before = scene.quota(scene.ann)
    scene.refused(scene.ann, "long", "ACCESS_DENIED", scene.gpus(1, hours=48))
    expect(scene.quota(scene.ann) == before, "the refused request was charged")
    scene.teller.say("Within 24 hours it is hers:")
    made = scene.create(scene.ann, "short", scene.gpus(1, hours=12))
    scene.follow(scene.ann, made, "active")
    scene.happened(made, "placed", "binding", "active")
    scene.release(made)


def one_takes_more_of_the_host(scene: Scene) -> None:
    """Each GPU comes with its share of the host; more than that has a quota of its own."""
    scene.teller.chapter("One that takes more of the host")
    whole, gpus = scene.training["resources"], scene.ground.gpus
    scene.teller.say(
        f"training has {gpus} GPUs, and with them their share of the node: {whole['vcpu']} vCPU, "
        f"{whole['memoryGiB']} GiB. ann wants one GPU with twice the vCPU:"
    )
    share = int(whole["vcpu"] // gpus)
    asked = scene.gpus(1, resources={"vcpu": 2 * share})
    refused = scene.refused(scene.ann, "lab", "QUOTA_EXCEEDED", asked)
    wanted = {"resource": "vcpu", "requested": share, "used": 0, "max": 0}
    expect(refused.error["details"] == wanted, f"the details were to be {wanted}")
    scene.teller.say("Only what is above the share is charged, and the offer grants none of it. It is widened:")
    scene.teller.call("platform", "pools/offer", f"to {scene.ann.tenant_id}: {share} vCPU beside the GPUs")
    pool = {"poolId": scene.ground.pool_id, "toTenantId": scene.ann.tenant_id}
    scene.operator("pools/offer", **pool, resources={"vcpu": share})
    scene.teller.say("The same key is decided again:")
    made = scene.create(scene.ann, "lab", asked)
    expect(made["resources"]["vcpu"] == 2 * share, f"it was given {made['resources']}")
    quota = scene.quota(scene.ann, "vcpu")
    expect(quota["used"] == share, f"charged {quota['used']} vCPU")
    amounts = f"{made['resources']['vcpu']} vCPU and {made['resources']['memoryGiB']} GiB"
    scene.teller.answer(f"{amounts} are booked; {quota['used']} of {quota['max']} vCPU charged")
    scene.follow(scene.ann, made, "active")
    scene.happened(made, "placed", "binding", "active")
    scene.release(made)
