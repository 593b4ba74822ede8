"""Races about held devices, on real connections: whoever is first, one outcome, and nothing is held for ever."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from computeplatform.clock import compute_now
from fleet.models import Allocation, Taint
from reservations import reconcilers
from reservations.models import Booking, Reservation
from tests.reservations.test_holding import MINUTE, bookings, cluster, conditions, create, run, shown
from tests.support.api import settle
from tests.support.threads import at_once
from tests.support.world import World

__all__ = ["cluster"]

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("transactional_db")]
ROUNDS = range(2)


def both(*work: Callable[[], Any]) -> list[Callable[[], Any]]:
    """What is done at once."""
    return list(work)


def left_behind(world: World, pool: str, reservation_id: str) -> None:
    """After all has been heard and looked at, nothing is held, and nobody is tainted."""
    node = world.nodes[0]
    node.pods.clear()
    node.follow()
    reconcilers.reconcile(pool_id=pool)
    assert "DevicesHeld" not in conditions(world, reservation_id)
    assert not Booking.objects.filter(held_since__isnull=False).exists()
    assert not Taint.objects.exists()
    assert not Allocation.objects.filter(reservation_id=reservation_id).exists()


@pytest.mark.clause("REL-4", "a release at the moment in which the node is told to bind")
@pytest.mark.parametrize("round_", ROUNDS)
def test_release_against_the_first_word(world: World, cluster: str, clock: Any, round_: int):
    made = create(world, cluster)
    settle()
    node = world.nodes[0]
    end = partial(world.admin, "reservations/release", reservationId=made["id"])
    answer, _ = at_once(both(node.sync, end))
    told = {a["reservationId"]: a["desired"] for a in answer["allocations"]}.get(made["id"])
    held = "DevicesHeld" in conditions(world, made["id"])
    assert held == (told == "bound"), "held exactly where the node may have bound"
    left_behind(world, cluster, made["id"])


@pytest.mark.clause("REL-2", "a release at the moment in which the node reports it withdrawn")
@pytest.mark.parametrize("round_", ROUNDS)
def test_the_nodes_report_against_the_end(world: World, cluster: str, clock: Any, round_: int):
    made = run(world, cluster, pods=0)
    node = world.nodes[0]
    clock.set(made["endsAt"])
    node.holds[made["id"]] = "withdrawn"
    at_once(both(node.sync, reconcilers.reconcile_tick))
    reconcilers.reconcile_tick()
    assert shown(world, made["id"])["state"] == "released"
    left_behind(world, cluster, made["id"])


@pytest.mark.clause("REL-3", "the report, the step and the advance booking's start at one moment")
@pytest.mark.parametrize("round_", ROUNDS)
def test_the_report_against_the_step_and_the_advance_booking(world: World, cluster: str, clock: Any, round_: int):
    made = run(world, cluster)
    node = world.nodes[0]
    next_ = create(world, cluster, 2, startsAt=made["endsAt"])
    clock.set(made["endsAt"])
    reconcilers.reconcile_tick()
    node.pods.clear()
    node.holds[made["id"]] = "withdrawn"
    again = partial(reconcilers.reconcile, pool_id=cluster)
    at_once(both(node.sync, reconcilers.reconcile_tick, again, again))
    reconcilers.reconcile(pool_id=cluster)
    assert all(until <= compute_now() for _, until, _ in bookings(made["id"]) if until)
    node.follow()
    reconcilers.reconcile(pool_id=cluster)
    assert shown(world, next_["id"])["state"] == "active"
    assert conditions(world, next_["id"]) == {}
    left_behind(world, cluster, made["id"])


@pytest.mark.clause("REL-3", "steps that are taken twice at once are taken once")
def test_two_ticks_take_one_step(world: World, cluster: str, clock: Any):
    made = run(world, cluster)
    clock.set(made["endsAt"])
    reconcilers.reconcile_tick()
    for step in range(1, 4):
        at_once([partial(reconcilers.reconcile, pool_id=cluster)] * 3)
        assert [until for _, until, _ in bookings(made["id"])] == [made["endsAt"] + 5 * step * MINUTE]
        clock.advance(seconds=300)
    assert Taint.objects.get().subjects == [made["id"]]
    assert Reservation.objects.get(id=made["id"]).held_since == made["endsAt"]
    left_behind(world, cluster, made["id"])
