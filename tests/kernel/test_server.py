"""The web process as it runs: granian, the parking wrapper, Django in threads; what only the whole can show."""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import httpx
import pytest
from django.conf import settings

from computeplatform.launch import processes
from tests.kernel.conftest import count, rows, session
from tests.support.api import admit_all
from tests.support.world import World, request

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]

CREATE = "/api/compute/reservations/create"
WHOAMI = "/api/iam/session/whoami"
# Fewer than the calls that wait in the tests: were one of them to hold a thread, nothing else would be answered.
THREADS = 3


def listening_hubs() -> int:
    """Web processes of this database that listen."""
    hubs = "application_name = 'compute-hub' AND datname = current_database()"
    return int(rows(f"SELECT count(*) FROM pg_stat_activity WHERE {hubs}")[0][0])


@dataclass
class Web:
    """A web process and how to call it."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    def post(self, path: str, token: str = "", *, headers: dict[str, str] | None = None, **sent: Any) -> httpx.Response:
        given = ({"Authorization": f"Bearer {token}"} if token else {}) | (headers or {})
        return httpx.post(f"http://127.0.0.1:{self.port}{path}", headers=given, timeout=30, trust_env=False, **sent)

    def get(self, path: str) -> httpx.Response:
        return httpx.get(f"http://127.0.0.1:{self.port}{path}", timeout=30, trust_env=False)


@contextlib.contextmanager
def web_process(folder: Path) -> Iterator[Web]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    database = settings.DATABASES["default"]
    environment = os.environ | {
        "DATABASE_URL": urlunsplit(urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{quote(database['NAME'])}")),
        "REDIS_URL": settings.REDIS_URL,
        "DJANGO_SETTINGS_MODULE": "computeplatform.settings",
        "WEB_THREADS": str(THREADS),
    }
    command = processes(Namespace(workers=0, nodes=0), folder, port)["web"]
    log = folder / "web.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output, cwd=settings.BASE_DIR)
    web = Web(process, port, log)
    try:
        eventually(lambda: _answers(web), seconds=30)
        yield web
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _answers(web: Web) -> bool:
    assert web.process.poll() is None, web.log.read_text()
    try:
        return web.get("/healthz").status_code == 200
    except httpx.TransportError:
        return False


def eventually(true: Callable[[], bool], *, seconds: float = 15) -> None:
    late = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < late
        time.sleep(0.01)


@pytest.fixture(scope="module")
def web(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    with web_process(tmp_path_factory.mktemp("web")) as running:
        yield running


class Posting(threading.Thread):
    """A call that may wait, in a thread of its own."""

    def __init__(self, web: Web, path: str, token: str, body: dict[str, Any], **headers: str) -> None:
        super().__init__()
        self._call = lambda: web.post(path, token, json=body, headers=headers)
        self.answer: httpx.Response | None = None
        self.start()

    def run(self) -> None:
        self.answer = self._call()

    def answered(self) -> httpx.Response:
        self.join(30)
        assert self.answer is not None
        return self.answer


def drafts() -> int:
    return int(rows("SELECT count(*) FROM reservations_reservation WHERE state = 'draft'")[0][0])


@pytest.mark.clause("CRE-14", "a waiting call holds no thread")
@pytest.mark.clause("API-6", "one id however often it is looked at")
def test_calls_wait_without_a_thread_while_others_are_answered(world: World, web: Web):
    pool = world.offered_pool()
    waiting = [
        Posting(web, CREATE, world.ann.api.token, {"tenantId": "acme"} | request(pool)) for _ in range(4 * THREADS)
    ]
    eventually(lambda: drafts() == len(waiting))
    for _ in range(5):
        assert web.post(WHOAMI, world.ann.api.token, json={}).status_code == 200
    assert all(one.answer is None for one in waiting)
    admit_all()
    for one in waiting:
        answer = one.answered()
        assert answer.status_code == 200, answer.text
        assert "x-wait-on" not in answer.headers
        reservation = answer.json()["data"]["reservation"]
        asked = rows("SELECT DISTINCT request_id FROM computeplatform_event WHERE subject_id = %s", reservation["id"])
        assert asked == [(answer.headers["x-request-id"],)]
    assert listening_hubs() == 1


@pytest.mark.clause("CRE-14", "a waiting call holds no thread")
def test_a_client_that_leaves_takes_nothing_with_it(world: World, web: Web):
    pool = world.offered_pool()
    for number in range(1, 2 * THREADS + 1):
        body = json.dumps({"tenantId": "acme"} | request(pool)).encode()
        head = f"POST {CREATE} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {world.ann.api.token}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", web.port)) as leaving:
            leaving.sendall(head.encode() + body)
            eventually(lambda number=number: drafts() == number)  # type: ignore[misc]
    assert web.post(WHOAMI, world.ann.api.token, json={}).status_code == 200
    admit_all()
    assert drafts() == 0
    assert web.post(WHOAMI, world.ann.api.token, json={}).status_code == 200


@pytest.mark.clause("API-1", "one JSON object in")
def test_a_body_without_a_length_is_read(world: World, web: Web):
    def pieces() -> Iterator[bytes]:
        yield b'{"tenantId": '
        yield b'"acme", "limit": 0}'

    answer = web.post(
        "/api/compute/pools/list",
        world.ann.api.token,
        content=pieces(),
        headers={"Content-Type": "application/json"},
    )
    assert answer.request.headers["transfer-encoding"] == "chunked"
    assert [issue["path"] for issue in answer.json()["error"]["details"]["issues"]] == ["limit"]


@pytest.mark.clause("API-4", "body limit")
def test_bodies_over_the_limit_are_refused_whatever_their_framing(world: World, web: Web):
    for size in (64 * 1024 + 1, 3 * 1024 * 1024):
        for content in (b"x" * size, iter([b"x" * size])):
            answer = web.post(
                "/api/compute/pools/list",
                world.ann.api.token,
                content=content,
                headers={"Content-Type": "application/json"},
            )
            assert (answer.status_code, answer.json()["error"]["code"]) == (413, "PAYLOAD_TOO_LARGE")


@pytest.mark.clause("API-7", "nothing of the inside")
@pytest.mark.parametrize(
    "target",
    ["/api/nope?x=%ff", "/api/%ff%fe", "/api/iam/session/whoami?\xc3\xa9", "//api/iam/session/whoami", "/api/../x"],
)
def test_an_odd_address_is_refused_and_not_a_fault(web: Web, target: str):
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", web.port, timeout=10)) as connection:
        connection._encode_request = lambda text: text.encode("latin-1")  # type: ignore[attr-defined]
        connection._validate_path = lambda _: None  # type: ignore[attr-defined]
        connection.request("POST", target, body=b"{}", headers={"Content-Type": "application/json"})
        answer = connection.getresponse()
        assert answer.status in (400, 401, 404)
        answer.read()
    assert web.get("/healthz").status_code == 200


@contextlib.contextmanager
def database_away() -> Iterator[None]:
    """Nobody is let in, and whoever is in is put out, but for us."""
    name = settings.DATABASES["default"]["NAME"]
    mine = rows("SELECT pg_backend_pid()")[0][0]
    with session(dbname="postgres") as other:
        try:
            other.execute(f'ALTER DATABASE "{name}" WITH ALLOW_CONNECTIONS false')
            other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND pid <> %s", [name, mine]
            )
            yield
        finally:
            other.execute(f'ALTER DATABASE "{name}" WITH ALLOW_CONNECTIONS true')


@pytest.mark.clause("API-7", "database away: nothing half-done, the same key continues later")
@pytest.mark.clause("API-9", "readyz: database")
def test_while_the_database_is_away_calls_are_unavailable_and_go_on_when_it_is_back(world: World, web: Web):
    pool = {"tenantId": "platform", "name": "p", "region": "eu", "gpuModel": "h100", "deviceClass": "gpu"}
    keyed, token = pool | {"idempotencyKey": "k"}, world.admin.token
    with database_away():
        for _ in range(2):
            answer = web.post("/api/compute/pools/create", token, json=keyed)
            error = answer.json()["error"]
            assert (answer.status_code, error["code"]) == (503, "UNAVAILABLE")
            assert answer.headers["retry-after"] == str(error["retryAfterSeconds"])
            assert "connection" not in error["message"]
            assert answer.headers["x-request-id"] == error["requestId"]
        ready = web.get("/readyz")
        assert (ready.status_code, ready.json()["checks"]["broker"]) == (503, "ok")
        assert ready.json()["checks"]["database"].startswith("failed")
        assert web.get("/healthz").status_code == 200
        assert web.get("/metrics").status_code == 200
        assert web.get("/api/openapi.json").status_code == 200
    assert count("fleet_pool") == 0
    made = web.post("/api/compute/pools/create", token, json=keyed)
    assert made.status_code == 200
    assert web.post("/api/compute/pools/create", token, json=keyed).json() == made.json()
    assert count("fleet_pool") == 1


@pytest.mark.clause("API-2", "no cookie")
def test_a_cookie_does_not_matter_even_when_the_database_is_away(world: World, web: Web):
    cookie = {"Cookie": "sessionid=abcdefghijklmnopqrstuvwxyz012345"}
    with database_away():
        refused = web.post(WHOAMI, json={}, headers=cookie)
        assert (refused.status_code, refused.json()["error"]["code"]) == (401, "UNAUTHENTICATED")


@pytest.mark.clause("API-7", "database away: nothing half-done, the same key continues later")
def test_calls_that_waited_while_the_database_was_away_are_answered_when_it_is_back(world: World, web: Web):
    pool = world.offered_pool()
    waiting = Posting(web, CREATE, world.ann.api.token, {"tenantId": "acme"} | request(pool))
    eventually(lambda: drafts() == 1)
    with database_away():
        admit_all()  # its NOTIFY is heard by nobody
    answer = waiting.answered()
    # Either it was still parked and looked again, or its look met the closed door and it is to come again.
    assert answer.status_code in (200, 503)
    assert answer.elapsed.total_seconds() < 8


@pytest.mark.clause("CRE-18", "a shutdown answers what waits")
def test_a_stopped_process_answers_what_waits_and_ends(world: World, tmp_path: Path):
    pool = world.offered_pool()
    body = {"tenantId": "acme"} | request(pool)
    with web_process(tmp_path) as own:
        waiting = Posting(own, CREATE, world.ann.api.token, body)
        eventually(lambda: drafts() == 1)
        began = time.monotonic()
        own.process.send_signal(signal.SIGTERM)
        answer = waiting.answered()
        own.process.wait(15)
        assert time.monotonic() - began < 8
    assert answer.json()["error"]["code"] == "UNAVAILABLE"
    assert answer.json()["error"]["retryAfterSeconds"] >= 1
    admit_all()
    assert listening_hubs() in (0, 1)
