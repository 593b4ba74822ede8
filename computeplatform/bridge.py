"""WSGI behind ASGI, for whole answers: one step into a thread and one back.

`a2wsgi` streams: it hands every piece of an answer over from the thread on its own, which costs more than many of our
calls do (docs/performance.md). Django's answers are there as a whole, so they are handed over as a whole. What an
environment looks like and how a server is started and stopped is a2wsgi's still.
"""

import asyncio
import contextvars
import io
from collections.abc import Callable, Iterable
from typing import Any

from a2wsgi import WSGIMiddleware
from a2wsgi.wsgi import build_environ

Headers = list[tuple[bytes, bytes]]


class Bridge(WSGIMiddleware):
    """The ASGI application around a WSGI one; ``workers`` threads run it. The request's body comes in one message."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        message = await receive()
        environ = build_environ(scope, io.BytesIO(message.get("body", b"")))  # type: ignore[arg-type]  # it reads like one
        run = contextvars.copy_context().run
        loop = asyncio.get_running_loop()
        status, headers, body = await loop.run_in_executor(self.executor, run, self._answer, environ)
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _answer(self, environ: Any) -> tuple[int, Headers, bytes]:
        started: list[tuple[int, Headers]] = []

        def start_response(status: str, headers: Iterable[tuple[str, str]], _: Any = None) -> Callable[[bytes], None]:
            pairs = [(name.encode("latin-1").lower(), value.encode("latin-1")) for name, value in headers]
            started.append((int(status.partition(" ")[0]), pairs))
            return _no_write

        pieces = self.app(environ, start_response)
        try:
            body = b"".join(pieces)
        finally:
            getattr(pieces, "close", _nothing)()
        return *started[-1], body


def _no_write(_: bytes) -> None:
    raise NotImplementedError("an answer is what the application returns")


def _nothing() -> None:
    pass
