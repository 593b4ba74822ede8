"""Calls that wait without a thread or a connection each.

A view that must wait raises Park. The answer then carries an inner header that the ASGI wrapper swallows: it parks
the call on one LISTEN connection for the whole process, and when the key is notified, or the time is up, sends the
same request through the view again, with a Resume beside it, so that everything is checked afresh.
"""

import asyncio
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass
from types import FrameType
from typing import Any
from urllib.parse import quote

import psycopg
import structlog

log = structlog.get_logger(__name__)

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

CHANNEL = "compute_waiters"
WAIT_HEADER = "X-Wait-On"
_INNER = WAIT_HEADER.lower().encode()
_REQUEST_ID = b"x-request-id"
_ASCII = bytes(range(128))
_RESUME = "compute.resume"
_BRIEF = "compute.brief"
# So long a thread waits itself before its call is parked: most admissions are done by then, and a second look, with
# all that it checks afresh, costs more than the thread.
BRIEF_SECONDS = 0.1
# Keys whose last NOTIFY is remembered, for calls that are between their commit and the parking.
_REMEMBERED = 10_000
_RECONNECT_SECONDS = 0.5

Headers = list[tuple[bytes, bytes]]


class Park(Exception):
    """Hold the call until ``key`` is notified, at most until ``seconds`` after the call arrived.

    ``note`` is handed back with the Resume: what the view wants to remember of its first look.
    """

    def __init__(self, key: str, seconds: float, note: str = "") -> None:
        super().__init__(key)
        self.key, self.seconds, self.note = key, seconds, note

    @property
    def header(self) -> str:
        """What the wrapper reads."""
        return f"{self.key};{self.seconds:.3f};{self.note}"


@dataclass(frozen=True)
class Resume:
    """A parked call that is looked at again. ``expired``: its time is up, so the view must answer now."""

    expired: bool
    note: str = ""


def resume_of(environ: MutableMapping[str, Any]) -> Resume | None:
    """What the wrapper says of this request; it travels in the ASGI scope, where no client can put it."""
    found = environ.get("asgi.scope", {}).get(_RESUME)
    return found if isinstance(found, Resume) else None


def wait_briefly(environ: MutableMapping[str, Any], park: Park, *, since: float) -> Resume | None:
    """Wait on this thread for what ``park`` waits for, if a thread can be spared; None if it has to be parked.

    ``since``: when the look began that found nothing yet (``time.monotonic()``).
    """
    brief = environ.get("asgi.scope", {}).get(_BRIEF)
    if isinstance(brief, BriefWaits) and brief.wait(park.key, since=since, timeout=min(park.seconds, BRIEF_SECONDS)):
        return Resume(expired=False, note=park.note)
    return None


