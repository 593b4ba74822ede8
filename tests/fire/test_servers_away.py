"""Redis and PostgreSQL go away and come back: calls say so, nothing is half done, and everything goes on by itself."""

import signal
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
import redis

from tests.fire.installation import ONE_OF_EACH, BurningInstallation
from tests.journeys.installation import Caller, until
from tests.support.world import HOUR, request

pytestmark = pytest.mark.slow

ONCE = {"state": "placed", "decisions": 1, "charges": 1, "charged": 1, "bookings": 1, "events": ["placed"]}


@pytest.fixture(autouse=True)
def _parts(fire: BurningInstallation) -> None:
    fire.run(ONE_OF_EACH)


@pytest.fixture
def ann(fire: BurningInstallation) -> Caller:
    return fire.caller("acme")


def made(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == 200, answer.text
    return dict(answer.json()["data"]["reservation"])


@pytest.mark.clause("API-7", "without the broker: UNAVAILABLE at once, nothing half done, the same key goes on later")
@pytest.mark.clause("CRE-20", "a draft that nobody can be woken for rests")
@pytest.mark.clause("REC-2", "what was due while Redis was away is done late, and as of its time")
@pytest.mark.clause("OPS-3", "Redis stopped and started: workers and beat come back by themselves")
def test_redis_is_stopped_for_a_while(fire: BurningInstallation, ann: Caller):
    pool, later = fire.pool(), fire.now() + HOUR
    placed = made(ann.post("reservations/create", **request(pool, 6, startsAt=later)))
    pending = made(ann.post("reservations/create", **request(pool, 6, startsAt=later)))
    ending = made(ann.post("reservations/create", **request(pool, 2, durationSeconds=2)))
    assert [one["state"] for one in (placed, pending, ending)] == ["placed", "pending", "placed"]
    fire.valkey.stop()

    asked = request(pool, 2, startsAt=later)
    started = time.monotonic()
    refused = ann.post("reservations/create", **asked)
    assert time.monotonic() - started < 6, "it waited for a worker that nobody can wake"
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "UNAVAILABLE")
    assert int(refused.headers["Retry-After"]) >= 1
    reservation_id = refused.json()["error"]["details"]["reservationId"]
    nothing = {"decisions": 0, "charges": 0, "charged": 0, "bookings": 0, "events": []}
    assert fire.story_of(reservation_id) == {"state": "draft"} | nothing
    assert fire.open_drafts() == 0
    # What needs no worker goes on.
    assert ann.state_of(placed["id"]) == "placed"
    assert made(ann.post("reservations/release", reservationId=placed["id"]))["state"] == "released"
    until(lambda: fire.now() > ending["endsAt"] + 500)

    fire.valkey.start()
    answer = until(lambda: ann.post("reservations/create", **asked), lambda a: a.status_code != 503, seconds=40)
    assert (made(answer)["id"], made(answer)["state"]) == (reservation_id, "placed")
    assert fire.story_of(reservation_id) == ONCE
    ended = ann.follow(ending["id"], "released")["reservation"]
    assert (ended["reason"], ended["releasedAt"]) == ("ended", ending["endsAt"])
    fire.wake("placement", "reservations.placement_tick")  # as beat does every 30 s
    ann.follow(pending["id"], "placed")


@pytest.mark.clause("OPS-3", "Redis emptied while work is due: the ticks find it")
@pytest.mark.clause("CRE-20", "the tick finishes drafts whose wake was lost")
def test_redis_is_emptied_while_work_is_due(fire: BurningInstallation, ann: Caller):
    pool = fire.pool()
    fire.signal("worker1", signal.SIGSTOP)
    with ThreadPoolExecutor() as threads:
        asked = [request(pool, startsAt=fire.now() + HOUR) for _ in range(6)]
        calls = [threads.submit(ann.post, "reservations/create", **one) for one in asked]
        until(lambda: fire.open_drafts() == 6)
        with redis.Redis.from_url(fire.valkey.url) as valkey:
            assert valkey.dbsize() > 0 or valkey.info("keyspace")
            valkey.flushall()
        fire.signal("worker1", signal.SIGCONT)
        answers = [made(call.result()) for call in calls]
    assert [fire.story_of(answer["id"]) for answer in answers] == [ONCE] * 6
    # And it goes on as if nothing had been.
    assert made(ann.post("reservations/create", **request(pool)))["state"] == "placed"


def kill(fire: BurningInstallation) -> None:
    fire.kill_server(fire.postgres)


