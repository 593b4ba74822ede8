"""How far the end of what is booked can move, and moving it (EXT-3)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import connection

from fleet import queries as fleet
from fleet.contracts import UNITS_PER_GRAIN, UNITS_PER_NODE, NodeDetail
from reservations.domain.hosts import FOREVER, Amounts, Busy, Host, Use
from reservations.domain.masks import span
from reservations.models import Reservation
from reservations.operations.overdue import overdue

# What others have on the same nodes after the present end; the index of the exclusion constraint answers it.
_OTHERS = """
SELECT b.node_id, lower(b.units), upper(b.units), lower(b.during), upper(b.during),
    b.vcpu_milli, b.memory_mib, b.hugepages_1gi
FROM unnest(%(bases)s::bigint[]) AS base
JOIN reservations_booking b ON b.units && int8range(base, base + %(span)s)
    AND b.during && int8range(%(since)s, %(until)s)
WHERE b.reservation_id <> %(reservation)s
"""
_OWN = """
SELECT node_id, lower(units), upper(units), vcpu_milli, memory_mib, hugepages_1gi FROM reservations_booking
WHERE reservation_id = %s AND upper(during) = %s AND held_since IS NULL
"""
# Of the present bookings alone: those of earlier tries ended before, or are held.
_EXTEND = """
UPDATE reservations_booking SET planned = int8range(lower(planned), %(until)s),
    during = int8range(lower(during), %(until)s),
    billed = CASE WHEN upper(billed) = %(ends_at)s THEN int8range(lower(billed), %(until)s) ELSE billed END
WHERE reservation_id = %(reservation)s AND upper(during) = %(ends_at)s AND held_since IS NULL
"""


@dataclass
class _Ground:
    """One node of the reservation: its first unit, and what the reservation has of it, in units and amounts."""

    base: int
    mask: int = 0
    amounts: tuple[int, int, int] = (0, 0, 0)
    busy: list[Busy] = field(default_factory=list)
    used: list[Use] = field(default_factory=list)

    def units(self, lower: int, upper: int) -> int:
        """A run of the node's units as a mask."""
        return span(lower - self.base, upper - lower)


def reach(row: Reservation, *, wanted: int, now: int) -> int:
    """The latest end up to ``wanted`` that all its bookings can have, at least the present one.

    What others have booked or is kept for them is in the way, and so is maintenance; host amounts have to be there all
    the time. A node that is cordoned, drained, lost or gone reaches no further. The caller holds the pool's lock.
    """
    present = row.ends_at or 0
    grounds = _grounds(row, present, wanted, now=now)
    nodes = fleet.nodes_by_id(grounds.keys())
    return min(_reach(ground, nodes.get(node_id), present, wanted) for node_id, ground in grounds.items())


def _reach(ground: _Ground, node: NodeDetail | None, present: int, wanted: int) -> int:
    if node is None or node.state != "ready" or node.cordoned or node.draining or node.removed_at is not None:
        return present
    away = [Busy(ground.mask, m.starts_at, m.ends_at) for m in node.maintenances]
    capacity = Amounts(*node.host_amounts)
    host = Host(node.id, ground.mask, ground.mask, busy=[*ground.busy, *away], capacity=capacity, used=ground.used)
    return host.reach(ground.mask, Amounts(*ground.amounts), since=present, wanted=wanted)


def _grounds(row: Reservation, present: int, wanted: int, *, now: int) -> Mapping[str, _Ground]:
    grounds: dict[str, _Ground] = {}
    with connection.cursor() as cursor:
        cursor.execute(_OWN, [row.id, present])
        for node_id, lower, upper, *amounts in cursor.fetchall():
            ground = grounds.setdefault(node_id, _Ground(lower - lower % UNITS_PER_NODE))
            ground.mask |= ground.units(lower, upper)
            ground.amounts = _sum(ground.amounts, amounts)
        window: dict[str, Any] = {"since": present, "until": wanted, "reservation": row.id, "span": UNITS_PER_NODE}
        cursor.execute(_OTHERS, window | {"bases": [ground.base for ground in grounds.values()]})
        others = cursor.fetchall()
    for node_id, lower, upper, begin, end, *amounts in [*others, *overdue(row.pool_id, now=now)]:
        if node_id in grounds:
            grounds[node_id].busy.append(Busy(grounds[node_id].units(lower, upper), begin, end))
            grounds[node_id].used.append(Use(begin, end, _sum((0, 0, 0), amounts)))
    _add_claims(row, grounds)
    return grounds


def _add_claims(row: Reservation, grounds: Mapping[str, _Ground]) -> None:
    """What preemption keeps for others of the pool until they are placed (PRE-2)."""
    grain = UNITS_PER_GRAIN[row.device_class]
    for other in Reservation.objects.filter(pool_id=row.pool_id, claim__isnull=False).exclude(id=row.id):
        amounts = (other.vcpu_milli, other.memory_mib, other.hugepages_1gi)
        since: dict[str, int] = {}
        for kept in other.claim or ():
            if ground := grounds.get(kept["nodeId"]):
                mask = span(kept["first"] * grain, kept["count"] * grain)
                ground.busy.append(Busy(mask, kept["from"], FOREVER))
                since[kept["nodeId"]] = kept["from"]
        for node_id, begin in since.items():
            grounds[node_id].used.append(Use(begin, FOREVER, amounts))


def _sum(one: tuple[int, int, int], other: Sequence[int]) -> tuple[int, int, int]:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


def extend_bookings(reservation_id: str, *, ends_at: int, until: int) -> None:
    """Move the end of the reservation's present bookings; what of them is billed grows along."""
    with connection.cursor() as cursor:
        cursor.execute(_EXTEND, {"reservation": reservation_id, "ends_at": ends_at, "until": until})
