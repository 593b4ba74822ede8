"""Release and cancel (REL-1, CAN-1)."""

from typing import Any

import pytest

from computeplatform.clock import compute_now
from computeplatform.models import Event
from quotas.models import Quota
from reservations.models import Booking, Reservation
from tests.reservations.conftest import event_types
from tests.support.api import settle
from tests.support.world import HOUR, World, request


def make(world: World, pool: str, state: str, **changed: Any) -> dict[str, Any]:
    """Ann's reservation in the given state."""
    if state == "pending":
        world.gil.api("reservations/create", **request(pool, 8))
    if state == "placed":
        changed |= {"startsAt": compute_now() + HOUR}
    made = world.ann.api("reservations/create", **request(pool, 8, **changed)).data["reservation"]
    if state in ("active", "released"):
        settle()
    if state == "released":
        world.ann.api("reservations/release", reservationId=made["id"])
    if state == "cancelled":
        world.ann.api("reservations/cancel", reservationId=made["id"])
    shown = world.ann.api("reservations/get", reservationId=made["id"]).data["reservation"]
    assert shown["state"] == state
    return shown


def used(pool: str, tenant: str = "acme") -> int:
    return Quota.objects.get(tenant_id=tenant, pool_id=pool, resource="gpu").used


@pytest.mark.clause("REL-1", "bookings end now, the charge is refunded, released")
@pytest.mark.clause("REL-1", "emits reservation.released with reason release")
def test_releasing_what_runs(world: World, pool: str, clock):
    made = make(world, pool, "active")
    clock.advance(seconds=90)
    shown = world.ann.api("reservations/release", reservationId=made["id"]).data["reservation"]
    assert (shown["state"], shown["reason"], shown["releasedAt"]) == ("released", "release", clock.now)
    assert shown["version"] == made["version"] + 1
    booking = Booking.objects.get(reservation_id=made["id"])
    assert (booking.during.lower, booking.during.upper) == (made["startsAt"], clock.now)
    assert (booking.billed.upper, booking.planned.upper) == (clock.now, made["endsAt"])
    assert used(pool) == 0
    assert event_types(made["id"]) == ["placed", "binding", "active", "released"]
    event = Event.objects.get(type="reservation.released")
    assert (event.reason, event.actor_id, event.subject_version) == ("release", world.ann.id, shown["version"])


@pytest.mark.clause("REL-1", "before it began nothing is booked or billed")
def test_releasing_what_has_not_begun(world: World, pool: str):
    made = make(world, pool, "placed")
    shown = world.ann.api("reservations/release", reservationId=made["id"]).data["reservation"]
    assert shown["state"] == "released"
    booking = Booking.objects.get(reservation_id=made["id"])
    assert booking.during.isempty
    assert booking.billed.isempty
    assert used(pool) == 0


@pytest.mark.clause("REL-1", "pending: cancelled instead")
@pytest.mark.clause("REL-1", "or reservation.cancelled with reason release")
def test_releasing_what_waits_cancels_it(world: World, pool: str):
    made = make(world, pool, "pending")
    shown = world.ann.api("reservations/release", reservationId=made["id"]).data["reservation"]
    assert (shown["state"], shown["reason"]) == ("cancelled", "release")
    assert "releasedAt" not in shown
    assert event_types(made["id"]) == ["pending", "cancelled"]
    assert Event.objects.get(type="reservation.cancelled", subject_id=made["id"]).reason == "release"
    assert used(pool) == 0


@pytest.mark.clause("REL-1", "terminal: returned unchanged")
@pytest.mark.parametrize("state", ["released", "cancelled"])
def test_releasing_what_has_ended_changes_nothing(world: World, pool: str, clock, state: str):
    made = make(world, pool, "active" if state == "released" else "placed")
    world.ann.api("reservations/release" if state == "released" else "reservations/cancel", reservationId=made["id"])
    before = world.ann.api("reservations/get", reservationId=made["id"]).data["reservation"]
    clock.advance(seconds=5)
    assert world.ann.api("reservations/release", reservationId=made["id"]).data["reservation"] == before
    assert used(pool) == 0


@pytest.mark.clause("REL-1", "a draft: INVALID_STATE")
@pytest.mark.clause("CAN-1", "any draft: NOT_FOUND")
def test_a_draft_cannot_be_released_and_is_not_there_to_cancel(world: World):
    pool = world.offered_pool(quota=0)
    asked = request(pool)
    world.ann.api("reservations/create", **asked).refused("QUOTA_EXCEEDED")
    world.ann.api("reservations/release", reservationId=draft_id(asked)).refused("INVALID_STATE", state="draft")
    world.ann.api("reservations/cancel", reservationId=draft_id(asked)).refused("NOT_FOUND")
    world.ann.api("reservations/get", reservationId=draft_id(asked)).refused("NOT_FOUND")


