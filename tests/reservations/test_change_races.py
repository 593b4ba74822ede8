"""Extend and renew against everything else, on connections of their own (EXT-5, REN-2, REC-8)."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from computeplatform.db.ticks import last_tick, record_tick
from computeplatform.models import ServiceGap
from quotas.models import Charge, Quota
from reservations import reconcilers
from reservations.models import Booking, Reservation
from tests.reservations.conftest import event_types
from tests.support.api import Answer, Api
from tests.support.clock import Clock
from tests.support.threads import at_once
from tests.support.world import World, request

pytestmark = pytest.mark.django_db(transaction=True)

SECOND = 1000


@pytest.fixture
def db(transactional_db: None) -> None:
    """Threads see only what is committed."""


def call(api: Api, method: str, **fields: Any) -> Callable[[], Answer]:
    """A call by a client of its own."""
    return partial(Api(api.token, api.tenant_id), method, **fields)


def tick() -> Answer | None:
    """The reconciler's tick, beside calls that answer."""
    reconcilers.reconcile_tick()
    return None


def running(world: World, pool: str, gpus: int = 2, **changed: Any) -> Reservation:
    made = world.ann.api("reservations/create", **request(pool, gpus, **changed)).data["reservation"]
    reconcilers.reconcile_tick()
    return Reservation.objects.get(id=made["id"])


@pytest.mark.clause("EXT-5", "two at once: one is decided, the other conflicts or extends from the new end")
def test_extend_and_extend(world: World, pool: str):
    row = running(world, pool)
    answers = at_once([call(world.ann.api, "reservations/extend", reservationId=row.id, by=1000)] * 4)
    extended = [answer for answer in answers if answer.status == 200]
    for answer in answers:
        if answer not in extended:
            answer.refused("CONFLICT", reason="extend-in-flight")
    assert extended
    assert all(answer.data["extended"] for answer in extended)
    after = Reservation.objects.get()
    assert after.ends_at == (row.ends_at or 0) + 1000 * len(extended)
    assert Booking.objects.get().during.upper == after.ends_at
    assert event_types(row.id).count("extended") == len(extended)
    assert (after.pending_change, Quota.objects.get(tenant_id="acme", resource="gpu").used) == (None, 2)


@pytest.mark.clause("EXT-3", "two neighbours at once for the same gap: one gets it")
def test_extend_and_create(world: World, pool: str):
    row = running(world, pool, 8)
    asked = request(pool, 8, startsAt=row.ends_at)
    extended, made = at_once(
        [
            call(world.ann.api, "reservations/extend", reservationId=row.id, by=1000),
            call(world.gil.api, "reservations/create", **asked),
        ]
    )
    placed = made.data["reservation"]["state"] == "placed"
    assert extended.data["extended"] is not placed
    if placed:
        assert extended.data["availableUntil"] == row.ends_at


@pytest.mark.clause("EXT-1", "raced with release: one outcome, quota exact")
def test_extend_and_release(world: World, pool: str):
    for _ in range(5):
        row = running(world, pool)
        extended, released = at_once(
            [
                call(world.ann.api, "reservations/extend", reservationId=row.id, by=1000),
                call(world.ann.api, "reservations/release", reservationId=row.id),
            ]
        )
        assert released.data["reservation"]["state"] == "released"
        if extended.status != 200:
            extended.refused("INVALID_STATE", state="released")
        after = Reservation.objects.get(id=row.id)
        assert (after.state, after.reason, after.pending_change) == ("released", "release", None)
        assert not Charge.objects.filter(refunded_at=None).exists()
        assert event_types(row.id)[-1] == "released"


