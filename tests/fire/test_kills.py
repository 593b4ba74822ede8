"""kill -9 of a worker at every step: another one goes on from what is stored, loses nothing and does nothing twice."""

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from tests.fire.installation import CRASHING, BurningInstallation
from tests.journeys.installation import Caller, until
from tests.support.world import HOUR, request

pytestmark = pytest.mark.slow

LOOPS = "reservations.reconcilers"
ADMISSION = "reservations.operations.admission"
LIFECYCLE = "reservations.operations.lifecycle"


@pytest.fixture(autouse=True)
def _parts(fire: BurningInstallation) -> None:
    fire.run(CRASHING)


@pytest.fixture
def ann(fire: BurningInstallation) -> Caller:
    return fire.caller("acme")


@contextmanager
def one_worker_dies(fire: BurningInstallation, step: str) -> Iterator[None]:
    """Some worker dies at the step, and only one; it is started again while the other finishes what it has left."""
    fire.order_to_crash.write_text(step)
    try:
        yield
        [dead] = until(fire.dead)
    finally:
        fire.order_to_crash.unlink(missing_ok=True)
    fire.kill(dead)
    fire.launch(dead)


def made(answer: Any) -> dict[str, Any]:
    assert answer.status_code == 200, answer.text
    return answer.json()["data"]["reservation"]


@pytest.mark.clause("CRE-1", "a worker killed at every step of admission: nothing is lost or charged twice")
@pytest.mark.clause("CRE-20", "the tick finishes the drafts of a worker killed at any step")
@pytest.mark.clause("CRE-6", "one decision, charge, placement and event, however often it is taken up again")
@pytest.mark.parametrize(
    "step",
    [
        f"before {LOOPS}.clear_mark",
        f"after {LOOPS}.clear_mark",
        f"after {ADMISSION}.decide_many",  # the decision is not committed yet
        f"after {ADMISSION}.decide_drafts",  # it is
        f"after {ADMISSION}.charge_each",
        "after reservations.operations.state.emit",  # all is written, nothing is committed
        f"after {ADMISSION}.admit_decided",  # all is committed, and the loop has not heard of it
    ],
)
def test_killed_in_the_middle_of_an_admission(fire: BurningInstallation, ann: Caller, step: str):
    pool = fire.pool()
    asked = [request(pool, 2, startsAt=fire.now() + HOUR) for _ in range(3)]
    with ThreadPoolExecutor() as threads:
        with one_worker_dies(fire, step):
            calls = [threads.submit(ann.post, "reservations/create", **one) for one in asked]
        answers = [made(call.result()) for call in calls]
    once = {"decisions": 1, "charges": 1, "charged": 1, "bookings": 1, "events": ["placed"]}
    for answer in answers:
        assert answer["state"] == "placed"
        assert fire.story_of(answer["id"]) == {"state": "placed"} | once
    assert fire.states_in(pool) == {"placed": 3}
    assert [made(ann.post("reservations/create", **one)) for one in asked] == answers


@pytest.mark.clause("CRE-1", "a worker killed when it has committed, before it wakes anybody")
@pytest.mark.clause("REC-2", "what nobody was woken for is started by the tick")
def test_killed_before_the_wake(fire: BurningInstallation, ann: Caller):
    pool = fire.pool()
    with one_worker_dies(fire, "before computeplatform.wakes.wake_now"):
        answer = made(ann.post("reservations/create", **request(pool)))
    assert answer["state"] == "placed"
    ann.follow(answer["id"], "active")
    once = {"decisions": 1, "charges": 1, "charged": 1, "bookings": 1, "events": ["placed", "binding", "active"]}
    assert fire.story_of(answer["id"]) == {"state": "active"} | once


@pytest.mark.clause("REC-3", "a worker killed while it places what waits: it is placed all the same, and once")
@pytest.mark.parametrize(
    "step",
    [
        f"before {LOOPS}.place_waiting",
        "before reservations.operations.state.notify",
        f"after {LOOPS}.place_waiting",
    ],
)
def test_killed_while_placing(fire: BurningInstallation, ann: Caller, step: str):
    pool, starts_at = fire.pool(), fire.now() + HOUR
    everything = made(ann.post("reservations/create", **request(pool, 8, startsAt=starts_at)))
    waiting = [made(ann.post("reservations/create", **request(pool, 4, startsAt=starts_at))) for _ in range(3)]
    assert [one["state"] for one in waiting] == ["pending"] * 3
    with one_worker_dies(fire, step):
        ann("reservations/release", reservationId=everything["id"])
    fire.wake("placement", "reservations.placement_tick")  # as beat does every 30 s
    until(lambda: fire.states_in(pool), lambda states: states["placed"] == 2)
    first, second, third = (fire.story_of(one["id"]) for one in waiting)
    once = {"state": "placed", "decisions": 1, "charges": 1, "charged": 1, "bookings": 1}
    assert first == second == once | {"events": ["pending", "placed"]}
    assert third == once | {"state": "pending", "bookings": 0, "events": ["pending"]}


