"""Calls that wait: one LISTEN connection, no thread each, no wake lost. Real PostgreSQL, a small ASGI application."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from django.conf import settings
from psycopg.conninfo import make_conninfo

from computeplatform import parking
from computeplatform.parking import CHANNEL, WAIT_HEADER, Hub, ParkingLot, Resume
from tests.support.world import World, request

pytestmark = pytest.mark.clause("CRE-14", "a waiting call holds no thread")

LONG = 60.0  # what a wake that is lost would cost
SOON = 5.0  # what an answer may take on a busy machine


@pytest.fixture
def conninfo(django_db_setup: None) -> str:
    database = settings.DATABASES["default"]
    names = {"host": "HOST", "port": "PORT", "user": "USER", "password": "PASSWORD", "dbname": "NAME"}
    return make_conninfo(**{k: database[v] for k, v in names.items() if database[v]}, application_name="test-hub")


def run(body: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await body

    asyncio.run(bounded())


@dataclass
class Till:
    """An application that answers 200 once it is open, or the time is up, and asks to wait until then."""

    key: str = "k"
    seconds: float = LONG
    note: str = ""
    opened: bool = False
    looks: list[tuple[dict[str, Any], bytes, Resume | None]] = field(default_factory=list)
    # What happens between a look at what is stored and the answer that asks to wait.
    meanwhile: Callable[[], Awaitable[None]] | None = None
    header: bytes = WAIT_HEADER.encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            while (await receive())["type"] != f"{scope['type']}.shutdown":
                pass
            await send({"type": f"{scope['type']}.shutdown.complete"})
            return
        message = await receive()
        assert message["more_body"] is False
        resume = scope["compute.resume"]
        self.looks.append((dict(scope), message["body"], resume))
        ready = self.opened or (resume is not None and resume.expired)
        if not ready and self.meanwhile:
            await self.meanwhile()
        headers = [(b"content-type", b"application/json"), (b"x-request-id", f"look-{len(self.looks)}".encode())]
        if not ready:
            headers.append((self.header, f"{self.key};{self.seconds:.3f};{self.note}".encode()))
        await send({"type": "http.response.start", "status": 200 if ready else 202, "headers": headers})
        await send({"type": "http.response.body", "body": b"inner", "more_body": False})

    @property
    def resumes(self) -> list[Resume | None]:
        return [resume for _, _, resume in self.looks]

    def headers(self, look: int) -> dict[bytes, bytes]:
        return dict(self.looks[look][0]["headers"])


@dataclass
class Client:
    """The server's side of one call."""

    chunks: tuple[bytes, ...] = (b'{"a": 1}',)
    headers: tuple[tuple[bytes, bytes], ...] = ((b"content-type", b"application/json"),)
    breaks_off: bool = False
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    sent: list[dict[str, Any]] = field(default_factory=list)
    seen: list[int] = field(default_factory=list)

    async def call(self, app: Any) -> "Client":
        left = list(self.chunks)

        async def receive() -> dict[str, Any]:
            if left:
                chunk = left.pop(0)
                return {"type": "http.request", "body": chunk, "more_body": bool(left) or self.breaks_off}
            if not self.breaks_off:
                await self.gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            self.sent.append(dict(message))

        await app({"type": "http", "method": "POST", "headers": list(self.headers)}, receive, send)
        return self

    @property
    def status(self) -> int | None:
        return self.sent[0]["status"] if self.sent else None

    @property
    def got(self) -> set[bytes]:
        return {name.lower() for name, _ in self.sent[0]["headers"]}


