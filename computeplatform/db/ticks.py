"""Ticks leave a trace, so that readiness and gap detection can see whether they run."""

from django.db import connection

from computeplatform.db.gaps import GAP, WATCHED

# In one statement, and the tick's row is locked first: of two ticks at once one notes a gap, and what it notes joins on
# to the row's time. Counting makes PostgreSQL read the row before it is written.
_RECORD = """
WITH before AS (
    SELECT last_at FROM computeplatform_tick WHERE name = %(name)s FOR UPDATE
), gap AS (
    INSERT INTO computeplatform_servicegap (began_at, ended_at)
    SELECT last_at, %(now)s FROM before WHERE %(name)s = %(watched)s AND last_at < %(now)s - %(gap)s
    ON CONFLICT (began_at) DO NOTHING RETURNING 1
)
INSERT INTO computeplatform_tick (name, last_at) SELECT %(name)s, %(now)s FROM (SELECT count(*) FROM gap) AS noted
ON CONFLICT (name) DO UPDATE SET last_at = greatest(computeplatform_tick.last_at, EXCLUDED.last_at)
"""


def record_tick(name: str, *, now: int) -> None:
    """Note that the loop ``name`` ran at ``now``; the latest time wins.

    Where the loop that is watched has not run for long, the time between is noted as a gap in our service (REC-8).
    """
    with connection.cursor() as cursor:
        cursor.execute(_RECORD, {"name": name, "now": now, "watched": WATCHED, "gap": GAP})


def last_tick(name: str) -> int | None:
    """When the loop ``name`` last ran, epoch milliseconds; None if it never did."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT last_at FROM computeplatform_tick WHERE name = %s", [name])
        row = cursor.fetchone()
    return int(row[0]) if row else None
