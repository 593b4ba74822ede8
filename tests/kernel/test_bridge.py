"""Whole answers of a WSGI application, waits on its thread, and the worker's connection: what each call is spared."""

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from celery.fixups.django import DjangoWorkerFixup  # type: ignore[attr-defined]  # the stubs lack it
from django.db import connection, connections

from computeplatform.bridge import Bridge
from computeplatform.celery import app as celery_app
from computeplatform.celery import check_the_kept_connection
from computeplatform.parking import BriefWaits, Park, Resume, wait_briefly
from tests.kernel.test_parking import SOON, conninfo, listening, parked_world, run, until

__all__ = ["conninfo"]


def ask(application: Callable[..., Iterable[bytes]], body: bytes = b"") -> list[dict[str, Any]]:
    """What the server is told to send."""
    sent: list[dict[str, Any]] = []
    scope = {"type": "http", "method": "POST", "path": "/x", "query_string": b"a=1", "http_version": "1.1"}

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(dict(message))

    async def call() -> None:
        await Bridge(application, workers=1)(scope | {"headers": [(b"x-a", b"b")]}, receive, send)

    run(call())
    return sent


class Pieces:
    """An answer in pieces, which has to be closed."""

    closed = 0

    def __init__(self, *pieces: bytes | Exception) -> None:
        self._pieces = pieces

    def __iter__(self) -> Any:
        for piece in self._pieces:
            if isinstance(piece, Exception):
                raise piece
            yield piece

    def close(self) -> None:
        self.closed += 1


def test_an_answer_comes_as_a_whole():
    pieces = Pieces(b"one ", b"two")

    def application(environ: Any, start_response: Any) -> Any:
        assert (environ["REQUEST_METHOD"], environ["QUERY_STRING"], environ["HTTP_X_A"]) == ("POST", "a=1", "b")
        assert environ["wsgi.input"].read() == b"asked"
        start_response("201 Created", [("X-Said", "yes")])
        return pieces

    assert ask(application, b"asked") == [
        {"type": "http.response.start", "status": 201, "headers": [(b"x-said", b"yes")]},
        {"type": "http.response.body", "body": b"one two"},
    ]
    assert pieces.closed == 1


def test_a_fault_in_the_middle_of_an_answer_sends_nothing_of_it():
    pieces = Pieces(b"one", LookupError("broken"))

    def application(_: Any, start_response: Any) -> Any:
        start_response("200 OK", [])
        return pieces

    with pytest.raises(LookupError):
        ask(application)
    assert pieces.closed == 1


@pytest.mark.clause("CRE-15", "an outcome that comes within moments needs no second look")
def test_a_thread_waits_itself_for_what_comes_soon(conninfo: str):
    async def story() -> None:
        async with parked_world(conninfo) as (hub, wire):
            await listening(hub)
            brief = BriefWaits(hub, 1)
            brief.serve()
            environ: dict[str, Any] = {"asgi.scope": {"compute.brief": brief}}
            waiting = asyncio.create_task(
                asyncio.to_thread(brief.wait, "k", since=time.monotonic(), timeout=SOON)
            )  # fmt: skip
            await until(lambda: hub.parked == 1)
            # The only thread that may wait does; the next call is parked.
            assert wait_briefly(environ, Park("k", 60), since=time.monotonic()) is None
            await wire.notify("k")
            assert await waiting is True
            since = time.monotonic()
            await wire.notify("other")
            await until(lambda: hub._seen.get("other", 0) >= since)
            # What was notified while the view looked is not waited for.
            found = await asyncio.to_thread(wait_briefly, environ, Park("other", 60, note="n"), since=since)
            assert found == Resume(expired=False, note="n")
            assert await asyncio.to_thread(wait_briefly, environ, Park("none", 0.01), since=time.monotonic()) is None
            assert hub.parked == 0

    run(story())


def test_without_the_wrapper_nobody_waits():
    assert wait_briefly({}, Park("k", 60), since=0.0) is None


class Task:
    """As far as the signals look at it."""

    class request:  # noqa: N801 - Celery's name
        is_eager = False


@pytest.mark.django_db(transaction=True)
def test_a_worker_keeps_its_connection_and_replaces_a_broken_one():
    fixup = DjangoWorkerFixup(celery_app)
    connection.ensure_connection()
    before = connection.connection.info.backend_pid
    fixup.on_task_prerun(sender=Task)
    fixup.on_task_postrun(sender=Task)
    check_the_kept_connection(task=Task)
    connection.ensure_connection()
    assert connection.connection.info.backend_pid == before
    other = connections["default"].copy()
    with other.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", [before])
    other.close()
    check_the_kept_connection(task=Task)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        assert cursor.fetchone()[0] != before
