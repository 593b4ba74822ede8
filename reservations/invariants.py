"""What must hold of reservations at every commit (REC-5): read-only checks that name what differs."""

from collections.abc import Collection, Iterator
from typing import Any

from django.db import connection

from computeplatform.invariants import invariant
from reservations.domain.states import BOOKED, LIVE, TERMINAL

Found = Iterator[tuple[str, str]]
Pools = Collection[str] | None


def _rows(sql: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return list(cursor.fetchall())


def _scope(pools: Pools) -> dict[str, Any]:
    return {
        "all": pools is None,
        "pools": list(pools or ()),
        "live": sorted(LIVE),
        "booked": sorted(BOOKED),
        "terminal": sorted(TERMINAL),
    }


# What each reservation ought to be charged, beside what it is charged.
_CHARGES = """
WITH expected AS (
    SELECT id AS reservation_id, CASE device_class WHEN 'mig' THEN 'mig:' || profile ELSE device_class END AS resource,
        count * nodes AS amount
    FROM reservations_reservation
    WHERE state = ANY(%(live)s) AND (%(all)s OR pool_id = ANY(%(pools)s))
), charged AS (
    SELECT reservation_id, resource, amount FROM quotas_charge
    WHERE refunded_at IS NULL AND (%(all)s OR pool_id = ANY(%(pools)s))
)
SELECT reservation_id, resource, coalesce(e.amount, 0), coalesce(c.amount, 0)
FROM expected e FULL JOIN charged c USING (reservation_id, resource)
WHERE e.amount IS DISTINCT FROM c.amount
"""


@invariant("reservations.charges")
def charges(pools: Pools) -> Found:
    """Quota is charged exactly for what is not terminal, and exactly once (CRE-12, REC-5)."""
    for reservation_id, resource, expected, charged in _rows(_CHARGES, _scope(pools)):
        yield reservation_id, f"{resource}: ought to be charged {expected}, is charged {charged}"


_BOOKINGS = """
SELECT r.id, r.state, r.count, r.nodes, r.starts_at, r.ends_at, count(b.id), coalesce(sum(b.devices), 0),
    count(DISTINCT b.node_id), min(lower(b.during)), max(upper(b.during))
FROM reservations_reservation r
LEFT JOIN reservations_booking b ON b.reservation_id = r.id AND NOT isempty(b.during)
    AND b.planned = int8range(r.starts_at, r.ends_at)
WHERE r.state = ANY(%(booked)s) AND (%(all)s OR r.pool_id = ANY(%(pools)s))
GROUP BY r.id
HAVING coalesce(sum(b.devices), 0) <> r.count * r.nodes OR count(DISTINCT b.node_id) <> r.nodes
    OR min(lower(b.during)) IS DISTINCT FROM r.starts_at OR max(upper(b.during)) IS DISTINCT FROM r.ends_at
"""


@invariant("reservations.bookings")
def bookings(pools: Pools) -> Found:
    """What is placed, binding or active has bookings for all its devices and its whole window."""
    for row in _rows(_BOOKINGS, _scope(pools)):
        reservation_id, state, count, nodes, starts_at, ends_at, _, devices, on_nodes, first, last = row
        promised = f"{count * nodes} devices on {nodes} nodes in [{starts_at}, {ends_at})"
        yield reservation_id, f"{state}: {promised} promised, {devices} on {on_nodes} in [{first}, {last}) booked"


_LEFT_OVER = """
SELECT r.id, r.state, upper(b.during), r.ended_at
FROM reservations_booking b JOIN reservations_reservation r ON r.id = b.reservation_id
WHERE NOT isempty(b.during) AND (%(all)s OR r.pool_id = ANY(%(pools)s))
    AND CASE WHEN r.state = ANY(%(terminal)s) THEN upper(b.during) > r.ended_at ELSE r.state <> ALL(%(booked)s)
        AND upper(b.during) > r.changed_at END
"""


@invariant("reservations.left-over")
def left_over(pools: Pools) -> Found:
    """Nothing that has ended, or waits, keeps devices from others."""
    for reservation_id, state, until, ended_at in _rows(_LEFT_OVER, _scope(pools)):
        yield reservation_id, f"is {state} (ended {ended_at}), but keeps devices until {until}"


_OVERLAPS = """
SELECT a.id, b.id FROM reservations_booking a
JOIN reservations_booking b ON a.id < b.id AND a.units && b.units AND a.during && b.during
WHERE %(all)s OR a.pool_id = ANY(%(pools)s)
"""


@invariant("reservations.overlap")
def overlap(pools: Pools) -> Found:
    """No unit is booked twice at any instant (REC-6): what the exclusion constraint says, asked again."""
    for first, second in _rows(_OVERLAPS, _scope(pools)):
        yield str(first), f"overlaps booking {second}"


_DRAFTS = """
SELECT id, state FROM reservations_reservation
WHERE (%(all)s OR pool_id = ANY(%(pools)s)) AND (
    (state = 'denied' AND outcome IS NULL) OR (state = ANY(%(live)s) AND outcome IS NULL)
    OR (state = 'draft' AND call_open_until IS NULL AND outcome IS NULL)
    OR (state = ANY(%(live)s) AND due_at IS NULL)
)
"""


@invariant("reservations.answered")
def answered(pools: Pools) -> Found:
    """What is past the draft, refused or resting has an answer, and what lives is due some time."""
    for reservation_id, state in _rows(_DRAFTS, _scope(pools)):
        yield reservation_id, f"is {state} without an answer or a next look"


_ALLOCATIONS = """
SELECT r.id, r.state, r.nodes, count(a.id)
FROM reservations_reservation r
LEFT JOIN fleet_allocation a ON a.reservation_id = r.id AND a.desired <> 'withdrawn'
WHERE (%(all)s OR r.pool_id = ANY(%(pools)s)) AND r.state <> 'draft'
GROUP BY r.id
HAVING count(a.id) <> CASE WHEN r.state = ANY(%(booked)s) THEN r.nodes ELSE 0 END
"""


@invariant("reservations.allocations")
def allocations(pools: Pools) -> Found:
    """A node is to hold devices exactly for what is placed, binding or active."""
    for reservation_id, state, nodes, found in _rows(_ALLOCATIONS, _scope(pools)):
        yield reservation_id, f"is {state} on {nodes} nodes; {found} are to hold devices for it"


_ACCESS = """
SELECT r.id, r.decision_id, d.outcome FROM reservations_reservation r
LEFT JOIN iam_decision d ON d.id = r.decision_id
WHERE (%(all)s OR r.pool_id = ANY(%(pools)s)) AND (
    (r.state NOT IN ('draft', 'denied', 'awaiting-confirmation') AND d.outcome IS DISTINCT FROM 'allow')
    OR (r.state = 'denied' AND d.outcome IS DISTINCT FROM 'deny')
)
"""


@invariant("reservations.decided")
def decided(pools: Pools) -> Found:
    """Whatever was admitted was allowed, and whatever is denied was refused, by a decision in the audit log (CRE-1)."""
    for reservation_id, decision_id, outcome in _rows(_ACCESS, _scope(pools)):
        yield reservation_id, f"has decision {decision_id or 'none'} with outcome {outcome}"
