"""The one clock. It is the database's, so that web and worker processes on several machines agree.

``compute_now()`` is a SQL function (see the first migration), which a test replaces to move time for every
process at once; product code knows nothing of that.
"""

from computeplatform.prepared import prepared_cursor

SECOND = 1_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR


def compute_now() -> int:
    """The present instant in epoch milliseconds, UTC. Read it once at the edge and pass it down."""
    with prepared_cursor() as cursor:
        cursor.execute("SELECT compute_now()")
        return int(cursor.fetchone()[0])