@pytest.mark.clause("REC-2", "a worker killed at every step of a start: another does the same")
@pytest.mark.parametrize(
    "step",
    [
        f"before {LOOPS}.advance_due",
        f"after {LIFECYCLE}._start",
        "after fleet.operations.allocations.bind",
        f"after {LIFECYCLE}._activate",
        f"after {LOOPS}.advance_due",
    ],
)
def test_killed_while_starting(fire: BurningInstallation, ann: Caller, step: str):
    with one_worker_dies(fire, step):
        answer = made(ann.post("reservations/create", **request(fire.pool_id, 2, binding="node")))
    ann.follow(answer["id"], "active")
    once = {"decisions": 1, "charges": 1, "charged": 1, "bookings": 1, "events": ["placed", "binding", "active"]}
    assert fire.story_of(answer["id"]) == {"state": "active"} | once
    ann("reservations/release", reservationId=answer["id"])


@pytest.mark.clause("REC-2", "a worker killed at every step of an end: another does the same, and as of the same time")
@pytest.mark.clause("REC-5", "refunded once, whoever dies meanwhile")
@pytest.mark.parametrize("step", [f"after {LIFECYCLE}.end_rows", "after fleet.operations.allocations.withdraw"])
def test_killed_while_ending(fire: BurningInstallation, ann: Caller, step: str):
    pool = fire.pool()
    with one_worker_dies(fire, step):
        answer = made(ann.post("reservations/create", **request(pool, 2, durationSeconds=1)))
    ended = ann.follow(answer["id"], "released")["reservation"]
    assert (ended["reason"], ended["releasedAt"]) == ("ended", answer["endsAt"])
    found = fire.story_of(answer["id"])
    assert found["events"][-1:] == ["released"]
    assert sorted(set(found["events"])) == sorted(found["events"])
    assert (found["decisions"], found["charges"], found["charged"], found["bookings"]) == (1, 1, 0, 1)
    used = "SELECT used FROM quotas_quota WHERE pool_id = %s AND tenant_id = 'acme'"
    assert fire.rows(used, pool)[0] == (0,)


@pytest.mark.clause("EVT-1", "a killed stamper: numbers without a gap, none twice")
@pytest.mark.parametrize(
    "step", ["after computeplatform.events.outbox.try_advisory_lock", "after computeplatform.events.tasks.stamp"]
)
def test_killed_while_stamping(fire: BurningInstallation, ann: Caller, step: str):
    with one_worker_dies(fire, step):
        answer = made(ann.post("reservations/create", **request(fire.pool(), startsAt=fire.now() + HOUR)))
    admin = fire.caller("acme", "admin")
    until(lambda: admin.types_of(answer["id"]) == ["placed"])
    numbers = [event["sequence"] for event in admin.events()]
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.clause("CRE-20", "a killed web process: the tick finishes the draft, and the same key answers it")
def test_a_killed_web_process(fire: BurningInstallation, ann: Caller):
    pool = fire.pool()
    asked = request(pool, startsAt=fire.now() + HOUR)
    workers = [name for name in CRASHING if name.startswith("worker")]
    for worker in workers:
        fire.signal(worker, signal.SIGSTOP)
    with ThreadPoolExecutor() as threads:
        call = threads.submit(ann.post, "reservations/create", **asked)
        until(fire.open_drafts)
        fire.kill("web")
        for worker in workers:
            fire.signal(worker, signal.SIGCONT)
        assert call.exception(30) is not None
    until(lambda: fire.states_in(pool) == {"placed": 1})
    fire.run(CRASHING)
    again = made(ann.post("reservations/create", **asked))
    once = {"decisions": 1, "charges": 1, "charged": 1, "bookings": 1, "events": ["placed"]}
    assert fire.story_of(again["id"]) == {"state": "placed"} | once
