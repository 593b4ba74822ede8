"""How it ends: everything is given back, and the events tell it all once more."""

from typing import Any

from computeplatform.demo.client import until
from computeplatform.demo.story.scene import PATIENCE, Scene, expect, free_ground
from computeplatform.demo.telling import clock, state


def everything_is_given_back(scene: Scene) -> None:
    """Release ends the bookings and refunds the charge; the nodes withdraw."""
    scene.teller.chapter("Everything is given back")
    scene.teller.call(scene.ann.name, "reservations/release", "training")
    scene.release(scene.training)
    people = (scene.ann, scene.gil)
    used = [row["used"] for one in people for row in one("quotas/list", poolId=scene.ground.pool_id)["quotas"]]
    expect(not any(used), f"after everything was released there are still charges: {used}")
    scene.teller.answer("nothing is charged any more")
    free_ground(scene.operator, scene.ground.pool_id, scene.ground.nodes)
    scene.teller.answer(f"all {scene.ground.nodes} nodes have withdrawn what they held")


def what_happened(scene: Scene) -> None:
    """Every event of the tenant, numbered without gaps, those of one reservation in their order."""
    scene.teller.chapter("What happened at acme, by sequence")
    total = sum(len(kinds) for kinds in scene.expected.values())

    def reservation_events(events: list[Any]) -> list[Any]:
        return [event for event in events if event["subject"]["type"] == "reservation"]

    events = until(
        lambda: list(scene.acme_admin("events/list", after=0, limit=1000)["events"]),
        lambda found: len(reservation_events(found)) >= total,
        seconds=PATIENCE,
        what=f"{total} events of reservations",
    )
    expect([e["sequence"] for e in events] == list(range(1, len(events) + 1)), "the sequence has gaps")
    scene.teller.table(
        ["#", "at (UTC)", "type", "subject", "by", "reason"], [_event_row(scene, event) for event in events]
    )
    happened: dict[str, list[str]] = {}
    for event in reservation_events(events):
        happened.setdefault(event["subject"]["id"], []).append(event["type"].removeprefix("reservation."))
    expect(happened == scene.expected, f"these were to be {scene.expected}")


def _event_row(scene: Scene, event: Any) -> list[str]:
    kind = event["type"].rpartition(".")[2]
    subject, actor = event["subject"], event["actor"]["principal"]
    shown = [event["type"].replace(kind, state(kind)), scene.names.get(subject["id"], subject["type"])]
    shown += [scene.names.get(actor, actor.removeprefix("system:")), event.get("reason", "")]
    return [str(event["sequence"]), clock(event["at"]), *shown]
