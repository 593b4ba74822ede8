"""Silence that is our own (REC-8): while no tick ran, nobody's deadline ran either.

Whoever judges a deadline that depends on hearing somebody (a node's grace, a bind timeout, a lease) asks here first::

    gaps = service_gaps(since=min(everything's beginning), now=now)      # one query for a whole batch
    if gaps.moved(contact + grace, since=contact) <= now: ...

``since`` is when the time began to run: a node's last contact, the start of binding, the last renewal.
"""

from dataclasses import dataclass

from django.db import connection

from computeplatform.clock import SECOND

# The loop whose ticks show that we run; a pause between two of them that is longer than this is a gap.
WATCHED = "reconcile"
GAP = 30 * SECOND


@dataclass(frozen=True)
class Gaps:
    """Times in which we did not run, half-open, in order, apart from each other; epoch milliseconds."""

    spans: tuple[tuple[int, int], ...] = ()

    def moved(self, deadline: int, *, since: int) -> int:
        """The deadline of a time that began to run at ``since``, later by as much of each gap as lies in that time."""
        for began, ended in self.spans:
            if began >= deadline:
                break
            deadline += max(0, ended - max(began, since))
        return deadline


def service_gaps(*, since: int, now: int) -> Gaps:
    """The gaps that ended after ``since``, and the one that lasts at ``now`` if there is one; one query.

    Until a tick has ended a gap, it is as long as its time so far: a deadline inside it lies after ``now``.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT began_at, ended_at FROM computeplatform_servicegap WHERE ended_at > %(since)s"
            " UNION ALL SELECT last_at, %(now)s FROM computeplatform_tick"
            " WHERE name = %(watched)s AND last_at < %(now)s - %(gap)s ORDER BY 1",
            {"since": since, "now": now, "watched": WATCHED, "gap": GAP},
        )
        return Gaps(tuple(cursor.fetchall()))
