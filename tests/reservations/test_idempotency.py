"""The key of a create (CRE-2 … CRE-6, CRE-20)."""

from typing import Any

import pytest

from reservations import reconcilers
from reservations.models import Reservation
from reservations.operations import drafts
from reservations.operations.admission import admit_decided, decide_drafts
from tests.reservations.conftest import event_types
from tests.support.api import admit_all, settle
from tests.support.world import HOUR, World, request


def nothing() -> None:
    """No worker is there."""


@pytest.mark.clause("CRE-2", "same tenant, identity and key: same id")
def test_the_id_is_derived(world: World, pool: str):
    asked = request(pool)
    mine = world.ann.api("reservations/create", **asked).data["reservation"]
    again = world.ann.api("reservations/create", **asked).data["reservation"]
    bobs = world.bob.api("reservations/create", **asked).data["reservation"]
    assert mine["id"] == again["id"]
    assert bobs["id"] != mine["id"]


@pytest.mark.clause("CRE-3", "same key, same request: the stored one, no second decision")
@pytest.mark.parametrize(
    "respelled",
    [
        pytest.param({}, id="the same"),
        pytest.param(
            {"wait": {"timeoutMs": 0}},
            id="wait is not compared",
            marks=pytest.mark.clause("CRE-3", "wait is not part of the comparison"),
        ),
        pytest.param(
            {"nodes": 1, "spot": False, "binding": "hold", "priority": 50, "dryRun": False},
            id="defaults",
            marks=pytest.mark.clause("CRE-3", "absent fields equal to their defaults"),
        ),
        pytest.param(
            {"labels": {"area": "eu", "team": "vision"}, "durationSeconds": 3.6e3},
            id="order, 3.6e3",
            marks=pytest.mark.clause("CRE-3", "key order and number spelling are no differences"),
        ),
        pytest.param(
            {"devices": {"count": 2.0, "class": "gpu", "sharing": "exclusive"}}, id="spelling, order, sharing"
        ),
    ],
)
def test_a_replay_answers_what_is_stored(world: World, pool: str, left, respelled: dict[str, Any]):
    asked = request(pool, 2, labels={"team": "vision", "area": "eu"})
    made = world.ann.api("reservations/create", **asked).data["reservation"]
    there = left()
    settle()
    again = world.ann.api("reservations/create", **(asked | respelled)).data["reservation"]
    assert again["id"] == made["id"]
    assert again["state"] == "active"
    assert {k: left()[k] for k in ("decisions", "charges", "bookings", "reservations")} == {
        k: there[k] for k in ("decisions", "charges", "bookings", "reservations")
    }


@pytest.mark.clause("CRE-3", "absent labels are no labels")
def test_no_labels_at_all(world: World, pool: str):
    asked = request(pool)
    made = world.ann.api("reservations/create", **asked).data["reservation"]
    assert world.ann.api("reservations/create", **asked, labels={}).data["reservation"]["id"] == made["id"]


@pytest.mark.clause("CRE-21", "a replay survives the pool's limits and the clock")
def test_a_replay_does_not_fail_for_its_age(world: World, pool: str, clock):
    asked = request(pool, startsAt=clock.now + HOUR)
    made = world.ann.api("reservations/create", **asked).data["reservation"]
    clock.advance(hours=10)
    assert world.ann.api("reservations/create", **asked).data["reservation"]["id"] == made["id"]


@pytest.mark.clause("CRE-5", "same key, different request: CONFLICT")
@pytest.mark.parametrize(
    "changed",
    [
        {"devices": {"class": "gpu", "count": 3}},
        {"durationSeconds": 3601},
        {"priority": 49},
        {"name": "other"},
        {"labels": {"a": "b"}},
        {"spot": True},
        {"poolId": "pool_none"},
        {"leaseSeconds": 30},
        {"maxCost": "1"},
        {"nodes": 2},
        {"binding": "node"},
        {"resources": {}},
        {"devices": {"class": "gpu", "count": 2, "sharing": "mps"}},
        {"devices": {"class": "slot", "count": 2}},
        {"startsAt": 9_000_000_000_000},
        {"startBefore": 9_000_000_000_000},
    ],
)
def test_another_request_is_a_conflict(world: World, pool: str, left, changed: dict[str, Any]):
    asked = request(pool, 2)
    made = world.ann.api("reservations/create", **asked).data["reservation"]
    there = left()
    world.ann.api("reservations/create", **(asked | changed)).refused("CONFLICT", reservationId=made["id"])
    assert left() == there