class Hub:
    """Who waits for which key, fed by one LISTEN connection. Lives in one event loop."""

    def __init__(self, conninfo: str) -> None:
        self._conninfo = conninfo
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        self._parked = 0
        self._seen: dict[str, float] = {}  # key to when it was last notified, oldest first
        # Whoever looked before this may have missed a NOTIFY: nobody listened yet, or what was heard is forgotten.
        self._deaf_until = 0.0
        self._listener: asyncio.Task[None] | None = None
        self._forget_signals: Callable[[], None] = lambda: None
        self._closing = False

    @property
    def parked(self) -> int:
        """How many calls are parked."""
        return self._parked

    def start(self) -> None:
        """Begin to listen, unless it does already; called in the loop that will wait."""
        if self._closing:
            return
        if self._listener is None:
            self._forget_signals = _call_when_told_to_end(self.release)
        if self._listener is None or self._listener.done():
            self._listener = asyncio.get_running_loop().create_task(self._listen())

    def release(self) -> None:
        """Let every parked call look once more, and those that come: a shutdown answers them now."""
        self._closing = True
        self._wake_all()

    async def close(self) -> None:
        """Release everybody and stop listening."""
        self.release()
        self._forget_signals()
        if self._listener:
            self._listener.cancel()
            await asyncio.wait({self._listener}, timeout=1)

    async def wait(self, key: str, *, since: float, timeout: float) -> bool:
        """True when ``key`` may have been notified after ``since`` (``time.monotonic()``); False after ``timeout``
        seconds, and when the process is shutting down."""
        self.start()
        if not self._closing and max(self._seen.get(key, 0.0), self._deaf_until) >= since:
            return True
        if timeout <= 0 or self._closing:
            return False
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, set()).add(future)
        self._parked += 1
        try:
            await asyncio.wait_for(future, timeout)
        except TimeoutError:
            return False
        finally:
            self._parked -= 1
            self._waiting[key].discard(future)
            if not self._waiting[key]:
                del self._waiting[key]
        return not self._closing

    async def _listen(self) -> None:
        while True:
            try:
                async with await psycopg.AsyncConnection.connect(self._conninfo, autocommit=True) as connection:
                    await connection.execute(f"LISTEN {CHANNEL}")
                    # What was sent while nobody listened is lost, so everybody looks again: those who are parked now,
                    # and those who have looked already and are on their way here.
                    self._deaf_until = time.monotonic()
                    self._wake_all()
                    async for note in connection.notifies():
                        self._wake(note.payload)
            except (psycopg.Error, OSError) as error:
                log.warning("listen_connection_lost", error=str(error))
            await asyncio.sleep(_RECONNECT_SECONDS)

    def _wake(self, key: str) -> None:
        self._seen.pop(key, None)
        self._seen[key] = time.monotonic()
        if len(self._seen) > _REMEMBERED:
            self._deaf_until = max(self._deaf_until, self._seen.pop(next(iter(self._seen))))
        for future in self._waiting.get(key, ()):
            if not future.done():
                future.set_result(None)

    def _wake_all(self) -> None:
        for futures in self._waiting.values():
            for future in futures:
                if not future.done():
                    future.set_result(None)


def _call_when_told_to_end(told: Callable[[], None]) -> Callable[[], None]:
    """Have the running loop call ``told`` on a stop signal, beside what the server does then; returns the undoing.

    A server announces the shutdown to its application when the last call has been answered, so without this a stop
    would take as long as the longest wait. A signal that nobody handles yet is left alone: it ends the process.
    """
    loop = asyncio.get_running_loop()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    mine = threading.current_thread() is threading.main_thread()
    before = {number: handler for number, handler in handlers.items() if mine and callable(handler)}

    def handle(number: int, frame: FrameType | None) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(told)
        # One that the loop itself has set does nothing: the loop hears of the signal through its own pipe, as before.
        before[signal.Signals(number)](number, frame)

    def forget() -> None:
        for number, handler in before.items():
            if signal.getsignal(number) is handle:
                signal.signal(number, handler)

    for number in before:
        signal.signal(number, handle)
    return forget


@dataclass
class _Captured:
    """The first answer of an inner call: passed on at once, unless it asks to wait.

    The piece that completes the announced length is held until the message that ends the answer: with it the client
    has everything, and a server that stops would then leave the thread alone that is about to say it has ended.
    """

    send: Send
    park: str | None = None
    request_id: bytes = b""
    left: int | None = None
    held: bytes = b""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = {k.lower(): v for k, v in message["headers"]}
            if _INNER in headers:
                self.park = headers[_INNER].decode()
                self.request_id = headers.get(_REQUEST_ID, b"")
            self.left = int(headers[b"content-length"]) if b"content-length" in headers else None
        if self.park is not None:
            return
        if message["type"] == "http.response.body" and self.left is not None:
            self.held += message.get("body", b"")
            if message.get("more_body", False) and len(self.held) >= self.left:
                return
            self.left -= len(self.held)
            message, self.held = {**message, "body": self.held}, b""
        await self.send(message)


