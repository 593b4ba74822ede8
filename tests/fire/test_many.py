"""Two beats, three workers and two web processes change nothing but speed."""

import time
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from typing import Any

import pytest

from computeplatform.beat import LOCK_KEY
from tests.fire.installation import ONE_OF_EACH, TWO_OF_EACH, BurningInstallation
from tests.journeys.installation import Caller, until
from tests.support.world import request

pytestmark = pytest.mark.slow


def tell(fire: BurningInstallation, callers: list[Caller]) -> dict[str, list[dict[str, Any]]]:
    """A pool is filled, more wait, some are given back and cancelled, some end by themselves; what became of each."""
    pool, turn = fire.pool(gpus=8, quota=16), cycle(callers)
    with ThreadPoolExecutor(8) as threads:

        def create(count: int, gpus: int, **changed: Any) -> list[str]:
            asked = [request(pool, gpus, **changed) for _ in range(count)]
            calls = [threads.submit(next(turn), "reservations/create", **one) for one in asked]
            return [call.result()["reservation"]["id"] for call in calls]

        def end(how: str, ids: list[str]) -> None:
            calls = [threads.submit(next(turn), f"reservations/{how}", reservationId=one) for one in ids]
            assert all(call.result() for call in calls)

        short = create(2, 1, durationSeconds=2)
        long = create(3, 2)
        waiting = create(3, 2)
        refused = next(turn).post("reservations/create", **request(pool, 3))
        assert refused.json()["error"]["code"] == "QUOTA_EXCEEDED"
        for one in (*short, *long):
            callers[0].follow(one, "active")
        end("cancel", waiting[2:])
        end("release", long[:1])
        for one in waiting[:2]:
            callers[0].follow(one, "active")  # one has the released devices, one those that have ended
        for one in short:
            callers[0].follow(one, "released")
        told = {"short": short, "long": long, "waiting": waiting}
        return {name: [fire.story_of(one) for one in ids] for name, ids in told.items()}


def ticks_sent(fire: BurningInstallation) -> dict[str, int]:
    """How often each tick was sent so far."""
    return dict(fire.rows("SELECT name, total_run_count FROM django_celery_beat_periodictask"))


@pytest.mark.clause("OPS-3", "two beats, three workers, two web processes: the same story, nothing twice")
@pytest.mark.clause("REC-2", "on several machines at once it does the same")
@pytest.mark.clause("EVT-1", "each event once, whoever stamps")
def test_more_of_everything_changes_nothing(fire: BurningInstallation):
    fire.run(ONE_OF_EACH)
    alone = tell(fire, [fire.caller("acme")])
    fire.run(TWO_OF_EACH)
    before, began = ticks_sent(fire), time.monotonic()
    together = tell(fire, fire.callers("acme"))
    passed, after = time.monotonic() - began, ticks_sent(fire)
    assert together == alone
    assert [story["events"] for story in alone["waiting"]] == [
        *[["pending", "placed", "binding", "active"]] * 2,
        ["pending", "cancelled"],
    ]

    admin = fire.caller("acme", "admin")
    unstamped = "SELECT count(*) FROM computeplatform_event WHERE sequence IS NULL"
    until(lambda: fire.rows(unstamped) == [(0,)])
    numbers = [event["sequence"] for event in admin.events()]
    assert numbers == list(range(1, len(numbers) + 1))
    # One beat leads: every tick of a second was sent about once in it, and not twice.
    leaders = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = %s AND granted"
    assert fire.rows(leaders, LOCK_KEY) == [(1,)]
    for name in ("admission", "reconcile", "events"):
        assert 1 <= after[name] - before[name] <= passed + 2
