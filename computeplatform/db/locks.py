"""Locks. The published order is pools, reservations, quota rows, budgets, nodes, devices, allocations (DESIGN §4).

Each app's own lock helpers call these, sorted by key, and never go back a level.
"""

import zlib
from collections.abc import Collection
from typing import TypeVar

from django.db import connection
from django.db.models import Model, QuerySet

M = TypeVar("M", bound=Model)


def lock_rows(rows: QuerySet[M], *, order: tuple[str, ...] = ("pk",)) -> list[M]:
    """Lock the rows against other writers, in key order; foreign keys to them may still be written."""
    return list(rows.order_by(*order).select_for_update(no_key=True))


def claim_rows(rows: QuerySet[M], *, limit: int, order: tuple[str, ...]) -> list[M]:
    """Lock up to ``limit`` rows that nobody else holds. What another worker holds is that worker's business."""
    return list(rows.order_by(*order).select_for_update(skip_locked=True, no_key=True)[:limit])


def try_advisory_lock(name: str) -> bool:
    """Hold a named lock until the transaction ends; False if somebody else does."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [zlib.crc32(name.encode())])
        return bool(cursor.fetchone()[0])


def notify(channel: str, payloads: Collection[str]) -> None:
    """Send one NOTIFY per payload at commit, in a single statement.

    A NOTIFY takes a database-wide lock until its transaction has committed, so callers batch and stay rare.
    """
    if not payloads:
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_notify(%s, p) FROM unnest(%s::text[]) AS p", [channel, list(payloads)])