class BriefWaits:
    """Waits of threads, at most ``threads`` at once: the others have to serve those who need not wait."""

    def __init__(self, hub: Hub, threads: int) -> None:
        self._hub = hub
        self._free = threading.BoundedSemaphore(threads) if threads else None
        self._loop: asyncio.AbstractEventLoop | None = None

    def serve(self) -> None:
        """Called in the loop whose hub it is."""
        self._loop = asyncio.get_running_loop()

    def wait(self, key: str, *, since: float, timeout: float) -> bool:
        """As ``Hub.wait``, from another thread; False also when no thread can be spared."""
        if self._loop is None or self._free is None or not self._free.acquire(blocking=False):
            return False
        try:
            waiting = self._hub.wait(key, since=since, timeout=timeout)
            return asyncio.run_coroutine_threadsafe(waiting, self._loop).result()
        finally:
            self._free.release()


class ParkingLot:
    """The ASGI wrapper around the synchronous application.

    ``limit``: calls parked at once in this process; one more is sent back at once as expired, so it answers with
    what is stored instead of holding a socket. ``brief``: threads that may wait themselves for a moment.
    """

    def __init__(self, app: App, hub: Hub, *, limit: int = 2_000, max_body: int = 1024 * 1024, brief: int = 0) -> None:
        self._app = app
        self._hub = hub
        self._brief = BriefWaits(hub, brief)
        self._limit = limit
        self._max_body = max_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, self._noticing_shutdown(receive), send)
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        self._hub.start()
        self._brief.serve()
        arrived = time.monotonic()
        body = await self._read(receive)
        if body is None:
            return
        scope = {**scope, "query_string": quote(scope.get("query_string", b""), safe=_ASCII).encode()}
        headers = _headers(scope["headers"], body)
        resume: Resume | None = None
        while True:
            looked = time.monotonic()
            captured = _Captured(send)
            await self._app(
                {**scope, "headers": headers, _RESUME: resume, _BRIEF: self._brief}, _replay(body), captured
            )
            if captured.park is None:
                return
            key, seconds, note = captured.park.split(";", 2)
            timeout = arrived + float(seconds) - time.monotonic()
            if self._hub.parked >= self._limit:
                timeout = 0.0
            outcome = await self._wait(receive, key, since=looked, timeout=timeout)
            if outcome is None:
                return
            resume = Resume(expired=not outcome, note=note)
            if captured.request_id:
                # However often it is looked at, it is one request (API-6).
                headers = [h for h in headers if h[0] != _REQUEST_ID] + [(_REQUEST_ID, captured.request_id)]

    def _noticing_shutdown(self, receive: Receive) -> Receive:
        async def noticing() -> Message:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                await self._hub.close()
            return message

        return noticing

    async def _read(self, receive: Receive) -> bytes | None:
        """The whole body, at most one byte more than any method takes: the parser refuses the rest.

        None when the client went away before it had sent all: half a request is not to be served.
        """
        chunks: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            chunk = message.get("body", b"")
            if size <= self._max_body:
                chunks.append(chunk)
                size += len(chunk)
            if not message.get("more_body", False):
                break
        return b"".join(chunks)[: self._max_body + 1]

    async def _wait(self, receive: Receive, key: str, *, since: float, timeout: float) -> bool | None:
        """As Hub.wait, but None when the client has gone: nobody is left to answer, the tick does the rest."""
        waiting = asyncio.ensure_future(self._hub.wait(key, since=since, timeout=timeout))
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            await asyncio.wait({waiting, gone}, return_when=asyncio.FIRST_COMPLETED)
            return waiting.result() if waiting.done() else None
        finally:
            for task in (waiting, gone):
                task.cancel()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _headers(given: Iterable[tuple[bytes, bytes]], body: bytes) -> Headers:
    """The headers as WSGI needs them: a length also for a chunked body, which it cannot know otherwise.

    A name with an underscore is left out: WSGI could not tell it from the one with a dash.
    """
    framing = (b"content-length", b"transfer-encoding")
    kept = [(name.lower(), value) for name, value in given]
    kept = [(name, value) for name, value in kept if name not in framing and b"_" not in name]
    return [*kept, (b"content-length", str(len(body)).encode())] if body else kept


def _replay(body: bytes) -> Receive:
    sent = False

    async def receive() -> Message:
        nonlocal sent
        if sent:
            return {"type": "http.disconnect"}
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive
