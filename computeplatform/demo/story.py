"""The story: two tenants share a pool, and everything that can happen to a request for GPUs happens once.

Every sentence is checked while it is told; what differs raises `Deviation`, or `Refused` where nobody was to be
refused. The story makes its own tenants, and needs three free nodes or more in the pool.
"""

import contextlib
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich.markup import escape

from computeplatform.demo.client import Api, Caller, Deviation, Refused, until
from computeplatform.demo.telling import Teller, clock, state

HOUR = 3_600
# How long the platform may take for anything; on an idle machine each takes well under a second.
PATIENCE = 20.0
FEWEST_NODES = 3

POLICY = """\
@id("research-24h")
forbid (principal in Compute::Group::"{tenant}/research",
        action == Compute::Action::"compute:reservations:create",
        resource)
when {{ resource.durationHours > 24 }};
"""


@dataclass(frozen=True)
class Platform:
    """What the story is given to begin with: the platform's administrator and a pool with nodes."""

    tenant_id: str
    token: str
    pool_id: str


@dataclass(frozen=True)
class Ground:
    """Where the story plays: so many free nodes with so many GPUs each."""

    pool_id: str
    nodes: int
    gpus: int
    names: Mapping[str, str]


def tell(api: Api, platform: Platform, teller: Teller, *, nodes: int = FEWEST_NODES) -> None:
    """Tell it to the end, or raise Deviation or Refused. ``nodes``: how many must be there before it begins."""
    operator = Caller(api, "platform", platform.tenant_id, platform.token)
    story = Story(api, teller, operator, _ground(operator, platform.pool_id, nodes))
    try:
        story.two_tenants()
        story.an_offer()
        story.one_becomes_active()
        story.the_same_request_again()
        story.one_waits_and_is_woken()
        story.one_is_over_quota()
        story.one_is_against_policy()
        story.everything_is_given_back()
        story.what_happened()
    except (LookupError, ValueError) as error:
        raise Deviation(f"an answer has not the form that the story expects: {error!r}") from error
    finally:
        story.give_back()


def _ground(operator: Caller, pool_id: str, wanted: int) -> Ground:
    def free_nodes() -> list[Any]:
        found = operator("nodes/list", poolId=pool_id, limit=200)["nodes"]
        ready = [n for n in found if n["state"] == "ready" and n["devices"] and not n["cordoned"] and not n["taints"]]
        return [node for node in ready if not node["allocations"]]

    free = until(free_nodes, lambda nodes: len(nodes) >= wanted, seconds=PATIENCE, what=f"{wanted} free nodes")
    gpus = min(len(node["devices"]) for node in free)
    return Ground(pool_id, len(free), gpus, {node["id"]: node["name"] for node in free})