class Wire:
    """A connection that notifies, looks at the others, and ends them."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._connection = connection

    async def notify(self, *keys: str) -> None:
        await self._connection.execute("SELECT pg_notify(%s, k) FROM unnest(%s::text[]) AS k", [CHANNEL, list(keys)])

    async def end_listeners(self) -> int:
        ended = await self._connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'test-hub' AND datname = current_database() AND pid <> pg_backend_pid()"
        )
        return len(await ended.fetchall())

    async def listeners(self) -> int:
        found = await self._connection.execute(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE application_name = 'test-hub' AND datname = current_database() AND query LIKE 'LISTEN%%'"
        )
        row = await found.fetchone()
        assert row
        return int(row[0])


@asynccontextmanager
async def parked_world(conninfo: str) -> AsyncIterator[tuple[Hub, Wire]]:
    hub = Hub(conninfo)
    async with await psycopg.AsyncConnection.connect(
        make_conninfo(conninfo, application_name="test-wire"), autocommit=True
    ) as connection:
        try:
            yield hub, Wire(connection)
        finally:
            await hub.close()


async def until(true: Callable[[], bool | Awaitable[bool]]) -> None:
    """Look again until it is so; the test's own limit ends it otherwise."""
    while True:
        found = true()
        if found if isinstance(found, bool) else await found:
            return
        await asyncio.sleep(0.005)


async def listening(hub: Hub) -> None:
    """A wait is over as soon as the hub listens: everybody looks again then."""
    assert await hub.wait("nobody", since=time.monotonic(), timeout=SOON)


async def finished(task: "asyncio.Task[Client]") -> Client:
    return await asyncio.wait_for(task, SOON)


def test_a_call_is_parked_and_answered_when_its_key_is_notified(conninfo: str):
    async def story() -> None:
        async with parked_world(conninfo) as (hub, wire):
            till = Till(note="first;look")
            await listening(hub)
            call = asyncio.create_task(Client().call(ParkingLot(till, hub)))
            await until(lambda: hub.parked == 1)
            await wire.notify("another")
            assert len(till.looks) == 1
            till.opened = True
            await wire.notify("k")
            client = await finished(call)
            assert client.status == 200
            assert till.resumes == [None, Resume(expired=False, note="first;look")]
            assert [body for _, body, _ in till.looks] == [b'{"a": 1}'] * 2
            assert hub.parked == 0

    run(story())


def test_the_header_that_asks_to_wait_never_reaches_a_client(conninfo: str):
    async def story() -> None:
        async with parked_world(conninfo) as (hub, _):
            for header in (b"X-Wait-On", b"x-wait-on", b"X-WAIT-ON"):
                till = Till(seconds=0.02, header=header)
                client = await Client().call(ParkingLot(till, hub))
                assert client.status == 200
                assert WAIT_HEADER.lower().encode() not in client.got
                assert [m["type"] for m in client.sent] == ["http.response.start", "http.response.body"]

    run(story())


def test_what_needs_no_wait_passes_at_once(conninfo: str):
    async def story() -> None:
        async with parked_world(conninfo) as (hub, _):
            till = Till(opened=True)
            assert (await Client().call(ParkingLot(till, hub))).status == 200
            assert till.resumes == [None]

    run(story())


def test_an_answer_of_known_length_ends_in_one_piece_and_a_stream_is_passed_on_as_it_comes(conninfo: str):
    """Were the client to have all before the thread has said its last, a server that stops could leave the thread."""

    def answering(length: bytes | None, pieces: list[bytes]) -> tuple[Client, Any]:
        client = Client()

        async def app(_: Any, receive: Any, send: Any) -> None:
            await receive()
            headers = [] if length is None else [(b"Content-Length", length)]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            for piece in pieces:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
                client.seen.append(sum(len(m.get("body", b"")) for m in client.sent))
            await send({"type": "http.response.body", "body": b""})

        return client, app

    async def story() -> None:
        async with parked_world(conninfo) as (hub, _):
            for length, pieces, seen in (
                (b"5", [b"inner"], [0]),
                (b"5", [b"in", b"", b"ner"], [2, 2, 2]),
                (b"0", [], []),
                (b"9", [], []),  # as HEAD answers
                (None, [b"a", b"b"], [1, 2]),
            ):
                client, app = answering(length, pieces)
                await client.call(ParkingLot(app, hub))
                assert client.seen == seen
                assert b"".join(m.get("body", b"") for m in client.sent) == b"".join(pieces)
                assert [m.get("more_body", False) for m in client.sent][-1] is False

    run(story())


# --- No wake is lost ------------------------------------------------------------------------------