@pytest.mark.clause("EXT-1", "raced with the end: it ends once, at the old end or at the new one")
def test_extend_and_end(world: World, pool: str, clock: Clock):
    row = running(world, pool)
    clock.set((row.ends_at or 0) - 1)
    reconcilers.reconcile_tick()

    def end() -> Answer | None:
        clock.set(row.ends_at or 0)
        reconcilers.reconcile_tick()
        return None

    extended, _ = at_once([call(world.ann.api, "reservations/extend", reservationId=row.id, by=1000), end])
    # A tick passes over what a call holds locked; the next one, a second later, does not.
    reconcilers.reconcile_tick()
    after = Reservation.objects.get()
    assert extended is not None
    if extended.status == 200:
        assert (after.state, after.ends_at) == ("active", (row.ends_at or 0) + 1000)
    else:
        extended.refused("INVALID_STATE")
        assert (after.state, after.reason, after.ended_at) == ("released", "ended", row.ends_at)


@pytest.mark.clause("REN-2", "raced with the tick: a renew that arrived first wins")
def test_renew_and_lapse(world: World, pool: str, clock: Clock):
    row = running(world, pool, leaseSeconds=30)
    deadline = row.lease_expires_at or 0
    clock.set(deadline - 1)
    renewed, _ = at_once([call(world.ann.api, "reservations/renew", reservationId=row.id), tick])
    assert renewed is not None
    assert renewed.data["reservation"]["leaseExpiresAt"] == deadline - 1 + 30 * SECOND
    clock.set(deadline + 5 * SECOND)
    reconcilers.reconcile_tick()
    assert Reservation.objects.get().state == "active"


@pytest.mark.clause("EXT-1", "extend, release, renew and lapse at the same moment: one outcome, quota exact")
def test_everything_at_once(world: World, pool: str, clock: Clock):
    row = running(world, pool, leaseSeconds=30)
    clock.set((row.lease_expires_at or 0) + 4 * SECOND)
    answers = at_once(
        [
            call(world.ann.api, "reservations/extend", reservationId=row.id, by=1000),
            call(world.ann.api, "reservations/renew", reservationId=row.id),
            call(world.ann.api, "reservations/release", reservationId=row.id),
            tick,
        ]
    )
    for answer in answers[:2]:
        assert answer is not None
        answer.refused("INVALID_STATE")
    after = Reservation.objects.get()
    assert (after.state, after.reason in ("release", "lease-lapsed")) == ("released", True)
    assert event_types(row.id).count("released") == 1
    assert Quota.objects.get(tenant_id="acme", resource="gpu").used == 0


@pytest.mark.clause("REN-1", "renewals that overtake each other never move the deadline back")
def test_renew_and_renew(world: World, pool: str, clock: Clock):
    row = running(world, pool, leaseSeconds=30)
    clock.advance(seconds=5)
    at_once([call(world.ann.api, "reservations/renew", reservationId=row.id)] * 4)
    assert Reservation.objects.get().lease_expires_at == clock.now + 30 * SECOND


@pytest.mark.clause("REC-8", "two ticks that notice the same gap note it once")
def test_a_gap_is_noted_once(db: None):
    record_tick("reconcile", now=1_000)
    at_once([partial(record_tick, "reconcile", now=101_000 + n) for n in range(6)])
    [gap] = ServiceGap.objects.all()
    assert gap.began_at == 1_000
    assert 101_000 <= gap.ended_at <= 101_005
    assert last_tick("reconcile") == 101_005
    # Thirty seconds are no gap, and other loops are not watched.
    record_tick("reconcile", now=131_005)
    record_tick("admission", now=1_000)
    record_tick("admission", now=900_000)
    assert ServiceGap.objects.count() == 1


@pytest.mark.clause("EXT-7", "raced with archive: extended before it, or refused")
def test_extend_and_archive(world: World, pool: str):
    row = running(world, pool)
    extended, archived = at_once(
        [
            call(world.ann.api, "reservations/extend", reservationId=row.id, by=1000),
            call(world.admin, "pools/archive", poolId=pool),
        ]
    )
    assert archived.status == 200
    if extended.status != 200:
        extended.refused("INVALID_STATE", reason="pool-archived")
    assert Reservation.objects.get().ends_at == (row.ends_at or 0) + (1000 if extended.status == 200 else 0)
