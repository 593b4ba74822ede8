"""Ticks leave a trace, so that readiness and gap detection can see whether they run."""

from django.db import connection


def record_tick(name: str, *, now: int) -> None:
    """Note that the loop ``name`` ran at ``now``; the latest time wins."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO computeplatform_tick (name, last_at) VALUES (%s, %s)"
            " ON CONFLICT (name) DO UPDATE SET last_at = greatest(computeplatform_tick.last_at, EXCLUDED.last_at)",
            [name, now],
        )


def last_tick(name: str) -> int | None:
    """When the loop ``name`` last ran, epoch milliseconds; None if it never did."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT last_at FROM computeplatform_tick WHERE name = %s", [name])
        row = cursor.fetchone()
    return int(row[0]) if row else None
