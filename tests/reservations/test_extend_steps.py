"""``reservations/extend``: what comes between storing the change and carrying it out (EXT-2, EXT-5)."""

from collections.abc import Callable
from typing import Any

import pytest

from iam.operations.decisions import decide_many
from reservations import reconcilers
from reservations.domain.extending import OPEN, Change
from reservations.models import Reservation
from reservations.operations import extending
from tests.reservations.conftest import event_types
from tests.reservations.test_extend import decisions, extend, running, shown, stored
from tests.support.clock import Clock
from tests.support.world import HOUR, World


@pytest.mark.clause("EXT-5", "another extend is being decided: CONFLICT with retryAfterSeconds, also beside code")
@pytest.mark.clause("EXT-5", "one abandoned by a crash does not block for more than a minute")
def test_another_one_in_flight(world: World, pool: str, clock: Clock):
    one = running(world, pool)
    abandon(one["id"], clock)
    before = decisions()
    refused = extend(world, one["id"], by=1000)
    error = refused.refused("CONFLICT", reason="extend-in-flight", reservationId=one["id"])
    assert 1 <= error["retryAfterSeconds"] <= 60
    assert error["details"]["retryAfterSeconds"] == error["retryAfterSeconds"]
    assert refused.headers["Retry-After"] == str(error["retryAfterSeconds"])
    assert decisions() == before
    # What asks for nothing new is in nobody's way.
    assert extend(world, one["id"], until=one["endsAt"]).data["extended"] is False
    got = world.ann.api("reservations/get", reservationId=one["id"]).data["operation"]
    assert (got["kind"], got["status"], got["startedAt"]) == ("extend", "running", clock.now)
    clock.advance(seconds=60)
    assert extend(world, one["id"], by=1000).data["extended"] is True
    assert shown(world, one["id"])["endsAt"] == one["endsAt"] + 1000


def abandon(reservation_id: str, clock: Clock, token: str = "dead") -> None:
    """A change whose process has died between storing and deciding it."""
    row = Reservation.objects.get(id=reservation_id)
    starts_at, ends_at = row.starts_at or 0, row.ends_at or 0
    change = Change(ends_at + HOUR, (starts_at, ends_at), token, clock.now + OPEN)
    Reservation.objects.filter(id=reservation_id).update(
        pending_change=change.as_json(), due_at=min(row.due_at or 0, change.open_until)
    )


@pytest.mark.clause("EXT-5", "an abandoned one is cleared")
def test_an_abandoned_change_is_cleared(world: World, pool: str, clock: Clock):
    one = running(world, pool)
    abandon(one["id"], clock)
    clock.advance(seconds=29)
    reconcilers.reconcile_tick()
    assert Reservation.objects.get().pending_change is not None
    clock.advance(seconds=1)
    reconcilers.reconcile_tick()
    assert Reservation.objects.get().pending_change is None
    assert shown(world, one["id"]) == one
    assert world.ann.api("reservations/get", reservationId=one["id"]).data["operation"]["kind"] == "create"


@pytest.mark.clause("EXT-5", "whoever comes back late does not carry out what another has taken over")
def test_a_late_one_is_dropped(world: World, pool: str, clock: Clock, monkeypatch: pytest.MonkeyPatch):
    one = running(world, pool)
    decide = decide_many

    def slowly(questions: Any, *, now: int) -> Any:
        monkeypatch.undo()
        clock.advance(seconds=61)
        assert extend(world, one["id"], by=5000).data["extended"] is True
        return decide(questions, now=now)

    monkeypatch.setattr(extending, "decide_many", slowly)
    extend(world, one["id"], by=1000).refused("CONFLICT", reason="extend-in-flight")
    assert shown(world, one["id"])["endsAt"] == one["endsAt"] + 5000
    assert event_types(one["id"]).count("extended") == 1


@pytest.mark.clause("EXT-2", "every outcome clears the pending change")
def test_a_fault_clears_it(world: World, pool: str, monkeypatch: pytest.MonkeyPatch):
    one = running(world, pool)
    before = stored(one["id"])

    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError

    monkeypatch.setattr(extending, "reach", broken)
    extend(world, one["id"], by=1000).refused("INTERNAL_ERROR")
    assert stored(one["id"]) == before


def meanwhile(monkeypatch: pytest.MonkeyPatch, act: Callable[[], Any]) -> None:
    """Something happens between the stored change and its decision."""
    decide = decide_many

    def after(questions: Any, *, now: int) -> Any:
        monkeypatch.undo()
        act()
        return decide(questions, now=now)

    monkeypatch.setattr(extending, "decide_many", after)


@pytest.mark.clause("EXT-1", "other states: also where it ends while it is being decided")
def test_released_meanwhile(world: World, pool: str, monkeypatch: pytest.MonkeyPatch):
    one = running(world, pool)
    meanwhile(monkeypatch, lambda: world.ann.api("reservations/release", reservationId=one["id"]))
    extend(world, one["id"], by=1000).refused("INVALID_STATE", state="released")
    row = Reservation.objects.get()
    assert (row.state, row.reason, row.pending_change, row.extended_by) == ("released", "release", None, 0)


@pytest.mark.clause("EXT-7", "archived or withdrawn while it is being decided")
@pytest.mark.parametrize(
    ("method", "fields", "reason"),
    [("pools/archive", {}, "pool-archived"), ("pools/withdrawOffer", {"toTenantId": "acme"}, "offer-withdrawn")],
)
def test_closed_meanwhile(
    world: World, pool: str, monkeypatch: pytest.MonkeyPatch, method: str, fields: Any, reason: str
):
    one = running(world, pool)
    before = stored(one["id"])
    meanwhile(monkeypatch, lambda: world.admin(method, poolId=pool, **fields).data)
    extend(world, one["id"], by=1000).refused("INVALID_STATE", reason=reason)
    assert stored(one["id"]) == before
