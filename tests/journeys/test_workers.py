"""Workers die, are missing, or are too many: work is delayed, and never lost or doubled (DESIGN §1)."""

import signal
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tests.journeys.installation import Installation, until

pytestmark = pytest.mark.slow


def hold(installation: Installation, **changed):
    asked = {"poolId": installation.pool_id, "devices": {"class": "gpu", "count": 2}, "durationSeconds": 3600}
    return asked | {"idempotencyKey": uuid.uuid4().hex} | changed


def traces(installation: Installation, reservation_id: str) -> dict[str, int]:
    """How often each thing was done for a reservation."""
    counted = {
        "decisions": "SELECT count(*) FROM iam_decision WHERE resource_id = %s",
        "charges": "SELECT count(*) FROM quotas_charge WHERE reservation_id = %s",
        "bookings": "SELECT count(*) FROM reservations_booking WHERE reservation_id = %s",
        "placed": "SELECT count(*) FROM computeplatform_event WHERE type = 'reservation.placed' AND subject_id = %s",
        "active": "SELECT count(*) FROM computeplatform_event WHERE type = 'reservation.active' AND subject_id = %s",
    }
    return {name: installation.rows(statement, reservation_id)[0][0] for name, statement in counted.items()}


@pytest.mark.clause("CRE-1", "a worker killed in the middle of an admission charges nothing twice")
@pytest.mark.clause("CRE-20", "the tick finishes what a killed worker left")
@pytest.mark.clause("OPS-3", "a worker may die at any time")
def test_a_killed_worker_s_admission_is_finished_by_another(installation: Installation):
    ann = installation.caller("acme")
    installation.start("worker2")
    installation.signal("worker2", signal.SIGSTOP)  # there, but not working yet
    request = hold(installation)
    try:
        with (
            psycopg.connect(installation.database_url) as holder,
            ThreadPoolExecutor() as pool,
        ):
            # Whoever admits has to wait for the pool's lock: it is in the middle of it.
            holder.execute("SELECT 1 FROM fleet_pool WHERE id = %s FOR UPDATE", [installation.pool_id])
            call = pool.submit(ann.post, "reservations/create", **request)
            until(lambda: blocked(installation))
            installation.kill("worker1")
            installation.signal("worker2", signal.SIGCONT)
            holder.rollback()
            answer = call.result(30)
    finally:
        installation.signal("worker2", signal.SIGCONT)
    assert answer.status_code == 200, answer.text
    made = answer.json()["data"]["reservation"]
    assert made["state"] == "placed"
    ann.follow(made["id"], "active")
    again = ann("reservations/create", **request)["reservation"]
    assert (again["id"], again["state"]) == (made["id"], "active")
    once = {"decisions": 1, "charges": 1, "bookings": 1, "placed": 1, "active": 1}
    assert traces(installation, made["id"]) == once


def blocked(installation: Installation) -> bool:
    """Whether an admission waits for a lock."""
    waiting = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%%fleet_pool%%'"
    )
    return bool(installation.rows(waiting)[0][0])


@pytest.mark.clause("CRE-18", "no worker: UNAVAILABLE with the id, and the same key goes on")
@pytest.mark.clause("CRE-20", "an unanswered draft rests as UNAVAILABLE")
@pytest.mark.clause("GET-1", "a draft is not found")
def test_without_a_worker_create_is_unavailable_and_the_same_key_goes_on(installation: Installation):
    ann = installation.caller("acme")
    installation.stop("worker1")
    request = hold(installation)
    started = time.monotonic()
    answer = ann.post("reservations/create", **request)
    took = time.monotonic() - started
    assert answer.status_code == 503
    error = answer.json()["error"]
    assert error["code"] == "UNAVAILABLE"
    assert error["retryAfterSeconds"] >= 1
    assert answer.headers["Retry-After"] == str(error["retryAfterSeconds"])
    assert 9.5 < took < 15
    reservation_id = error["details"]["reservationId"]
    assert ann.post("reservations/get", reservationId=reservation_id).status_code == 404
    nothing = {"decisions": 0, "charges": 0, "bookings": 0, "placed": 0, "active": 0}
    assert traces(installation, reservation_id) == nothing

    installation.start("worker1")
    # The draft rests: nobody admits it before its key is sent again (CRE-20).
    since = now(installation)
    until(lambda: last_tick(installation, "admission") > since)
    assert traces(installation, reservation_id) == nothing
    made = ann("reservations/create", **request)["reservation"]
    assert (made["id"], made["state"]) == (reservation_id, "placed")
    ann.follow(made["id"], "active")
    once = {"decisions": 1, "charges": 1, "bookings": 1, "placed": 1, "active": 1}
    assert traces(installation, reservation_id) == once


def last_tick(installation: Installation, name: str) -> int:
    return int(installation.rows("SELECT last_at FROM computeplatform_tick WHERE name = %s", name)[0][0])


def now(installation: Installation) -> int:
    return int(installation.rows("SELECT compute_now()")[0][0])


@pytest.mark.clause("CRE-6", "one of everything for N callers, on two workers")
@pytest.mark.clause("REC-2", "run twice it does the same")
@pytest.mark.clause("OPS-3", "more workers, and more than one beat")
def test_two_beats_and_two_workers_do_nothing_twice(installation: Installation):
    installation.start("beat2", "worker2")
    callers = [installation.caller("acme") for _ in range(4)]
    requests = [hold(installation, binding="node") for _ in range(6)]
    barrier = threading.Barrier(4)

    def send_all(caller):
        barrier.wait()
        return [caller("reservations/create", **request)["reservation"] for request in requests]

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(send_all, callers))
    ids = [[made["id"] for made in answer] for answer in answers]
    assert ids == [ids[0]] * 4
    once = {"decisions": 1, "charges": 1, "bookings": 1, "placed": 1, "active": 1}
    for reservation_id in ids[0]:
        callers[0].follow(reservation_id, "active")
        assert traces(installation, reservation_id) == once
    # Both beats have lived through some ticks: whatever one does twice would show by now.
    seen = now(installation)
    until(lambda: min(last_tick(installation, name) for name in ("admission", "reconcile", "events")) > seen + 2_000)
    assert [traces(installation, reservation_id) for reservation_id in ids[0]] == [once] * 6
    numbers = [event["sequence"] for event in installation.caller("acme", "admin").events()]
    assert numbers == list(range(1, len(numbers) + 1))
