"""Bookings: reading a pool's snapshot, writing what was placed, ending what has ended."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.backends.postgresql.psycopg_any import NumericRange

from computeplatform.prepared import prepared_cursor
from fleet import queries as fleet
from fleet.contracts import UNITS_PER_NODE, UNITS_PER_POSITION, NodeView
from reservations.domain.placement import Busy, Host, runs
from reservations.models import Booking, Reservation


@dataclass(frozen=True)
class Snapshot:
    """A pool's nodes and what is booked on them in a window; read under the pool's lock when it is placed into."""

    hosts: tuple[Host, ...]
    nodes: dict[str, NodeView]

    def devices(self, node_id: str, mask: int) -> list[dict[str, Any]]:
        """The devices at these positions of a node, as allocations and the wire name them."""
        return [{"position": d.position, "uuid": d.uuid} for d in self.nodes[node_id].devices if mask >> d.position & 1]


# Each booking as the positions on its node that its units touch; every span begins at a multiple of its length.
_BUSY = f"""
SELECT node_id, (mod(lower(units), {UNITS_PER_NODE}) / {UNITS_PER_POSITION})::int,
    ((upper(units) - 1) / {UNITS_PER_POSITION} - lower(units) / {UNITS_PER_POSITION} + 1)::int,
    lower(during), upper(during)
FROM reservations_booking WHERE during && int8range(%s, %s) AND pool_id = %s
"""  # noqa: S608 - constants


def snapshot(pool_id: str, *, starts_at: int, ends_at: int) -> Snapshot:
    """The pool as placement sees it, with every booking that overlaps ``[starts_at, ends_at)``."""
    nodes = fleet.pool_nodes(pool_id)
    busy: dict[str, list[Busy]] = defaultdict(list)
    with prepared_cursor() as cursor:
        cursor.execute(_BUSY, [starts_at, ends_at, pool_id])
        for node_id, first, count, start, end in cursor.fetchall():
            busy[node_id].append(Busy(((1 << count) - 1) << first, start, end))
    hosts = tuple(Host(node.id, node.installed, node.bookable, busy.get(node.id, ())) for node in nodes)
    return Snapshot(hosts, {node.id: node for node in nodes})


def _mask(positions: Iterable[int]) -> int:
    mask = 0
    for position in positions:
        mask |= 1 << position
    return mask


def book(placed: Sequence[Reservation], taken: Snapshot) -> None:
    """Write the bookings of reservations that have just got their placement: one row per run of adjacent devices."""
    rows = []
    for reservation in placed:
        window = NumericRange(reservation.starts_at, reservation.ends_at)
        for part in reservation.placement:
            node = taken.nodes[part["nodeId"]]
            rows += [
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
                )
                for first, length in runs(_mask(device["position"] for device in part["devices"]))
            ]
    Booking.objects.bulk_create(rows)


def end_bookings(ends: Mapping[str, int], *, unbilled: Collection[str] = ()) -> None:
    """End each reservation's bookings at its time: empty if they never began, untouched if they are over.

    Of the reservations in ``unbilled`` no time is charged for.
    """
    if not ends:
        return
    with prepared_cursor() as cursor:
        cursor.execute(
            "UPDATE reservations_booking AS b SET during = b.during * int8range(NULL, e.at),"
            " billed = CASE WHEN b.reservation_id = ANY(%s) THEN 'empty' ELSE b.billed * int8range(NULL, e.at) END"
            " FROM unnest(%s::text[], %s::bigint[]) AS e(id, at)"
            " WHERE b.reservation_id = e.id AND (upper(b.during) > e.at OR b.reservation_id = ANY(%s))",
            [list(unbilled), list(ends), list(ends.values()), list(unbilled)],
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
