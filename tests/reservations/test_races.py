"""Many at once, on connections of their own (CRE-6, CRE-12, REC-6)."""

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from computeplatform.api.calls import Actor
from iam.models import Decision
from quotas.models import Charge, Quota
from reservations.errors import WrongState
from reservations.models import Booking, Reservation
from reservations.operations.ending import cancel, release
from reservations.operations.lifecycle import advance_due
from reservations.operations.placing import place_pending
from tests.reservations.conftest import event_types
from tests.support.api import Answer, Api
from tests.support.threads import at_once
from tests.support.world import HOUR, World, request

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def db(transactional_db: None) -> None:
    """Threads see only what is committed."""


def patient(api: Api) -> Api:
    """A client of its own that looks often before its time is up."""
    return Api(api.token, api.tenant_id, looks=100)


def create_at_once(api: Api, requests: list[dict[str, Any]]) -> list[Answer]:
    return at_once([partial(patient(api), "reservations/create", **asked) for asked in requests])


@pytest.mark.clause("CRE-6", "one reservation, decision, charge, placement, event, and the same answer")
def test_twelve_calls_with_one_key(world: World, pool: str):
    answers = create_at_once(world.ann.api, [request(pool, 2, idempotencyKey="same")] * 12)
    assert {answer.data["reservation"]["id"] for answer in answers} == {Reservation.objects.get().id}
    assert Decision.objects.filter(action="compute:reservations:create").count() == 1
    assert Charge.objects.count() == 1
    assert Booking.objects.count() == 1
    assert event_types(Reservation.objects.get().id) == ["placed"]
    assert {(a.data["reservation"]["state"], a.data["reservation"]["version"]) for a in answers} == {("placed", 1)}


@pytest.mark.clause("CRE-6", "different requests with one key: one wins, the others conflict")
def test_different_requests_with_one_key(world: World, pool: str):
    answers = create_at_once(world.ann.api, [request(pool, n, idempotencyKey="same") for n in range(1, 7)])
    assert sorted(answer.status for answer in answers) == [200, 409, 409, 409, 409, 409]
    assert Reservation.objects.count() == 1


@pytest.mark.clause("CRE-12", "two charges at once never pass max")
def test_quota_is_never_passed(world: World):
    pool = world.offered_pool(nodes=2, quota=8)
    answers = create_at_once(world.ann.api, [request(pool, 3) for _ in range(8)])
    assert sorted(answer.status for answer in answers) == [200, 200, 429, 429, 429, 429, 429, 429]
    assert Quota.objects.get(tenant_id="acme", pool_id=pool, resource="gpu").used == 6


@pytest.mark.clause("REC-6", "many creates for the last devices")
def test_the_last_devices_are_given_once(world: World, pool: str):
    answers = create_at_once(world.ann.api, [request(pool, 1) for _ in range(20)])
    states = sorted(answer.data["reservation"]["state"] for answer in answers)
    assert states == ["pending"] * 12 + ["placed"] * 8


@pytest.mark.clause("REC-2", "on two machines at once it does the same")
def test_reconcilers_at_once(world: World, pool: str, clock):
    for _ in range(6):
        world.ann.api("reservations/create", **request(pool, startsAt=clock.now + HOUR))
    now = clock.advance(hours=1)
    at_once([partial(advance_due, now=now) for _ in range(4)])
    for row in Reservation.objects.all():
        assert row.state == "active"
        assert event_types(row.id) == ["placed", "binding", "active"]


@pytest.mark.clause("REL-1", "release against cancel against the reconciler: one outcome")
@pytest.mark.parametrize("round_", range(3))
def test_ending_in_three_ways_at_once(world: World, pool: str, clock, round_: int):
    made = world.ann.api("reservations/create", **request(pool, 8, startsAt=clock.now + HOUR)).data["reservation"]
    waiting = world.ann.api("reservations/create", **request(pool, 8, startsAt=clock.now + HOUR)).data["reservation"]
    now = clock.advance(hours=1)
    ending = {"tenant_id": "acme", "reservation_id": made["id"], "now": now}

    ann = Actor(world.ann.id)

    def cancel_if_it_can() -> None:
        with contextlib.suppress(WrongState):  # it may have started, or ended, before
            cancel(**ending, by=ann)

    ways: list[Callable[[], object]] = [
        partial(release, **ending, by=ann),
        cancel_if_it_can,
        partial(advance_due, now=now),
        partial(place_pending, pool_id=pool, now=now),
    ]
    at_once(ways)
    place_pending(pool_id=pool, now=now)
    row = Reservation.objects.get(id=made["id"])
    assert row.state in ("released", "cancelled")
    assert event_types(row.id)[-1] == row.state
    assert Reservation.objects.get(id=waiting["id"]).state == "placed"
    assert Quota.objects.get(tenant_id="acme", pool_id=pool, resource="gpu").used == 8