@pytest.mark.clause("CRE-4", "still a draft: decided again")
@pytest.mark.clause("CRE-18", "not finished in time: UNAVAILABLE with the id; the same key picks it up")
@pytest.mark.clause("CRE-20", "an unanswered call is rested by its answer")
def test_without_a_worker_the_call_is_unavailable_and_the_key_goes_on(world: World, pool: str, left):
    asked = request(pool)
    world.ann.api.work = nothing
    error = world.ann.api("reservations/create", **asked).refused("UNAVAILABLE")
    assert error["retryAfterSeconds"] > 0
    assert left() == {"drafts": 1}
    # A worker that comes too late finds nothing: the call was answered.
    admit_all()
    assert left() == {"drafts": 1}
    world.ann.api.work = admit_all
    made = world.ann.api("reservations/create", **asked).data["reservation"]
    assert made["id"] == error["details"]["reservationId"]
    assert made["state"] == "placed"
    assert left() == {"reservations": 1, "decisions": 1, "charges": 1, "bookings": 1, "allocations": 1, "events": 1}


@pytest.mark.clause("CRE-10", "the retry of a draft whose window has passed")
def test_a_draft_whose_window_has_passed_is_refused_at_its_retry(world: World, clock):
    pool = world.offered_pool(quota=0)
    asked = request(pool) | {"endsAt": clock.now + HOUR}
    del asked["durationSeconds"]
    world.ann.api("reservations/create", **asked).refused("QUOTA_EXCEEDED")
    clock.advance(hours=1)
    world.ann.api("reservations/create", **asked).refused_at("endsAt")


class Crashed(Exception):
    """The worker died here."""


@pytest.fixture
def open_draft(world: World, pool: str) -> dict[str, Any]:
    """A draft whose call got no answer: its web process died while it was parked."""

    def die() -> None:
        raise Crashed

    asked = request(pool)
    world.ann.api.work = die
    with pytest.raises(Crashed):
        world.ann.api("reservations/create", **asked)
    world.ann.api.work = admit_all
    return asked


@pytest.mark.clause("CRE-20", "the tick finishes a draft whose call is unanswered")
def test_the_tick_finishes_what_a_crash_left(world: World, open_draft: dict[str, Any], clock):
    clock.advance(seconds=59)
    reconcilers.admission_tick()
    assert world.ann.api("reservations/create", **open_draft).data["reservation"]["state"] == "placed"


@pytest.mark.clause("CRE-20", "for at most 60 s after that call")
def test_after_a_minute_nobody_finishes_it_unasked(world: World, left, open_draft: dict[str, Any], clock):
    clock.advance(seconds=60)
    admit_all()
    assert left() == {"drafts": 1}
    assert world.ann.api("reservations/create", **open_draft).data["reservation"]["state"] == "placed"


@pytest.mark.clause("CRE-1", "a crash between two steps: continues from the stored state")
@pytest.mark.clause("CRE-1", "a stored allow continues for 60 s")
def test_a_stored_allow_is_not_decided_again(world: World, pool: str, left, open_draft: dict[str, Any], clock):
    decide_drafts(pool_id=pool, now=clock.now)
    assert left() == {"drafts": 1, "decisions": 1}
    clock.advance(seconds=30)
    world.ann.api("reservations/create", **open_draft)
    assert left()["decisions"] == 1
    assert admit_decided(pool_id=pool, now=clock.now) == 0


@pytest.mark.clause("CRE-1", "a stored allow is decided again after 60 s")
def test_an_old_allow_is_decided_again(world: World, pool: str, left, open_draft: dict[str, Any], clock):
    decide_drafts(pool_id=pool, now=clock.now)
    clock.advance(seconds=60)
    assert admit_decided(pool_id=pool, now=clock.now) == 0
    world.ann.api("reservations/create", **open_draft)
    assert left()["decisions"] == 2


@pytest.mark.clause("CRE-1", "an allow is void after an answer")
def test_an_allow_does_not_outlive_its_answer(world: World, left):
    pool = world.offered_pool(quota=0)
    asked = request(pool)
    for decisions in (1, 2):
        world.ann.api("reservations/create", **asked).refused("QUOTA_EXCEEDED")
        assert left()["decisions"] == decisions


@pytest.mark.clause("CRE-20", "UNAVAILABLE finds it admitted: the outcome is answered")
def test_resting_spares_what_was_admitted_meanwhile(world: World, pool: str, open_draft: dict[str, Any]):
    row = Reservation.objects.get(idempotency_key=open_draft["idempotencyKey"])
    admit_all()
    drafts.rest_unfinished(reservation_id=row.id)
    row.refresh_from_db()
    assert row.state == "placed"
    assert "reservation" in (row.outcome or {})
    assert event_types(row.id) == ["placed"]


@pytest.mark.clause("IAM-1", "a revoked key bites a call that waits for its decision")
def test_a_key_revoked_while_the_draft_waits(world: World, pool: str, open_draft: dict[str, Any], left):
    key = world.ann.api.iam("session/whoami").data["credential"]["id"]
    world.acme.api.iam("keys/revoke", keyId=key)
    admit_all()
    row = Reservation.objects.get(idempotency_key=open_draft["idempotencyKey"])
    assert (row.state, (row.outcome or {})["refusal"]["code"]) == ("draft", "UNAUTHENTICATED")
    assert row.call_open_until is None
