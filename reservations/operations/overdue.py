"""What placement must not take between two ticks: devices of kubernetes reservations past their end (REL-2, REL-3).

Their bookings have run out, but whether pods outstay them the next tick finds out, and carries them on.
"""

from computeplatform.prepared import prepared_cursor
from reservations.domain.holding import LONGEST, STEP

_OVERDUE = """
SELECT b.node_id, lower(b.units), upper(b.units), upper(b.during), %(until)s::bigint,
    b.vcpu_milli, b.memory_mib, b.hugepages_1gi
FROM reservations_booking b
WHERE b.pool_id = %(pool)s AND b.held_since IS NOT NULL AND upper(b.during) <= %(now)s
    AND upper(b.planned) + %(longest)s > %(now)s
UNION ALL
SELECT b.node_id, lower(b.units), upper(b.units), upper(b.during), %(until)s::bigint,
    b.vcpu_milli, b.memory_mib, b.hugepages_1gi
FROM reservations_reservation r JOIN reservations_booking b ON b.reservation_id = r.id AND upper(b.during) = r.ends_at
WHERE r.pool_id = %(pool)s AND r.due_at <= %(now)s AND r.ends_at <= %(now)s AND r.binding = 'kubernetes'
    AND r.state IN ('binding', 'active') AND b.held_since IS NULL
"""


def overdue(pool_id: str, *, now: int) -> list[tuple[str, int, int, int, int, int, int, int]]:
    """What of the pool's nodes counts as taken for another step; one query.

    ``(node, lower and upper unit, from, to)`` and the three host amounts.
    """
    with prepared_cursor() as cursor:
        cursor.execute(_OVERDUE, {"pool": pool_id, "now": now, "until": now + STEP, "longest": LONGEST})
        return list(cursor.fetchall())