def stop(fire: BurningInstallation) -> None:
    fire.postgres.stop()


def who_noticed(fire: BurningInstallation) -> tuple[int, int]:
    """How often the beat has missed its lock, and the web process its notifications: both have to come back."""
    return fire.log("beat").count('"beat_lock_unreachable"'), fire.log("web").count('"listen_connection_lost"')


def all_above(now: tuple[int, ...], before: tuple[int, ...]) -> bool:
    return all(one > other for one, other in zip(now, before, strict=True))


class Creator:
    """Creates one after the other until it is told to stop; each request is sent until it is answered well."""

    def __init__(self, caller: Caller, pool_id: str, starts_at: int, enough: threading.Event) -> None:
        self._caller, self._asked, self._enough = caller, (pool_id, starts_at), enough
        self.codes: Counter[int] = Counter()

    def run(self) -> list[str]:
        pool_id, starts_at = self._asked
        ids = []
        while not self._enough.is_set():
            ids.append(self.insist(request(pool_id, startsAt=starts_at)))
        return ids

    def insist(self, asked: dict[str, Any]) -> str:
        late = time.monotonic() + 40
        while (answer := self._caller.post("reservations/create", **asked)).status_code != 200:
            self.codes[answer.status_code] += 1
            assert_unavailable(answer)
            assert time.monotonic() < late, answer.text
            time.sleep(0.05)
        self.codes[200] += 1
        return str(made(answer)["id"])


def assert_unavailable(answer: httpx.Response) -> None:
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "UNAVAILABLE"), answer.text
    assert int(answer.headers["Retry-After"]) == answer.json()["error"]["retryAfterSeconds"] >= 1


@pytest.mark.clause("API-7", "PostgreSQL away while creates run: UNAVAILABLE, and the same key continues later")
@pytest.mark.clause("CRE-6", "each key once, however often it was sent to a database that came and went")
@pytest.mark.clause("OPS-3", "PostgreSQL stopped, and killed: web, workers and beat come back by themselves")
def test_postgresql_goes_and_comes_while_creates_run(fire: BurningInstallation):
    pool, starts_at, enough = fire.pool(gpus=64), fire.now() + HOUR, threading.Event()
    creators = [Creator(fire.caller("acme"), pool, starts_at, enough) for _ in range(4)]
    mine = Creator(fire.caller("globex"), pool, starts_at, enough)
    ids = []

    def wait_for_creates() -> None:
        seen = sum(creator.codes[200] for creator in creators)
        until(lambda: sum(creator.codes[200] for creator in creators) >= seen + 8, seconds=40)

    with ThreadPoolExecutor() as threads:
        running = [threads.submit(creator.run) for creator in creators]
        try:
            for away in (stop, kill):
                wait_for_creates()
                noticed = who_noticed(fire)
                away(fire)
                asked = request(pool, startsAt=starts_at)
                assert_unavailable(fire.caller("globex").post("reservations/create", **asked))
                until(lambda: all_above(who_noticed(fire), noticed))  # noqa: B023 - used at once
                fire.postgres.start()
                ids.append(mine.insist(asked))
            wait_for_creates()
        finally:
            enough.set()
        ids += [one for ids_of_one in running for one in ids_of_one.result()]
    assert set(sum((creator.codes for creator in creators), Counter())) <= {200, 503}
    assert fire.dead() == []
    assert len(set(ids)) == len(ids) == fire.states_in(pool).total()
    stories = [fire.story_of(one) for one in ids]
    assert {story["events"][0] for story in stories} <= {"placed", "pending"}
    assert {(story["charges"], story["charged"], len(story["events"])) for story in stories} == {(1, 1, 1)}
    assert_all_work(fire)


def assert_all_work(fire: BurningInstallation) -> None:
    """The web process hears NOTIFY again (a create is answered at once), ticks run, and events get their numbers."""
    ann, admin = fire.caller("acme"), fire.caller("acme", "admin")
    started = time.monotonic()
    answer = made(ann.post("reservations/create", **request(fire.pool(), startsAt=fire.now() + HOUR)))
    assert time.monotonic() - started < 5
    until(lambda: admin.types_of(answer["id"]) == ["placed"])
    numbers = [event["sequence"] for event in admin.events()]
    assert numbers == list(range(1, len(numbers) + 1))
    ticked = "SELECT min(last_at) FROM computeplatform_tick WHERE name IN ('admission', 'reconcile', 'events')"
    now = fire.now()
    until(lambda: fire.rows(ticked)[0][0] > now)