class Story:
    """The chapters, to be told in order; each finds what it needs in what the ones before have left."""

    acme_admin: Caller
    ann: Caller
    gil: Caller

    def __init__(self, api: Api, teller: Teller, operator: Caller, ground: Ground) -> None:
        self._api, self._teller, self._operator, self._ground = api, teller, operator, ground
        self._run = secrets.token_hex(3)
        self._made: list[tuple[Caller, str]] = []  # reservations that are to be given back
        self._expected: dict[str, list[str]] = {}  # what must have happened to ann's reservations, by id
        self._names: dict[str, str] = {}  # of people and reservations, by id

    # --- The chapters -------------------------------------------------------------------------------------------------

    def two_tenants(self) -> None:
        """The platform makes two tenants, whose administrators let people in."""
        self._teller.chapter("Two tenants")
        self.acme_admin = self._tenant("acme", "Acme")
        globex_admin = self._tenant("globex", "Globex")
        self.ann = self._reserver(self.acme_admin, "ann", "research")
        self.gil = self._reserver(globex_admin, "gil", "rendering")
        for person in (self._operator, self.acme_admin, globex_admin):
            self._names[person.whoami()["principal"]["id"]] = person.name
        for person in (self.ann, self.gil):
            seen = person.whoami()["principal"]
            self._names[seen["id"]] = person.name
            words = f"a {seen['kind']} of {person.tenant_id}, {', '.join(seen['roles'])}, in group {seen['groups'][0]}"
            self._teller.answer(f"[bold]{person.name}[/] is {words}")

    def an_offer(self) -> None:
        """The platform owns a pool and opens it to both."""
        ground, teller = self._ground, self._teller
        teller.chapter("An offer")
        teller.say(f"The platform's pool has {ground.nodes} free nodes of {ground.gpus} GPUs: {_listed(ground.names)}.")
        for person, nodes in ((self.ann, ground.nodes), (self.gil, ground.nodes - 2)):
            resources = {"gpu": nodes * ground.gpus}
            teller.call("platform", "pools/offer", f"to {person.tenant_id}: {resources['gpu']} GPUs at a time")
            self._operator("pools/offer", poolId=ground.pool_id, toTenantId=person.tenant_id, resources=resources)
            [quota] = self._quotas(person)
            _expect(quota["max"] == resources["gpu"] and quota["used"] == 0, f"the offer's quota reads {quota}")
            teller.answer(
                f"quotas/list of {person.tenant_id}: {quota['used']} of {quota['max']} {quota['resource']} used"
            )

    def one_becomes_active(self) -> None:
        """A whole node: placed, told to the node, bound by it, active."""
        self._teller.chapter("A reservation that becomes active")
        made = self._create(self.ann, "training", self._whole_nodes(1))
        _expect(made["state"] == "placed", f"it fits, and is {made['state']}")
        found = self._follow(self.ann, made, "active")
        [bound] = found["binding"]
        _expect(bound["nodeId"] == made["placement"][0]["nodeId"], "the node that bound is not the one that was chosen")
        devices = ", ".join(str(device["position"]) for device in bound["devices"])
        self._teller.answer(f"{self._ground.names[bound['nodeId']]} reports GPUs {devices} bound")
        self._expected[made["id"]] = ["placed", "binding", "active"]

    def the_same_request_again(self) -> None:
        """A retry with the same key is the same reservation; another request with it is none."""
        self._teller.chapter("The same request again")
        self._teller.say("The network broke, ann's script does not know whether it worked, so it asks again:")
        [(_, first)] = self._made
        again = self._create(self.ann, "training", self._whole_nodes(1))
        _expect(again["id"] == first, f"the retry made another reservation: {again['id']}")
        [quota] = self._quotas(self.ann)
        _expect(quota["used"] == self._ground.gpus, f"charged {quota['used']} GPUs after one reservation and its retry")
        self._teller.answer(f"the same id, and still {quota['used']} of {quota['max']} GPUs charged")
        self._teller.say("The same key with another request is refused instead of guessed at:")
        refused = self._refused(self.ann, "training", "CONFLICT", self._whole_nodes(2))
        _expect(refused.error["details"]["reservationId"] == first, "CONFLICT does not name the reservation")

    def one_waits_and_is_woken(self) -> None:
        """globex takes all nodes but one; acme's gang of two waits, until globex lets go."""
        self._teller.chapter("One that waits, and is woken")
        render = self._create(self.gil, "render", self._whole_nodes(self._ground.nodes - 2))
        self._follow(self.gil, render, "active")
        sweep = self._create(self.ann, "sweep", self._whole_nodes(2))
        _expect(sweep["state"] == "pending", f"only one node is free, and it is {sweep['state']}")
        [condition] = sweep["conditions"]
        self._teller.answer(f"{condition['type']}, {condition['reason']}: [italic]{escape(condition['message'])}[/]")
        self._teller.call(self.gil.name, "reservations/release", "render")
        started = time.monotonic()
        released = self.gil("reservations/release", reservationId=render["id"])["reservation"]
        _expect(released["state"] == "released", f"after release it is {released['state']}")
        self._follow(self.ann, sweep, "active")
        self._teller.say(f"From gil's release to ann's active reservation: {time.monotonic() - started:.2f} s.")
        self._expected[sweep["id"]] = ["pending", "placed", "binding", "active"]

    def one_is_over_quota(self) -> None:
        """More than the offer allows, whatever is free."""
        ground = self._ground
        self._teller.chapter("One that is over quota")
        refused = self._refused(self.gil, "greedy", "QUOTA_EXCEEDED", self._whole_nodes(ground.nodes - 1))
        wanted = {"resource": "gpu", "requested": (ground.nodes - 1) * ground.gpus, "used": 0}
        wanted |= {"max": (ground.nodes - 2) * ground.gpus}
        _expect(refused.error["details"] == wanted, f"the details were to be {wanted}")
        _expect(refused.status == 429, "the status was to be 429")
        self._teller.say(
            "Nothing was charged in part, and after a change of quota the same key would be decided again."
        )

    def one_is_against_policy(self) -> None:
        """acme's administrator writes a rule; it holds from the next call on."""
        self._teller.chapter("One that is against policy")
        text = POLICY.format(tenant=self.ann.tenant_id)
        self._teller.call(self.acme_admin.name, "policies/put", "research-24h")
        stored = self.acme_admin.iam("policies/put", name="research-24h", text=text)
        _expect(not stored["warnings"], f"the policy was stored with warnings: {stored['warnings']}")
        for line in text.splitlines():
            self._teller.say(f"      [green]{escape(line)}[/]")
        before = self._quotas(self.ann)
        self._refused(self.ann, "long", "ACCESS_DENIED", self._gpus(1, hours=48))
        _expect(self._quotas(self.ann) == before, "the refused request was charged")
        self._teller.say("Within 24 hours it is hers:")
        made = self._create(self.ann, "short", self._gpus(1, hours=12))
        self._follow(self.ann, made, "active")
        self._expected[made["id"]] = ["placed", "binding", "active"]

    def everything_is_given_back(self) -> None:
        """Release ends the bookings and refunds the charge; the nodes withdraw."""
        self._teller.chapter("Everything is given back")
        for caller, reservation_id in self._made:
            released = caller("reservations/release", reservationId=reservation_id)["reservation"]
            _expect(released["state"] == "released", f"after release {reservation_id} is {released['state']}")
        for kinds in self._expected.values():
            kinds.append("released")
        used = [quota["used"] for person in (self.ann, self.gil) for quota in self._quotas(person)]
        _expect(not any(used), f"after everything was released there are still charges: {used}")
        self._teller.answer(f"{len(self._made)} reservations released, nothing is charged any more")
        self._made.clear()
        _ground(self._operator, self._ground.pool_id, self._ground.nodes)
        self._teller.answer(f"all {self._ground.nodes} nodes have withdrawn what they held")

    def what_happened(self) -> None:
        """Every event of the tenant, numbered without gaps, those of one reservation in their order."""
        self._teller.chapter("What happened at acme, by sequence")
        total = sum(len(kinds) for kinds in self._expected.values())

        def reservation_events(events: list[Any]) -> list[Any]:
            return [event for event in events if event["subject"]["type"] == "reservation"]

        events = until(
            lambda: list(self.acme_admin("events/list", after=0, limit=1000)["events"]),
            lambda found: len(reservation_events(found)) >= total,
            seconds=PATIENCE,
            what=f"{total} events of reservations",
        )
        _expect([e["sequence"] for e in events] == list(range(1, len(events) + 1)), "the sequence has gaps")
        self._teller.table(["#", "at (UTC)", "type", "subject", "by", "reason"], map(self._event_row, events))
        happened: dict[str, list[str]] = {}
        for event in reservation_events(events):
            happened.setdefault(event["subject"]["id"], []).append(event["type"].removeprefix("reservation."))
        _expect(happened == self._expected, f"these were to be {self._expected}")

    def give_back(self) -> None:
        """Whatever a story that broke off has left: a server that goes on must not be left with it."""
        for caller, reservation_id in self._made:
            with contextlib.suppress(Deviation, Refused):
                caller("reservations/release", reservationId=reservation_id)

    # --- What the chapters are told with ------------------------------------------------------------------------------

    def _tenant(self, name: str, title: str) -> Caller:
        """A new tenant and its administrator; where the name is taken, with a suffix."""
        admin = {"name": f"{name}-admin"}
        self._teller.call("platform", "tenants/create", name)
        try:
            made = self._operator.iam("tenants/create", id=name, name=title, admin=admin)
        except Refused as refusal:
            if refusal.error["code"] != "CONFLICT":
                raise
            made = self._operator.iam("tenants/create", id=f"{name}-{self._run}", name=title, admin=admin)
        return Caller(self._api, admin["name"], made["tenant"]["id"], made["token"])

    def _reserver(self, admin: Caller, name: str, group: str) -> Caller:
        """A new user who may reserve, with a key."""
        self._teller.call(admin.name, "principals/create, keys/create", name)
        made = admin.iam("principals/create", kind="user", name=name, roles=["reserver"], groups=[group])["principal"]
        token = admin.iam("keys/create", principalId=made["id"], name="laptop")["token"]
        return Caller(self._api, name, admin.tenant_id, token)

    def _whole_nodes(self, nodes: int) -> dict[str, Any]:
        return self._gpus(self._ground.gpus, hours=2, nodes=nodes) | {"binding": "node"}

    def _gpus(self, count: int, *, hours: int, nodes: int = 1) -> dict[str, Any]:
        asked = {"poolId": self._ground.pool_id, "devices": {"class": "gpu", "count": count}}
        return asked | {"nodes": nodes, "durationSeconds": hours * HOUR}

    def _create(self, caller: Caller, name: str, asked: dict[str, Any]) -> Any:
        """Create, tell what was answered, and remember to give it back."""
        self._tell_request(caller, name, asked)
        key = f"{name}-{self._run}"
        started = time.monotonic()
        made = caller("reservations/create", idempotencyKey=key, name=name, **asked)["reservation"]
        took = 1000 * (time.monotonic() - started)
        if made["id"] not in self._names:
            self._made.append((caller, made["id"]))
            self._names[made["id"]] = name
        where = f" on {self._places(made['placement'])}" if "placement" in made else ""
        self._teller.answer(f"{state(made['state'])}{where}  [dim]{made['id']}, answered in {took:.0f} ms[/]")
        return made

    def _refused(self, caller: Caller, name: str, code: str, asked: dict[str, Any]) -> Refused:
        """Create what is to be refused, and tell how."""
        self._tell_request(caller, name, asked)
        key = f"{name}-{self._run}"
        refusal = caller.refused("reservations/create", code, idempotencyKey=key, name=name, **asked)
        self._teller.refusal(refusal.status, refusal.error)
        return refusal

    def _tell_request(self, caller: Caller, name: str, asked: dict[str, Any]) -> None:
        gang = f" on each of {asked['nodes']} nodes" if asked["nodes"] > 1 else ""
        gpus = f"{asked['devices']['count']} GPU{'s' if asked['devices']['count'] > 1 else ''}"
        words = f"{name}: {gpus}{gang} for {asked['durationSeconds'] // HOUR} hours"
        self._teller.call(caller.name, "reservations/create", words)

    def _follow(self, caller: Caller, made: Any, goal: str) -> Any:
        """Look until the reservation is there; tell each state on the way with what the platform does meanwhile."""
        seen = [made["state"]]

        def look() -> Any:
            found = caller("reservations/get", reservationId=made["id"])
            reservation, operation = found["reservation"], found["operation"]
            if reservation["state"] != seen[-1]:
                seen.append(reservation["state"])
                words = f"operation {operation['kind']}: {operation['status']}, step {operation['step']}"
                where = f" on {self._places(reservation['placement'])}" if reservation["state"] == "placed" else ""
                self._teller.answer(f"{state(seen[-1])}{where}  [dim]{words}[/]")
            return found

        what = f"{made['name']} is {goal}"
        return until(look, lambda found: found["reservation"]["state"] == goal, seconds=PATIENCE, what=what)

    def _places(self, placement: list[Any]) -> str:
        return _listed({part["nodeId"]: self._ground.names.get(part["nodeId"], "?") for part in placement})

    def _quotas(self, caller: Caller) -> list[Any]:
        return list(caller("quotas/list", poolId=self._ground.pool_id)["quotas"])

    def _event_row(self, event: Any) -> list[str]:
        kind = event["type"].rpartition(".")[2]
        subject, actor = event["subject"], event["actor"]["principal"]
        shown = [event["type"].replace(kind, state(kind)), self._names.get(subject["id"], subject["type"])]
        shown += [self._names.get(actor, actor.removeprefix("system:")), event.get("reason", "")]
        return [str(event["sequence"]), clock(event["at"]), *shown]


def _listed(names: Mapping[str, str]) -> str:
    return ", ".join(sorted(names.values()))


def _expect(holds: object, otherwise: str) -> None:
    """Raise Deviation unless it is so."""
    if not holds:
        raise Deviation(otherwise)
