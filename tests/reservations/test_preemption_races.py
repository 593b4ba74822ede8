"""Preemption against whatever else happens to the same reservation at that moment: one outcome, quota exact (PRE-1)."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from django.db import connections, transaction

from computeplatform.api.calls import Actor
from quotas.models import Quota
from reservations import reconcilers
from reservations.models import Booking, Reservation
from reservations.operations.ending import release
from reservations.operations.lifecycle import advance_due
from reservations.operations.placing import place_pending
from tests.reservations.conftest import event_types
from tests.reservations.test_preemption import create, shown, spot, standing, used
from tests.support.api import Api, settle
from tests.support.clock import Clock
from tests.support.threads import at_once
from tests.support.world import HOUR, World, request

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def db(transactional_db: None) -> None:
    """Threads see only what is committed."""


def patient(api: Api) -> Api:
    """A client of its own that looks often before its time is up."""
    return Api(api.token, api.tenant_id, looks=100)


def claimant(world: World, pool: str, gpus: int) -> Callable[[], object]:
    return partial(patient(world.ann.api), "reservations/create", **request(pool, gpus))


@pytest.mark.clause("PRE-1", "two requests at once never preempt the same victim twice")
@pytest.mark.parametrize("round_", range(3))
def test_two_claimants_at_once(world: World, clock: Clock, round_: int):
    pool = world.offered_pool(nodes=2)
    victims = [spot(world, pool, 4) for _ in range(4)]
    settle()
    at_once([claimant(world, pool, 8) for _ in range(4)])
    reconcilers.place(pool_id=pool)
    made = Reservation.objects.filter(spot=False)
    assert sorted(row.state for row in made) == ["pending", "pending", "placed", "placed"]
    for victim in victims:
        assert standing(world, victim) == [("released", "preempted")]
        assert event_types(victim["id"]).count("released") == 1
    assert (used(pool, "globex"), used(pool, "acme")) == (0, 32)
    winners = {row.id for row in made if row.state == "placed"}
    assert set(Reservation.objects.filter(spot=True).values_list("preempted_by", flat=True)) == winners


@pytest.mark.clause("PRE-1", "preempted, released, extended and due at the same moment: one outcome, quota exact")
@pytest.mark.parametrize("round_", range(4))
def test_everything_at_once_on_one_victim(world: World, clock: Clock, round_: int):
    pool = world.offered_pool()
    victim = spot(world, pool, 8, leaseSeconds=30)
    settle()
    now = clock.advance(seconds=34)
    gil = patient(world.gil.api)

    ways: list[Callable[[], object]] = [
        claimant(world, pool, 8),
        partial(release, tenant_id="globex", reservation_id=victim["id"], by=Actor(world.gil.id), now=now),
        partial(gil, "reservations/extend", reservationId=victim["id"], by=HOUR),
        partial(gil, "reservations/renew", reservationId=victim["id"]),
        partial(advance_due, now=now),
        partial(place_pending, pool_id=pool, now=now),
    ]
    at_once(ways)
    reconcilers.place(pool_id=pool)
    row = Reservation.objects.get(id=victim["id"])
    assert (row.state, row.reason) in [("released", reason) for reason in ("preempted", "release", "lease-lapsed")]
    assert event_types(row.id).count("released") == 1
    assert Reservation.objects.get(spot=False).state == "placed"
    assert (used(pool, "globex"), used(pool, "acme")) == (0, 8)


@pytest.mark.clause("PRE-2", "cut short, extended and released at the same moment: one outcome, quota exact")
@pytest.mark.parametrize("round_", range(3))
def test_a_later_claimant_against_extend(world: World, clock: Clock, round_: int):
    pool = world.offered_pool()
    victim = spot(world, pool, 8)
    settle()
    start = clock.now + HOUR // 2
    ann, gil = patient(world.ann.api), patient(world.gil.api)
    ways = [
        partial(ann, "reservations/create", **request(pool, 8, startsAt=start)),
        partial(gil, "reservations/extend", reservationId=victim["id"], by=HOUR),
        partial(place_pending, pool_id=pool, now=clock.now),
    ]
    at_once(ways)  # type: ignore[arg-type]
    reconcilers.place(pool_id=pool)
    made = Reservation.objects.get(spot=False)
    assert (made.state, made.starts_at) == ("placed", start)
    assert shown(world, victim)["endsAt"] == start
    assert Booking.objects.filter(reservation_id=victim["id"], during__endswith=start).count() == 1


@contextlib.contextmanager
def held(work: Callable[[], object]) -> Iterator[None]:
    """Somebody else has locked this in a transaction that is still open."""
    locked, done = threading.Event(), threading.Event()

    def run() -> None:
        with transaction.atomic():
            work()
            locked.set()
            done.wait(timeout=30)
        connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    assert locked.wait(timeout=30)
    try:
        yield
    finally:
        done.set()
        thread.join(timeout=30)


@pytest.mark.clause("PRE-1", "a victim that somebody else holds just now is taken right after")
@pytest.mark.parametrize("what", ["row", "quota"])
def test_a_victim_in_other_hands(world: World, pool: str, clock: Clock, what: str):
    victim = spot(world, pool, 8)
    settle()
    rows = {
        "row": Reservation.objects.filter(id=victim["id"]),
        "quota": Quota.objects.filter(tenant_id="globex", pool_id=pool),
    }
    with held(lambda: list(rows[what].select_for_update())):
        made = create(patient(world.ann.api), pool, 8)
        # It is not waited for: whoever holds it may be waiting for what this pass has locked.
        assert made["state"] == "pending"
        assert standing(world, victim) == [("active", "")]
    reconcilers.place(pool_id=pool)
    assert standing(world, victim, made) == [("released", "preempted"), ("placed", "")]