def draft_id(asked: dict[str, Any]) -> str:
    return str(Reservation.objects.get(idempotency_key=asked["idempotencyKey"]).id)


@pytest.mark.clause("REL-1", "denied: NOT_FOUND")
@pytest.mark.clause("CAN-1", "denied: NOT_FOUND")
@pytest.mark.clause("GET-1", "denied: NOT_FOUND")
@pytest.mark.parametrize("method", ["release", "cancel", "get"])
def test_a_denied_one_is_not_there(world: World, pool: str, method: str):
    asked = request(pool)
    world.vic.api("reservations/create", **asked).refused("ACCESS_DENIED")
    world.acme.api(f"reservations/{method}", reservationId=draft_id(asked)).refused("NOT_FOUND")


@pytest.mark.clause("CAN-1", "pending or placed: cancelled, refunded")
@pytest.mark.clause("CAN-1", "emits reservation.cancelled, reason cancel")
@pytest.mark.parametrize("state", ["pending", "placed"])
def test_cancelling_what_has_not_started(world: World, pool: str, state: str):
    made = make(world, pool, state)
    shown = world.ann.api("reservations/cancel", reservationId=made["id"]).data["reservation"]
    assert (shown["state"], shown["reason"]) == ("cancelled", "cancel")
    assert event_types(made["id"]) == [state, "cancelled"]
    assert Event.objects.get(type="reservation.cancelled", subject_id=made["id"]).reason == "cancel"
    assert used(pool) == 0
    assert not Booking.objects.filter(reservation_id=made["id"], during__isempty=False).exists()


@pytest.mark.clause("CAN-1", "cancelled: unchanged")
def test_cancelling_twice_changes_nothing(world: World, pool: str, clock):
    made = make(world, pool, "cancelled", startsAt=clock.now + HOUR)
    assert world.ann.api("reservations/cancel", reservationId=made["id"]).data["reservation"] == made


@pytest.mark.clause("CAN-1", "any other state: INVALID_STATE, which names release")
@pytest.mark.parametrize("state", ["active", "released"])
def test_what_has_started_cannot_be_cancelled(world: World, pool: str, state: str):
    made = make(world, pool, state)
    error = world.ann.api("reservations/cancel", reservationId=made["id"]).refused("INVALID_STATE", state=state)
    assert "release" in error["message"]
    assert world.ann.api("reservations/get", reservationId=made["id"]).data["reservation"] == made


@pytest.mark.clause("REL-1", "freed capacity wakes what is pending")
@pytest.mark.clause("REC-3", "at once when capacity is freed")
def test_a_release_sends_a_wake_for_the_pool(world: World, pool: str, redis_client, django_capture_on_commit_callbacks):
    first = make(world, pool, "active")
    waiting = world.ann.api("reservations/create", **request(pool, 8)).data
    with django_capture_on_commit_callbacks(execute=True):
        world.ann.api("reservations/release", reservationId=first["id"])
    assert redis_client.exists(f"compute:wake:placement:{pool}")
    assert redis_client.llen("placement") == 1
    assert waiting["reservation"]["state"] == "pending"


PEOPLE = [
    pytest.param("ann", None, id="owner"),
    pytest.param("acme", None, id="administrator of the tenant"),
    pytest.param("bob", "ACCESS_DENIED", id="colleague"),
    pytest.param("vic", "ACCESS_DENIED", id="viewer"),
    pytest.param("gil", "NOT_FOUND", id="stranger"),
    pytest.param("globex", "NOT_FOUND", id="administrator of another tenant"),
    pytest.param("admin", "NOT_FOUND", id="platform operator"),
]


@pytest.mark.clause("API-5", "without the permission: ACCESS_DENIED; another tenant's: NOT_FOUND")
@pytest.mark.parametrize("method", ["release", "cancel"])
@pytest.mark.parametrize(("who", "code"), PEOPLE)
def test_who_may_end_it(world: World, pool: str, method: str, who: str, code: str | None):
    made = make(world, pool, "placed")
    person = getattr(world, who)
    answer = getattr(person, "api", person)(f"reservations/{method}", reservationId=made["id"])
    if code is None:
        assert answer.data
        return
    answer.refused(code)
    assert world.ann.api("reservations/get", reservationId=made["id"]).data["reservation"] == made
    assert event_types(made["id"]) == ["placed"]
    assert used(pool) == 8
