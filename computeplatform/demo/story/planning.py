"""Who comes first: a start that was promised, spot work that makes way, a node that is to be emptied."""

import time
from typing import Any

from computeplatform.demo.client import Deviation, until
from computeplatform.demo.story.scene import HOUR_MS, PATIENCE, Scene, expect
from computeplatform.demo.telling import clock, state


def a_promise_is_kept(scene: Scene) -> None:
    """What availability answers, create places; what runs until then cannot stay for longer."""
    scene.teller.chapter("A promise, and whom it stops")
    frames = scene.create(scene.gil, "frames", scene.whole_nodes(scene.ground.nodes - 2))
    frames = scene.follow(scene.gil, frames, "active")["reservation"]
    asked = scene.whole_nodes(scene.ground.nodes - 1)
    start = _earliest(scene, asked, frames)
    night = scene.create(scene.ann, "night", asked | {"startsAt": start})
    expect(night["state"] == "placed", f"availability promised it, and it is {night['state']}")
    expect(night["startsAt"] == start, f"it starts at {night['startsAt']}, not at {start}")
    scene.teller.answer("the promise is kept")
    if _nodes(night) & _nodes(frames):
        scene.teller.call(scene.gil.name, "reservations/extend", "frames: by PT1H")
        answer = scene.gil("reservations/extend", reservationId=frames["id"], by="PT1H")
        expect(not answer["extended"], "frames was extended into night")
        expect(answer["availableUntil"] == start, f"it could end at {answer['availableUntil']}, not at {start}")
        scene.teller.answer(f"not extended: availableUntil {clock(start)}, and not a word about whose the rest is")
    scene.happened(night, "placed")
    scene.cancel(night)
    scene.release(frames)


def _earliest(scene: Scene, asked: dict[str, Any], frames: Any) -> int:
    """When so many nodes are free together, told over the API: not before some of the present work has ended."""
    now = frames["startsAt"]
    request = {"poolId": asked["poolId"], "devices": asked["devices"], "nodes": asked["nodes"]}
    words = f"{asked['nodes']} nodes with all their GPUs for 2 hours, within a day"
    scene.teller.call(scene.ann.name, "pools/availability", words)
    span = {"from": now, "to": now + 24 * HOUR_MS, "durationSeconds": asked["durationSeconds"]}
    found = scene.ann("pools/availability", **request, **span)
    start = int(found["earliest"]["startsAt"])
    expect(now < start <= frames["endsAt"], f"when frames has ended there is room, but the earliest start is {start}")
    free = found["free"][0]["devices"]
    scene.teller.answer(f"earliest start {clock(start)}; until {clock(found['free'][0]['to'])} {free} GPUs are free")
    return start


def spot_work_makes_way(scene: Scene) -> None:
    """Spot work runs where nobody else does, and goes when somebody comes: the lowest priority first."""
    scene.teller.chapter("Spot work that makes way")
    base = scene.create(scene.ann, "base", scene.whole_nodes())
    spots = [
        scene.create(scene.gil, f"spot-{number}", scene.whole_nodes(spot=True, priority=10 * number))
        for number in range(scene.ground.nodes - 2)
    ]
    for made in (base, *spots):
        expect(made["state"] == "placed", f"there is a node for {made['name']}, and it is {made['state']}")
    for made in spots:
        scene.follow(scene.gil, made, "active")
    scene.teller.say("No node is free any more, and ann needs one:")
    urgent = scene.create(scene.ann, "urgent", scene.whole_nodes())
    expect(urgent["state"] == "placed", f"spot work was to make way, and it is {urgent['state']}")
    victim, *others = spots
    found = scene.follow(scene.gil, victim, "released")["reservation"]
    expect(found.get("reason") == "preempted", f"spot-0 ended for the reason {found.get('reason')}")
    _tell_end(scene, victim["id"])
    for made in others:
        kept = scene.gil("reservations/get", reservationId=made["id"])["reservation"]
        expect(kept["state"] == "active", f"{made['name']} was in nobody's way, and is {kept['state']}")
    scene.follow(scene.ann, urgent, "active")
    scene.follow(scene.ann, base, "active")
    for made in (base, urgent):
        scene.happened(made, "placed", "binding", "active")
    for made in (base, *spots, urgent):
        scene.release(made)


def _tell_end(scene: Scene, reservation_id: str) -> None:
    """The event that globex has of it."""

    def ended() -> list[Any]:
        events = scene.globex_admin("events/list", after=0, limit=1000)["events"]
        mine = [event for event in events if event["subject"]["id"] == reservation_id]
        return [event for event in mine if event["type"] == "reservation.released"]

    [event] = until(ended, bool, seconds=PATIENCE, what="globex has the event of its end")
    expect(event.get("reason") == "preempted", f"the event's reason is {event.get('reason')}")
    scene.teller.answer(f"globex's event {event['sequence']}: {event['type']}, reason {event['reason']}")


def a_node_is_drained(scene: Scene) -> None:
    """Before a node is taken out, what has not started moves elsewhere; what runs there runs to its end."""
    scene.teller.chapter("A node that is drained")
    start = scene.training["startsAt"] + HOUR_MS
    made = scene.create(scene.ann, "later", scene.whole_nodes() | {"startsAt": start})
    expect(made["state"] == "placed", f"it fits, and is {made['state']}")
    [node_id] = _nodes(made)
    name = scene.ground.names.get(node_id, "?")
    scene.teller.call("platform", "nodes/drain", name)
    scene.operator("nodes/drain", nodeId=node_id, reason="a fan is loud")
    with scene.taken_back_by("nodes/uncordon", name, nodeId=node_id):
        moved = _moved(scene, made)
        expect((moved["startsAt"], moved["endsAt"]) == (start, start + 2 * HOUR_MS), "it was to keep its window")
    scene.happened(made, "placed", "pending", "placed")
    scene.cancel(moved)


def _moved(scene: Scene, made: Any) -> Any:
    """The reservation on another node, as its owner sees it."""
    late = time.monotonic() + PATIENCE
    seen = made
    while seen["state"] != "placed" or _nodes(seen) == _nodes(made):
        if time.monotonic() > late:
            raise Deviation(f"after {PATIENCE:.0f} s {made['name']} has not moved. Last seen: {seen}")
        wait = {"until": "changed", "version": seen["version"], "timeoutMs": 5_000}
        seen = scene.ann("reservations/get", reservationId=made["id"], wait=wait)["reservation"]
    scene.teller.answer(f"{made['name']} is {state('placed')} on {scene.places(seen)}")
    return seen


def _nodes(reservation: Any) -> set[str]:
    return {part["nodeId"] for part in reservation["placement"]}