def test_a_wake_between_commit_and_parking_is_not_lost(conninfo: str):
    async def story() -> None:
        async with parked_world(conninfo) as (hub, wire):
            await listening(hub)

            async def commit_elsewhere() -> None:
                till.opened = True
                heard = asyncio.create_task(hub.wait("k", since=time.monotonic(), timeout=SOON))
                await until(lambda: hub.parked == 1)
                await wire.notify("k")
                assert await heard

            till = Till(meanwhile=commit_elsewhere)
            await asyncio.wait_for(Client().call(ParkingLot(till, hub)), SOON)
            assert till.resumes == [None, Resume(expired=False)]

    run(story())


def test_a_wake_before_anybody_listens_is_not_lost(conninfo: str):
    async def story() -> None:
        async with parked_world(conninfo) as (hub, wire):

            async def commit_elsewhere() -> None:
                till.opened = True
                await wire.notify("k")

            till = Till(meanwhile=commit_elsewhere)
            await asyncio.wait_for(Client().call(ParkingLot(till, hub)), SOON)
            assert till.resumes == [None, Resume(expired=False)]

    run(story())


def test_a_wake_while_the_connection_was_lost_is_not_lost_for_who_parks_after_it_is_back(conninfo: str):
    async def story() -> None:
        async with parked_world(conninfo) as (hub, wire):
            await listening(hub)

            async def lose_and_restore() -> None:
                till.opened = True
                waiting = asyncio.create_task(hub.wait("bystander", since=time.monotonic(), timeout=SOON))
                await until(lambda: hub.parked == 1)
                assert await wire.end_listeners() == 1
                await wire.notify("k")
                assert await waiting  # it listens again

            till = Till(meanwhile=lose_and_restore)
            await asyncio.wait_for(Client().call(ParkingLot(till, hub)), SOON)
            assert till.resumes == [None, Resume(expired=False)]

    run(story())


def test_a_connection_that_is_lost_and_restored_wakes_everybody(conninfo: str):
    async def story() -> None:
        async with parked_world(conninfo) as (hub, wire):
            await listening(hub)
            tills = [Till(key=f"k{n}") for n in range(5)]
            calls = [asyncio.create_task(Client().call(ParkingLot(till, hub))) for till in tills]
            await until(lambda: hub.parked == 5)
            for till in tills[:3]:
                till.opened = True
            assert await wire.end_listeners() == 1
            for call in calls[:3]:
                await finished(call)
            # The others have looked again and wait on, on the new connection.
            await until(lambda: all(len(till.looks) == 2 for till in tills) and hub.parked == 2)
            assert await wire.listeners() == 1
            for till in tills[3:]:
                till.opened = True
            await wire.notify("k3", "k4")
            for call in calls[3:]:
                await finished(call)

    run(story())


