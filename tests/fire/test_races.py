"""Many at once on real processes: over HTTP, through two web processes and several workers."""

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import cycle
from typing import Any

import httpx
import psycopg
import pytest

from tests.fire.installation import TWO_OF_EACH, BurningInstallation
from tests.journeys.installation import Caller, until
from tests.support.threads import at_once
from tests.support.world import HOUR, request

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _parts(fire: BurningInstallation) -> None:
    fire.run(TWO_OF_EACH)


def create_at_once(callers: list[Caller], requests: list[dict[str, Any]]) -> list[httpx.Response]:
    """All at the same moment, in turn at each web process."""
    turns = zip(cycle(callers), requests, strict=False)
    return at_once([partial(caller.post, "reservations/create", **asked) for caller, asked in turns])


def outcome(answer: httpx.Response) -> str:
    """The state of what was made, or the code of the refusal."""
    body = answer.json()
    return str(body["data"]["reservation"]["state"] if answer.status_code == 200 else body["error"]["code"])


@pytest.mark.clause("REC-6", "50 creates for the last 8 devices, on real workers")
@pytest.mark.clause("CRE-12", "charges at once never pass max, on real workers")
def test_fifty_creates_for_the_last_eight(fire: BurningInstallation):
    pool = fire.pool(gpus=8, quota=20)
    answers = create_at_once(fire.callers("acme"), [request(pool, startsAt=fire.now() + HOUR) for _ in range(50)])
    told = {answer.text for answer in answers if answer.status_code not in (200, 429)}
    assert Counter(map(outcome, answers)) == {"placed": 8, "pending": 12, "QUOTA_EXCEEDED": 30}, told
    assert fire.states_in(pool) == {"placed": 8, "pending": 12, "draft": 30}
    assert fire.rows("SELECT count(*), sum(devices) FROM reservations_booking WHERE pool_id = %s", pool) == [(8, 8)]
    assert fire.rows("SELECT used FROM quotas_quota WHERE pool_id = %s AND tenant_id = 'acme'", pool)[0] == (20,)
    ids = [row[0] for row in fire.rows("SELECT id FROM reservations_reservation WHERE pool_id = %s", pool)]
    assert Counter(fire.story_of(one)["decisions"] for one in ids) == {1: 50}


@pytest.mark.clause("CRE-6", "20 callers with one key at two web processes: one of everything, one answer")
def test_one_key_twenty_times(fire: BurningInstallation):
    pool = fire.pool()
    answers = create_at_once(fire.callers("acme"), [request(pool, 2, startsAt=fire.now() + HOUR)] * 20)
    [made] = {answer.text for answer in answers}
    assert outcome(answers[0]) == "placed", made
    found = fire.story_of(answers[0].json()["data"]["reservation"]["id"])
    once = {"decisions": 1, "charges": 1, "charged": 1, "bookings": 1, "events": ["placed"]}
    assert found == {"state": "placed"} | once
    assert fire.states_in(pool) == {"placed": 1}


@pytest.mark.clause("REC-2", "release, cancel and reconcilers at the same moment, on real workers")
@pytest.mark.clause("REL-1", "against cancel and the reconciler: one end")
@pytest.mark.parametrize("moment", ["start", "end"])
def test_release_against_cancel_against_the_reconciler(fire: BurningInstallation, moment: str):
    pool = fire.pool()
    first, second = fire.callers("acme")
    starts_at = fire.now() + 1_200
    asked = [request(pool, startsAt=starts_at, durationSeconds=1) for _ in range(8)]
    ids = [answer.json()["data"]["reservation"]["id"] for answer in create_at_once([first, second], asked)]
    at = starts_at if moment == "start" else starts_at + 1_000
    until(lambda: fire.now() >= at - 5)

    def end(caller: Caller, how: str, reservation_id: str) -> int:
        return caller.post(f"reservations/{how}", reservationId=reservation_id).status_code

    ways: list[partial[Any]] = [partial(end, second, "cancel", one) for one in ids]
    ways += [partial(end, first, "release", one) for one in ids]
    ways += [partial(fire.wake, "reconcile", "reservations.reconcile", key=pool) for _ in range(8)]
    answers = at_once(ways)
    assert set(answers[:8]) <= {200, 409}
    assert set(answers[8:16]) == {200}
    whole = [["placed", "cancelled"], ["placed", "released"], ["placed", "binding", "active", "released"]]
    for one in ids:
        found = fire.story_of(one)
        # One that short is told of its end as soon as a tick sees it.
        assert [event for event in found["events"] if event != "ending"] in whole
        assert found["state"] == found["events"][-1]
        assert (found["charges"], found["charged"], found["bookings"]) == (1, 0, 1)


def waiting_for(fire: BurningInstallation, table: str) -> int:
    """How many sessions wait for a lock of the table's."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE %s"
    return int(fire.rows(waiting, f"%{table}%")[0][0])


@pytest.mark.clause("OPS-3", "two pools at once never wait for each other")
def test_a_locked_pool_keeps_nobody_else_waiting(fire: BurningInstallation):
    locked, free = fire.pool(), fire.pool()
    first, second = fire.callers("acme")
    with psycopg.connect(fire.database_url) as holder, ThreadPoolExecutor() as threads:
        holder.execute("SELECT 1 FROM fleet_pool WHERE id = %s FOR UPDATE", [locked])
        held = [threads.submit(first.post, "reservations/create", **request(locked)) for _ in range(8)]
        until(lambda: waiting_for(fire, "fleet_pool"))
        for _ in range(12):
            # As many as there would be after some seconds, each of them for a worker's child.
            fire.wake("admission", "reservations.admit", key=locked)
            fire.wake("placement", "reservations.place", key=locked)
        for _ in range(10):
            started = time.monotonic()
            assert outcome(second.post("reservations/create", **request(free))) in ("placed", "pending")
            assert time.monotonic() - started < 4, "it waited for the lock"
        assert not any(call.done() for call in held)
        holder.rollback()
        assert [outcome(call.result()) for call in held] == ["placed"] * 8


@pytest.mark.clause("OPS-3", "what ends in one pool never waits for another one")
@pytest.mark.clause("REC-2", "on time, whatever else is held up")
def test_a_pool_that_is_held_up_delays_no_other_end(fire: BurningInstallation):
    stuck, free = fire.pool(), fire.pool()
    ends_at = fire.now() + 1_500
    first, second = fire.callers("acme")
    asked = [request(pool, endsAt=ends_at) for pool in (stuck, free) for _ in range(3)]
    ids = []
    for one in asked:
        del one["durationSeconds"]
        ids.append(first("reservations/create", **one)["reservation"]["id"])
    with psycopg.connect(fire.database_url) as holder:
        # As a worker would that hangs in the middle of an admission.
        holder.execute("SELECT 1 FROM quotas_quota WHERE pool_id = %s FOR UPDATE", [stuck])
        until(lambda: waiting_for(fire, "quotas_quota"))
        for one in ids[3:]:
            second.follow(one, "released", seconds=10)
        assert {fire.story_of(one)["state"] for one in ids[:3]} == {"active"}
        holder.rollback()
    for one in ids:
        first.follow(one, "released")
        assert fire.story_of(one)["charged"] == 0
