"""Node loss, drains and sick devices at the same moment as whatever else can happen to a reservation: one outcome."""

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from computeplatform.api.calls import Actor
from computeplatform.errors import Refusal
from fleet.models import Node
from fleet.operations.nodes import drain_node
from fleet.operations.silence import judge_silence
from quotas.models import Quota
from reservations.models import Booking, Reservation
from reservations.operations.displacing import displace
from reservations.operations.ending import cancel, release
from reservations.operations.lifecycle import advance_due
from reservations.operations.placing import place_pending
from tests.reservations.conftest import event_types
from tests.support.api import settle
from tests.support.nodes import condition, fall_sick, on
from tests.support.threads import at_once
from tests.support.world import HOUR, World, request

pytestmark = pytest.mark.django_db(transaction=True)

BY = Actor("usr_somebody")


@pytest.fixture
def db(transactional_db: None) -> None:
    """Threads see only what is committed."""


@pytest.fixture
def pool(world: World) -> str:
    """Two nodes."""
    return world.offered_pool(nodes=2)


def create(world: World, pool: str, gpus: int = 8, **changed: Any) -> dict[str, Any]:
    return dict(world.ann.api("reservations/create", **request(pool, gpus, **changed)).data["reservation"])


def together(*work: Callable[[], object]) -> None:
    """All of it at the same moment."""
    at_once(list(work))


def refused(work: Callable[..., object], **given: Any) -> None:
    """It may come too late."""
    with contextlib.suppress(Refusal):
        work(**given)


def used(pool: str) -> int:
    return Quota.objects.get(tenant_id="acme", pool_id=pool, resource="gpu").used


def silence(world: World, reservation: dict[str, Any], clock: Any, seconds: int = 30) -> None:
    (gone,) = on(world, reservation)
    clock.advance(seconds=seconds)
    for node in world.nodes:
        if node is not gone:
            node.sync()


@pytest.mark.clause("REC-4", "loss against release, cancel, the reconciler and placement: one outcome, quota exact")
@pytest.mark.parametrize("round_", range(3))
def test_a_placed_one_is_moved_and_released_at_once(world: World, pool: str, clock, round_: int):
    made = create(world, pool, startsAt=clock.now + HOUR)
    silence(world, made, clock)
    judge_silence(pool_id=pool, now=clock.now)
    ending = {"tenant_id": "acme", "reservation_id": made["id"], "by": BY, "now": clock.now}
    together(
        partial(displace, pool, now=clock.now),
        partial(displace, pool, now=clock.now),
        partial(refused, release if round_ else cancel, **ending),
        partial(advance_due, now=clock.now),
        partial(place_pending, pool_id=pool, now=clock.now),
    )
    row = Reservation.objects.get()
    assert row.state in ("released", "cancelled")
    assert event_types(row.id)[-1] == row.state
    assert event_types(row.id).count(row.state) == 1
    assert used(pool) == 0
    assert not Booking.objects.filter(during__contains=clock.now + HOUR).exists()


@pytest.mark.clause("REC-4", "two passes at once move it once")
def test_two_passes_move_it_once(world: World, pool: str, clock):
    made = create(world, pool, startsAt=clock.now + HOUR)
    silence(world, made, clock)
    together(*[partial(judge_silence, pool_id=pool, now=clock.now)] * 3)
    together(*[partial(displace, pool, now=clock.now)] * 4)
    displace(pool, now=clock.now)
    row = Reservation.objects.get()
    assert row.state == "placed"
    assert event_types(row.id).count("placed") == 2
    assert used(pool) == 8


@pytest.mark.clause("REC-4", "the end of the grace against release and the node's return: one outcome, quota exact")
@pytest.mark.parametrize("round_", range(3))
def test_the_grace_runs_out_and_the_node_returns(world: World, pool: str, clock, round_: int):
    made = create(world, pool)
    settle()
    silence(world, made, clock)
    judge_silence(pool_id=pool, now=clock.now)
    displace(pool, now=clock.now)
    (gone,) = on(world, made)
    now = clock.advance(seconds=270)
    ending = {"tenant_id": "acme", "reservation_id": made["id"], "by": BY, "now": now}
    together(
        partial(advance_due, now=now),
        partial(advance_due, now=now),
        gone.sync,
        partial(refused, release, **ending) if round_ else partial(displace, pool, now=now),
        partial(displace, pool, now=now),
    )
    displace(pool, now=now)
    row = Reservation.objects.get()
    assert Node.objects.get(id=gone.id).state == "ready"
    assert row.disturbed_since is None
    assert [one["type"] for one in row.conditions] == []
    if row.state == "active":
        assert (round_, used(pool)) == (0, 8)
    else:
        assert (row.state, row.reason in ("node-lost", "release"), used(pool)) == ("released", True, 0)
        assert event_types(row.id).count("released") == 1


@pytest.mark.clause("NOD-1", "drain against create, release and start: nothing is left on the node that could move")
@pytest.mark.parametrize("round_", range(3))
def test_drain_against_everything(world: World, pool: str, clock, round_: int):
    later = create(world, pool, 4, startsAt=clock.now + HOUR)
    spot = create(world, pool, 2, spot=True)
    settle()
    (node,) = on(world, later)

    def drain_and_displace() -> None:
        drain_node(node_id=node.id, reason="", version=None, by=BY, now=clock.now)
        displace(pool, now=clock.now)

    ending = {"tenant_id": "acme", "reservation_id": spot["id"], "by": BY, "now": clock.now}
    together(
        drain_and_displace,
        partial(displace, pool, now=clock.now),
        partial(refused, release, **ending),
        partial(advance_due, now=clock.now),
    )
    displace(pool, now=clock.now)
    moved = Reservation.objects.get(id=later["id"])
    assert moved.state == "placed"
    assert moved.placement[0]["nodeId"] != node.id
    ended = Reservation.objects.get(id=spot["id"])
    on_node = spot["placement"][0]["nodeId"] == node.id
    assert (ended.state, ended.reason in ("release", "preempted")) == ("released", True)
    assert event_types(spot["id"]).count("released") == 1
    assert used(pool) == 4
    assert on_node or ended.reason == "release"


@pytest.mark.clause("NOD-5", "a device that falls sick against the start: it starts on well devices, or is told")
@pytest.mark.parametrize("round_", range(3))
def test_a_device_falls_sick_at_the_start(world: World, pool: str, clock, round_: int):
    made = create(world, pool, 4, startsAt=clock.now + HOUR)
    (node,) = on(world, made)
    now = clock.advance(hours=1)
    first = made["placement"][0]["devices"][0]["position"]

    def sicken() -> None:
        fall_sick(node, first)
        displace(pool, now=now)

    together(sicken, partial(advance_due, now=now), partial(displace, pool, now=now))
    displace(pool, now=now)
    settle()
    shown = world.ann.api("reservations/get", reservationId=made["id"]).data["reservation"]
    places = [(part["nodeId"], device["position"]) for part in shown["placement"] for device in part["devices"]]
    assert shown["state"] == "active"
    assert ((node.id, first) in places) == (condition(shown, "DeviceUnhealthy") is not None)
    assert used(pool) == 4
