"""What becomes of a reservation that runs: it is extended, and one with a lease lives on by renewals."""

from typing import Any

from computeplatform.demo.story.scene import HOUR, HOUR_MS, Scene, expect
from computeplatform.demo.telling import clock


def one_is_extended(scene: Scene) -> None:
    """An end moves as far as nothing is in its way, and as a whole or not at all."""
    scene.teller.chapter("One that is extended")
    before = scene.training["endsAt"]
    _extend(scene, by="PT1H")
    expect(scene.training["endsAt"] == before + HOUR_MS, f"it ends at {scene.training['endsAt']}, not an hour later")
    [node_id] = (part["nodeId"] for part in scene.training["placement"])
    node, closes = scene.ground.names[node_id], scene.training["endsAt"] + HOUR_MS
    scene.teller.say(f"An hour after that the operator wants {node} for two hours:")
    scene.teller.call("platform", "nodes/maintenance", f"{node} from {clock(closes)}")
    planned = scene.operator("nodes/maintenance", nodeId=node_id, **{"from": closes}, until=closes + 2 * HOUR_MS)
    maintenance = {"nodeId": node_id, "maintenanceId": planned["maintenance"]["id"]}
    with scene.taken_back_by("nodes/cancelMaintenance", node, **maintenance):
        expect(planned["bookings"] == [], f"nothing is booked there then, but {planned['bookings']}")
        available = _extend(scene, by="PT2H", extended=False)
        expect(available == closes, f"it could end at {available}, not at {closes}")
        _extend(scene, until=available)
    scene.happened(scene.training, "extended", "extended")


def _extend(scene: Scene, *, extended: bool = True, **change: Any) -> int | None:
    """ann asks for a later end of training; tells whether it moved, or how far it could."""
    words = ", ".join(f"{name} {clock(value) if name == 'until' else value}" for name, value in change.items())
    scene.teller.call(scene.ann.name, "reservations/extend", f"training: {words}")
    before = scene.training["endsAt"]
    answer = scene.ann("reservations/extend", reservationId=scene.training["id"], **change)
    expect(answer["extended"] is extended, f"extended is {answer['extended']}")
    scene.training = answer["reservation"]
    if extended:
        scene.teller.answer(f"it ends at {clock(scene.training['endsAt'])}")
        return None
    expect(scene.training["endsAt"] == before, "it was not to move at all")
    scene.teller.answer(
        f"not extended: it ends at {clock(before)} as before, availableUntil {clock(answer['availableUntil'])}"
    )
    return int(answer["availableUntil"])


def one_has_a_lease(scene: Scene) -> None:
    """A lease is for work that may be forgotten: without renewals it ends before its window does."""
    scene.teller.chapter("One with a lease")
    made = scene.create(scene.ann, "notebook", scene.gpus(1, leaseSeconds=HOUR))
    before = scene.follow(scene.ann, made, "active")["reservation"]
    scene.teller.answer(f"it ends at {clock(before['endsAt'])}, or at {clock(before['leaseExpiresAt'])} unless renewed")
    scene.teller.call(scene.ann.name, "reservations/renew", "notebook")
    after = scene.ann("reservations/renew", reservationId=made["id"])["reservation"]
    expect(after["leaseExpiresAt"] > before["leaseExpiresAt"], "its lease was not renewed")
    unchanged = ("startsAt", "endsAt", "version")
    expect(all(after[name] == before[name] for name in unchanged), "a renewal was to change the lease alone")
    scene.teller.answer(f"its lease ends at {clock(after['leaseExpiresAt'])}, its window as before")
    scene.teller.call(scene.ann.name, "reservations/renew", "training")
    refusal = scene.ann.refused("reservations/renew", "INVALID_STATE", reservationId=scene.training["id"])
    scene.teller.refusal(refusal.status, refusal.error)
    scene.happened(made, "placed", "binding", "active")
    scene.release(made)