def test_what_the_hub_no_longer_remembers_counts_as_a_wake(conninfo: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(parking, "_REMEMBERED", 3)

    async def story() -> None:
        async with parked_world(conninfo) as (hub, wire):
            await listening(hub)
            looked = time.monotonic()
            await wire.notify("k")
            await wire.notify(*(f"other{n}" for n in range(5)))
            assert await hub.wait("other4", since=looked, timeout=SOON)
            assert await hub.wait("k", since=looked, timeout=LONG)
            assert not await hub.wait("k", since=time.monotonic(), timeout=0.02)

    run(story())


def test_a_wake_of_long_ago_wakes_nobody(conninfo: str):
    async def story() -> None:
        async with parked_world(conninfo) as (hub, wire):
            await listening(hub)
            heard = asyncio.create_task(hub.wait("k", since=time.monotonic(), timeout=SOON))
            await until(lambda: hub.parked == 1)
            await wire.notify("k")
            assert await heard
            assert not await hub.wait("k", since=time.monotonic(), timeout=0.05)

    run(story())


# --- Time -----------------------------------------------------------------------------------------


def test_a_call_whose_time_is_up_is_looked_at_once_more(conninfo: str):
    async def story() -> None:
        async with parked_world(conninfo) as (hub, _):
            await listening(hub)
            till = Till(seconds=0.15, note="n")
            began = time.monotonic()
            client = await Client().call(ParkingLot(till, hub))
            assert 0.15 <= time.monotonic() - began < SOON
            assert client.status == 200
            assert till.resumes == [None, Resume(expired=True, note="n")]

    run(story())


def test_the_time_counts_from_the_calls_arrival_however_often_it_is_woken(conninfo: str):
    async def story() -> None:
        async with parked_world(conninfo) as (hub, wire):
            await listening(hub)
            till = Till(seconds=0.3)
            began = time.monotonic()
            call = asyncio.create_task(Client().call(ParkingLot(till, hub)))
            while not call.done():
                await wire.notify("k")
                await asyncio.sleep(0.03)
            assert 0.3 <= time.monotonic() - began < SOON
            assert len(till.looks) > 3
            assert [r.expired for r in till.resumes[1:] if r] == [False] * (len(till.looks) - 2) + [True]

    run(story())


# --- The client -----------------------------------------------------------------------------------


def test_a_client_that_goes_away_is_not_looked_at_again(conninfo: str):
    async def story() -> None:
        async with parked_world(conninfo) as (hub, wire):
            await listening(hub)
            till, client = Till(), Client()
            call = asyncio.create_task(client.call(ParkingLot(till, hub)))
            await until(lambda: hub.parked == 1)
            client.gone.set()
            await finished(call)
            await until(lambda: hub.parked == 0)
            await wire.notify("k")
            assert (client.sent, len(till.looks)) == ([], 1)

    run(story())


def test_half_a_request_is_not_served(conninfo: str):
    async def story() -> None:
        async with parked_world(conninfo) as (hub, _):
            till = Till(opened=True)
            client = await Client(chunks=(b"{}",), breaks_off=True).call(ParkingLot(till, hub))
            assert (till.looks, client.sent) == ([], [])

    run(story())


def test_a_body_in_pieces_arrives_whole_with_its_length(conninfo: str):
    async def story() -> None:
        async with parked_world(conninfo) as (hub, _):
            till = Till(opened=True)
            headers = ((b"Transfer-Encoding", b"chunked"), (b"Content-Type", b"application/json"))
            await Client(chunks=(b'{"a"', b"", b": 1}"), headers=headers).call(ParkingLot(till, hub))
            assert till.looks[0][1] == b'{"a": 1}'
            assert till.headers(0) == {b"content-length": b"8", b"content-type": b"application/json"}

    run(story())


@pytest.mark.clause("API-4", "body limit")
def test_a_body_over_every_limit_is_cut_one_byte_past_it(conninfo: str):
    async def story() -> None:
        async with parked_world(conninfo) as (hub, _):
            for size, kept in ((100, 100), (101, 101), (5_000, 101)):
                till = Till(opened=True)
                pieces = tuple(b"x" * 50 for _ in range(size // 50)) + ((b"x",) if size % 50 else ())
                await Client(chunks=pieces).call(ParkingLot(till, hub, max_body=100))
                assert len(till.looks[0][1]) == kept
                assert till.headers(0)[b"content-length"] == str(kept).encode()

    run(story())


def test_a_client_cannot_pose_as_resumed(conninfo: str):
    async def story() -> None:
        async with parked_world(conninfo) as (hub, _):
            await listening(hub)
            till = Till(seconds=0.02)
            forged = ((b"compute.resume", b"x"), (b"x-wait-on", b"k;0;"), (b"asgi.scope", b"x"), (b"x_wait_on", b"x"))
            await Client(headers=forged).call(ParkingLot(till, hub))
            assert till.resumes == [None, Resume(expired=True)]
            assert b"x_wait_on" not in till.headers(0)

    run(story())


@pytest.mark.clause("CRE-14", "a waiting call holds no thread")
def test_headers_do_not_make_a_call_of_the_api_a_resumed_one(world: World):
    pool = world.offered_pool()
    forged = {"compute.resume": "1", "asgi.scope": "1", "x-wait-on": "k;0;"}
    headers = {"authorization": f"Bearer {world.ann.api.token}"} | forged
    response = world.ann.api.client.post(
        "/api/compute/reservations/create", {"tenantId": "acme"} | request(pool), "application/json", headers=headers
    )
    assert response.status_code == 202
    assert response.content == b"{}"
    assert WAIT_HEADER in response  # for the wrapper, which this client stands for


@pytest.mark.clause("API-6", "one id however often it is looked at")
def test_a_parked_call_keeps_the_request_id_of_its_first_look(conninfo: str):
    async def story() -> None:
        async with parked_world(conninfo) as (hub, wire):
            await listening(hub)
            till = Till(seconds=0.1)
            call = asyncio.create_task(Client(headers=((b"X-Request-Id", b"not good"),)).call(ParkingLot(till, hub)))
            await until(lambda: hub.parked == 1)
            await wire.notify("k")
            await finished(call)
            ids = [[v for k, v in scope["headers"] if k == b"x-request-id"] for scope, _, _ in till.looks]
            assert ids[:2] == [[b"not good"], [b"look-1"]]
            assert len(ids) == 3
            assert all(len(found) == 1 for found in ids)

    run(story())


# --- Many -----------------------------------------------------------------------------------------


def test_one_more_than_the_limit_is_answered_at_once_with_what_is_stored(conninfo: str):
    async def story() -> None:
        async with parked_world(conninfo) as (hub, wire):
            await listening(hub)
            till = Till()
            lot = ParkingLot(till, hub, limit=2)
            calls = [asyncio.create_task(Client().call(lot)) for _ in range(2)]
            await until(lambda: hub.parked == 2)
            late = await asyncio.wait_for(Client().call(lot), SOON)
            assert late.status == 200
            assert till.resumes[-1] == Resume(expired=True)
            assert hub.parked == 2
            till.opened = True
            await wire.notify("k")
            assert [(await finished(call)).status for call in calls] == [200, 200]

    run(story())


def test_two_hundred_are_parked_on_one_connection_while_others_are_answered(conninfo: str):
    async def story() -> None:
        async with parked_world(conninfo) as (hub, wire):
            await listening(hub)
            tills = [Till(key=f"k{n % 50}") for n in range(200)]
            calls = [asyncio.create_task(Client().call(ParkingLot(till, hub))) for till in tills]
            await until(lambda: hub.parked == 200)
            began = time.monotonic()
            for _ in range(50):
                assert (await Client().call(ParkingLot(Till(opened=True), hub))).status == 200
            assert time.monotonic() - began < SOON
            assert await wire.listeners() == 1
            for till in tills:
                till.opened = True
            await wire.notify(*(f"k{n}" for n in range(50)))
            answered = await asyncio.wait_for(asyncio.gather(*calls), SOON)
            assert {client.status for client in answered} == {200}
            assert {len(till.looks) for till in tills} == {2}
            assert hub.parked == 0

    run(story())


# --- The end --------------------------------------------------------------------------------------


def test_a_shutdown_answers_everybody_and_leaves_no_connection(conninfo: str):
    async def story() -> None:
        async with parked_world(conninfo) as (hub, wire):
            await listening(hub)
            till = Till()
            lot = ParkingLot(till, hub)
            calls = [asyncio.create_task(Client().call(lot)) for _ in range(3)]
            await until(lambda: hub.parked == 3)
            said: list[Any] = []

            async def receive() -> dict[str, Any]:
                return {"type": "lifespan.shutdown"}

            async def send(message: Any) -> None:
                said.append(message)

            await lot({"type": "lifespan"}, receive, send)
            assert said == [{"type": "lifespan.shutdown.complete"}]
            assert [(await finished(call)).status for call in calls] == [200] * 3
            assert till.resumes[3:] == [Resume(expired=True)] * 3
            # Who comes after it is answered too, and nothing is started for it.
            assert (await asyncio.wait_for(Client().call(lot), SOON)).status == 200

            async def nobody_listens() -> bool:
                return await wire.listeners() == 0

            await asyncio.wait_for(until(nobody_listens), SOON)

    run(story())


def test_a_database_that_is_away_costs_the_time_of_the_call_and_no_more(conninfo: str):
    async def story() -> None:
        hub = Hub(make_conninfo(conninfo, port="1"))
        till = Till(seconds=0.1)
        client = await asyncio.wait_for(Client().call(ParkingLot(till, hub)), SOON)
        assert (client.status, till.resumes[-1]) == (200, Resume(expired=True))
        await hub.close()

    run(story())
