"""How it begins: two tenants, an offer, the first reservation."""

from computeplatform.demo.story.scene import Scene, expect, listed


def two_tenants(scene: Scene) -> None:
    """The platform makes two tenants, whose administrators let people in."""
    scene.teller.chapter("Two tenants")
    scene.acme_admin = scene.tenant("acme", "Acme")
    scene.globex_admin = scene.tenant("globex", "Globex")
    scene.ann = scene.reserver(scene.acme_admin, "ann", "research")
    scene.gil = scene.reserver(scene.globex_admin, "gil", "rendering")
    for person in (scene.operator, scene.acme_admin, scene.globex_admin):
        scene.names[person.whoami()["principal"]["id"]] = person.name
    for person in (scene.ann, scene.gil):
        seen = person.whoami()["principal"]
        scene.names[seen["id"]] = person.name
        words = f"a {seen['kind']} of {person.tenant_id}, {', '.join(seen['roles'])}, in group {seen['groups'][0]}"
        scene.teller.answer(f"[bold]{person.name}[/] is {words}")


def an_offer(scene: Scene) -> None:
    """The platform owns a pool and opens it to both."""
    ground, teller = scene.ground, scene.teller
    teller.chapter("An offer")
    teller.say(f"The platform's pool has {ground.nodes} free nodes of {ground.gpus} GPUs: {listed(ground.names)}.")
    for person, nodes in ((scene.ann, ground.nodes), (scene.gil, ground.nodes - 2)):
        resources = {"gpu": nodes * ground.gpus}
        teller.call("platform", "pools/offer", f"to {person.tenant_id}: {resources['gpu']} GPUs at a time")
        scene.operator("pools/offer", poolId=ground.pool_id, toTenantId=person.tenant_id, resources=resources)
        quota = scene.quota(person)
        expect(quota["max"] == resources["gpu"] and quota["used"] == 0, f"the quota is {quota}")
        teller.answer(f"quotas/list of {person.tenant_id}: {quota['used']} of {quota['max']} gpu used")


def one_becomes_active(scene: Scene) -> None:
    """A request that fits is placed at once, and active once the node has bound its devices."""
    scene.teller.chapter("A reservation that becomes active")
    made = scene.create(scene.ann, "training", scene.whole_nodes())
    expect(made["state"] == "placed", f"it fits, and is {made['state']}")
    found = scene.follow(scene.ann, made, "active")
    [bound] = found["binding"]
    expect(bound["nodeId"] == made["placement"][0]["nodeId"], "the node that bound is not the one that was chosen")
    devices = ", ".join(str(device["position"]) for device in bound["devices"])
    scene.teller.answer(f"{scene.ground.names[bound['nodeId']]} reports GPUs {devices} bound")
    scene.training = found["reservation"]
    scene.happened(made, "placed", "binding", "active")


def the_same_request_again(scene: Scene) -> None:
    """A retry with the same key is the same reservation; another request with it is none."""
    scene.teller.chapter("The same request again")
    scene.teller.say("The network broke, ann's script does not know whether it worked, so it asks again:")
    first = scene.training["id"]
    again = scene.create(scene.ann, "training", scene.whole_nodes())
    expect(again["id"] == first, f"the retry made another reservation: {again['id']}")
    quota = scene.quota(scene.ann)
    expect(quota["used"] == scene.ground.gpus, f"charged {quota['used']} GPUs after one reservation and its retry")
    scene.teller.answer(f"the same id, and still {quota['used']} of {quota['max']} GPUs charged")
    scene.teller.say("The same key with another request is refused instead of guessed at:")
    refused = scene.refused(scene.ann, "training", "CONFLICT", scene.whole_nodes(2))
    expect(refused.error["details"]["reservationId"] == first, "CONFLICT does not name the reservation")
