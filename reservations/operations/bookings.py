"""Bookings: reading a pool's snapshot, writing what was placed, ending what has ended."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db.backends.postgresql.psycopg_any import NumericRange

from computeplatform.prepared import prepared_cursor
from fleet import queries as fleet
from fleet.contracts import UNITS_PER_GRAIN, UNITS_PER_NODE, NodeView
from reservations.domain.demands import Kept
from reservations.domain.hosts import FOREVER, NOTHING, Amounts, Busy, Host, Use
from reservations.domain.masks import ALL, runs
from reservations.models import Booking, Reservation
from reservations.operations.overdue import overdue
from reservations.queries import booked_on_each


@dataclass(frozen=True)
class Snapshot:
    """A pool's nodes and what is booked on them in a window; read under the pool's lock when it is placed into."""

    hosts: tuple[Host, ...]
    nodes: dict[str, NodeView]
    kept: Mapping[str, Sequence[Kept]] = field(default_factory=dict)

    def devices(self, node_id: str, mask: int) -> list[dict[str, Any]]:
        """The devices of these grains of a node, as allocations and the wire name them."""
        return self.nodes[node_id].name_devices(mask)

    def mask(self, node_id: str, lower: int, upper: int) -> int | None:
        """The grains of a node that a run of units touches; None for a node that is not in the pool."""
        node = self.nodes.get(node_id)
        return None if node is None else node.grains_touched(lower, upper)


# Each booking as the grains on its node that its units touch, first and number: every span begins at a multiple of its
# length, and a grain's length divides it. And what is kept for whom, from when on (PRE-2).
_BUSY = {
    device_class: f"""
SELECT NULL, node_id, (mod(lower(units), {UNITS_PER_NODE}) / {size})::int,
    ((upper(units) - 1) / {size} - lower(units) / {size} + 1)::int,
    lower(during), upper(during), vcpu_milli, memory_mib, hugepages_1gi
FROM reservations_booking WHERE during && int8range(%s, %s) AND pool_id = %s
UNION ALL SELECT r.id, c."nodeId", c.first, c.count, c."from", NULL, r.vcpu_milli, r.memory_mib, r.hugepages_1gi
FROM reservations_reservation r, jsonb_to_recordset(r.claim) AS c ("nodeId" text, first int, count int, "from" bigint)
WHERE r.pool_id = %s AND r.claim IS NOT NULL
"""  # noqa: S608 - constants
    for device_class, size in UNITS_PER_GRAIN.items()
}


def snapshot(pool_id: str, *, starts_at: int, ends_at: int, now: int) -> Snapshot:
    """The pool as placement sees it, with every booking that overlaps ``[starts_at, ends_at)``, maintenance, and what
    is kept for claimants."""
    nodes = fleet.pool_nodes(pool_id)
    busy: dict[str, list[Busy]] = defaultdict(list)
    used: dict[str, list[Use]] = defaultdict(list)
    for node in nodes:
        if node.maintenance:
            busy[node.id] += [Busy(ALL, begin, end) for begin, end in node.maintenance]
    # All that one claims of a node is one thing, so that its host amounts count once.
    claims: dict[tuple[str, str, int, Amounts], int] = defaultdict(int)
    with prepared_cursor() as cursor:
        device_class = nodes[0].device_class if nodes else "gpu"
        cursor.execute(_BUSY[device_class], [starts_at, ends_at, pool_id, pool_id])
        for owner, node_id, first, count, start, end, vcpu, memory, pages in cursor.fetchall():
            mask = ((1 << count) - 1) << first
            if owner is not None:
                claims[node_id, owner, start, Amounts(vcpu, memory, pages)] |= mask
                continue
            busy[node_id].append(Busy(mask, start, end))
            if vcpu or memory or pages:
                used[node_id].append(Use(start, end, (vcpu, memory, pages)))
    by_id = {node.id: node for node in nodes}
    for node_id, low, high, start, end, *amounts in overdue(pool_id, now=now):
        if (there := by_id.get(node_id)) is not None:
            busy[node_id].append(Busy(there.grains_touched(low, high), start, end))
            if any(amounts):
                used[node_id].append(Use(start, end, Amounts(*amounts)))
    kept: dict[str, list[Kept]] = defaultdict(list)
    for (node_id, owner, since, claimed), mask in claims.items():
        kept[node_id].append(Kept(owner, mask, since, FOREVER, claimed))
    hosts = tuple(
        Host(
            node.id,
            node.installed,
            node.bookable,
            busy.get(node.id, ()),
            Amounts(*node.host_amounts),
            used.get(node.id, ()),
        )
        for node in nodes
    )
    return Snapshot(hosts, by_id, kept)


def book(placed: Sequence[Reservation], taken: Snapshot) -> None:
    """Write the bookings of reservations that have just got their placement: one row per run of adjacent devices.

    The host amounts of a node stand on the first of its rows.
    """
    rows = []
    for reservation in placed:
        window = NumericRange(reservation.starts_at, reservation.ends_at)
        for part in reservation.placement:
            node = taken.nodes[part["nodeId"]]
            amounts = booked_on_each(reservation)
            for first, length in runs(node.grains_of(part["devices"])):
                rows.append(
                    Booking(
                        reservation_id=reservation.id,
                        tenant_id=reservation.tenant_id,
                        pool_id=reservation.pool_id,
                        node_id=node.id,
                        units=NumericRange(*node.units_of(first, length)),
                        devices=length,
                        planned=window,
                        during=window,
                        billed=window,
                        vcpu_milli=amounts.vcpu_milli,
                        memory_mib=amounts.memory_mib,
                        hugepages_1gi=amounts.hugepages_1gi,
                    )
                )
                amounts = NOTHING
    Booking.objects.bulk_create(rows)


def end_bookings(
    ends: Mapping[str, int], *, unbilled: Collection[str] = (), lost: Mapping[str, int] | None = None
) -> None:
    """End each reservation's bookings at its time: empty if they never began, untouched if they are over or held.

    Of the reservations in ``unbilled`` no time is charged for. On nodes in ``lost`` they end at the last contact.
    """
    if not ends:
        return
    gone = dict(lost or {})
    with prepared_cursor() as cursor:
        cursor.execute(
            "UPDATE reservations_booking AS b SET during = b.during * int8range(NULL, e.at),"
            " billed = CASE WHEN b.reservation_id = ANY(%s) THEN 'empty' ELSE b.billed * int8range(NULL, e.at) END"
            " FROM (SELECT o.id, least(r.at, l.at) AS at FROM unnest(%s::text[], %s::bigint[]) AS r(id, at)"
            "  JOIN reservations_booking o ON o.reservation_id = r.id AND o.held_since IS NULL"
            "  LEFT JOIN unnest(%s::text[], %s::bigint[]) AS l(node, at) ON l.node = o.node_id) AS e"
            " WHERE b.id = e.id AND (upper(b.during) > e.at OR b.reservation_id = ANY(%s))",
            [list(unbilled), list(ends), list(ends.values()), list(gone), list(gone.values()), list(unbilled)],
        )


def devices_held(pool_id: str, *, now: int) -> dict[str, int]:
    """How many devices of the pool each tenant has booked, now or for later (REC-3)."""
    with prepared_cursor() as cursor:
        cursor.execute(
            "SELECT tenant_id, sum(devices) FROM reservations_booking"
            " WHERE during && int8range(%s, NULL) AND pool_id = %s GROUP BY tenant_id",
            [now, pool_id],
        )
        return {tenant: int(count) for tenant, count in cursor.fetchall()}
