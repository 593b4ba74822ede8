"""Locks. The published order is pools, reservations, quota rows, budgets, nodes, devices, allocations (DESIGN §4).

Each app's own lock helpers call these, sorted by key, and never go back a level.
"""

import contextlib
import hashlib
import zlib
from collections.abc import Collection, Iterator
from typing import TypeVar

from django.db import Error
from django.db.models import Model, QuerySet

from computeplatform.prepared import prepared_cursor

M = TypeVar("M", bound=Model)


def lock_rows(rows: QuerySet[M], *, order: tuple[str, ...] = ("pk",)) -> list[M]:
    """Lock the rows against other writers, in key order; foreign keys to them may still be written."""
    return list(rows.order_by(*order).select_for_update(no_key=True))


def claim_rows(rows: QuerySet[M], *, limit: int, order: tuple[str, ...]) -> list[M]:
    """Lock up to ``limit`` rows that nobody else holds. What another worker holds is that worker's business."""
    return list(rows.order_by(*order).select_for_update(skip_locked=True, no_key=True)[:limit])


def try_advisory_lock(name: str) -> bool:
    """Hold a named lock until the transaction ends; False if somebody else does."""
    with prepared_cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [zlib.crc32(name.encode())])
        return bool(cursor.fetchone()[0])


@contextlib.contextmanager
def holding(name: str) -> Iterator[None]:
    """Hold a named lock over several transactions; it is waited for like any other lock.

    It belongs to the session: a holder that is killed loses it at once, one that is cut off as soon as the server
    notices. So it says who is to do some work, and is no proof that nobody else writes.
    """
    key = _session_key(name)
    with prepared_cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(%s)", [key])
    try:
        yield
    finally:
        # A connection that is gone has given it up already.
        with contextlib.suppress(Error):
            _unlock_session(key)


def _session_key(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), signed=True)


def _try_session_lock(key: int) -> bool:
    with prepared_cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [key])
        return bool(cursor.fetchone()[0])


def _unlock_session(key: int) -> None:
    with prepared_cursor() as cursor:
        cursor.execute("SELECT pg_advisory_unlock(%s)", [key])


class Line:
    """The one place in a line; whoever holds it leaves it as soon as its turn has come, before it reads."""

    def __init__(self, key: int) -> None:
        self._key = key
        self._standing = True

    def leave(self) -> None:
        """Let somebody else stand there. Once is enough."""
        if self._standing:
            self._standing = False
            _unlock_session(self._key)


@contextlib.contextmanager
def in_line(name: str) -> Iterator[Line | None]:
    """Stand in the line ``name`` while a lock is waited for; None if somebody stands there already.

    For work that is found in rows: whoever stands there has still to read, so it sees what was committed before this
    call, and a second one need not wait too. Otherwise everything that may wait would wait for one held lock. The
    place belongs to the session, since it is given up in the middle of a transaction.
    """
    key = _session_key(name)
    if not _try_session_lock(key):
        yield None
        return
    line = Line(key)
    try:
        yield line
    finally:
        # A connection that is gone has taken its place with it.
        with contextlib.suppress(Error):
            line.leave()


def notify(channel: str, payloads: Collection[str]) -> None:
    """Send one NOTIFY per payload at commit, in a single statement.

    A NOTIFY takes a database-wide lock until its transaction has committed, so callers batch and stay rare.
    """
    if not payloads:
        return
    with prepared_cursor() as cursor:
        cursor.execute("SELECT pg_notify(%s, p) FROM unnest(%s::text[]) AS p", [channel, list(payloads)])
