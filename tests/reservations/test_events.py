"""The events of reservations (EVT-5): which there are, in what order they come, and what has none."""

import pytest

from computeplatform.models import Event
from reservations import events, reconcilers
from reservations.models import Reservation
from tests.reservations.conftest import event_types
from tests.support.api import settle
from tests.support.world import HOUR, World, request

# `awaiting-confirmation` comes with IAM's confirmations (CRE-8).
TYPES = (
    "placed pending queued awaiting-confirmation binding active extended ending node-lost device-unhealthy"
    " preemption-scheduled devices-held released cancelled"
)


@pytest.mark.clause("EVT-5", "the types of a reservation")
def test_the_types_are_those_of_the_contract():
    ours = {value for name, value in vars(events).items() if name.isupper() and isinstance(value, str)}
    assert ours == {f"reservation.{name}" for name in TYPES.split()}


@pytest.mark.clause("EVT-5", "placed, binding, active, extended, ending, released")
@pytest.mark.clause("EVT-1", "a subject's version rises with its events")
def test_the_way_of_a_reservation(world: World, pool: str, clock):
    made = world.ann.api("reservations/create", **request(pool, 8)).data["reservation"]
    settle()
    world.ann.api("reservations/extend", reservationId=made["id"], by=HOUR).data  # noqa: B018 - asserts success
    clock.set(made["endsAt"] + HOUR - 1_000)
    settle()
    clock.advance(seconds=1)
    settle()
    assert event_types(made["id"]) == ["placed", "binding", "active", "extended", "ending", "released"]
    versions = (
        Event.objects.filter(subject_id=made["id"]).order_by("position").values_list("subject_version", flat=True)
    )
    # That its end is near changes nothing of it.
    assert list(versions) == [1, 2, 3, 4, 4, 5]
    assert Reservation.objects.get(id=made["id"]).version == 5


@pytest.mark.clause("EVT-5", "retries write neither event nor history")
def test_retries_are_no_events(world: World, pool: str, clock):
    world.gil.api("reservations/create", **request(pool, 8)).data  # noqa: B018
    made = world.ann.api("reservations/create", **request(pool, 8)).data["reservation"]
    settle()
    before = Event.objects.count()
    for _ in range(3):
        clock.advance(seconds=30)
        for node in world.nodes:
            node.sync()
        reconcilers.placement_tick()
        reconcilers.reconcile_tick()
    assert Event.objects.count() == before
    assert event_types(made["id"]) == ["pending"]
    assert Reservation.objects.get(id=made["id"]).version == made["version"]
