"""What must hold of reservations at every commit (REC-5): read-only checks that name what differs."""

import json
from collections.abc import Collection, Iterator
from typing import Any

from django.db import connection

from computeplatform.invariants import invariant
from fleet.contracts import UNITS_PER_GRAIN, UNITS_PER_NODE, UNITS_PER_POSITION
from reservations.domain.states import BOOKED, DRAFT_STATES, LIVE, TERMINAL
from reservations.events import AWAITING_CONFIRMATION, OF_MOVE, OF_STATE, PENDING, PLACED, QUEUED

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
WITH live AS (
    SELECT *, ((vcpu_milli - share_vcpu_milli) * nodes + 999) / 1000 AS vcpu,
        ((memory_mib + hugepages_1gi * 1024 - share_memory_mib) * nodes + 1023) / 1024 AS gib
    FROM reservations_reservation WHERE state = ANY(%(live)s) AND (%(all)s OR pool_id = ANY(%(pools)s))
), expected AS (
    SELECT l.id AS reservation_id, e.resource, tenant_id, pool_id, e.amount FROM live l CROSS JOIN LATERAL (VALUES
        (CASE device_class WHEN 'mig' THEN 'mig:' || profile ELSE device_class END, count::bigint * nodes),
        ('vcpu', vcpu), ('memoryGiB', gib)
    ) AS e (resource, amount) WHERE e.amount <> 0
), charged AS (
    SELECT reservation_id, resource, tenant_id, pool_id, amount FROM quotas_charge
    WHERE refunded_at IS NULL AND (%(all)s OR pool_id = ANY(%(pools)s))
)
SELECT reservation_id, resource, coalesce(e.amount, 0), coalesce(c.amount, 0)
FROM expected e FULL JOIN charged c USING (reservation_id, resource, tenant_id, pool_id)
WHERE e.amount IS DISTINCT FROM c.amount
"""


@invariant("reservations.charges")
def charges(pools: Pools) -> Found:
    """Quota is charged exactly for what is not terminal, and exactly once (CRE-12, REC-5)."""
    for reservation_id, resource, expected, charged in _rows(_CHARGES, _scope(pools)):
        yield reservation_id, f"{resource}: ought to be charged {expected}, is charged {charged}"


_BOOKINGS = """
SELECT r.id, r.state, r.count, r.nodes, r.starts_at, r.ends_at, coalesce(sum(b.devices), 0), count(DISTINCT b.node_id)
FROM reservations_reservation r
LEFT JOIN reservations_booking b ON b.reservation_id = r.id AND b.during = b.planned
    AND b.planned = int8range(r.starts_at, r.ends_at)
WHERE r.state = ANY(%(booked)s) AND (%(all)s OR r.pool_id = ANY(%(pools)s))
GROUP BY r.id
HAVING coalesce(sum(b.devices), 0) <> r.count * r.nodes OR count(DISTINCT b.node_id) <> r.nodes
"""


@invariant("reservations.bookings")
def bookings(pools: Pools) -> Found:
    """What is placed, binding or active has bookings for all its devices and its whole window."""
    for row in _rows(_BOOKINGS, _scope(pools)):
        reservation_id, state, count, nodes, starts_at, ends_at, devices, on_nodes = row
        promised = f"{count * nodes} devices on {nodes} nodes in [{starts_at}, {ends_at})"
        yield reservation_id, f"{state}: {promised} promised, {devices} on {on_nodes} booked for all of it"


_LEFT_OVER = """
SELECT r.id, r.state, upper(b.during), r.ended_at
FROM reservations_booking b JOIN reservations_reservation r ON r.id = b.reservation_id
WHERE NOT isempty(b.during) AND b.held_since IS NULL AND (%(all)s OR r.pool_id = ANY(%(pools)s))
    AND (r.binding <> 'kubernetes' OR upper(b.during) > compute_now())
    AND CASE WHEN r.state = ANY(%(terminal)s) THEN upper(b.during) > r.ended_at ELSE upper(b.during) > r.changed_at
        AND (r.state <> ALL(%(booked)s) OR b.planned <> int8range(r.starts_at, r.ends_at)) END
"""


@invariant("reservations.left-over")
def left_over(pools: Pools) -> Found:
    """Nothing keeps devices of a window it has no more from others, unless a kubernetes node holds them (REL-2)."""
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
    OR (state = 'awaiting-confirmation' AND outcome IS NULL)
    OR (state = ANY(%(live)s) OR state = 'awaiting-confirmation') <> (due_at IS NOT NULL)
)
"""


@invariant("reservations.answered")
def answered(pools: Pools) -> Found:
    """What is past the draft, refused, waiting or resting has an answer; what lives or waits for a person is due some
    time, and nothing else is."""
    for reservation_id, state in _rows(_DRAFTS, _scope(pools)):
        yield reservation_id, f"is {state} without an answer, or its next look is not that of its state"


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
LEFT JOIN iam_decision d ON d.id = r.decision_id AND d.resource_id = r.id AND d.tenant_id = r.tenant_id
WHERE (%(all)s OR r.pool_id = ANY(%(pools)s)) AND (
    ((r.decided OR r.state NOT IN ('draft', 'denied', 'awaiting-confirmation')) AND d.outcome IS DISTINCT FROM 'allow')
    OR (r.state = 'denied' AND d.outcome IS DISTINCT FROM 'deny')
)
    -- An old entry may have been pruned: the batch that it was in still names it (IAM-7).
    AND (d.id IS NOT NULL OR r.decision_id NOT IN (
        SELECT e ->> 0 FROM iam_decisionbatch, jsonb_array_elements(entries) AS e WHERE pruned_at IS NOT NULL
    ))
"""


@invariant("reservations.decided")
def decided(pools: Pools) -> Found:
    """Whatever was admitted was allowed, and whatever is denied was refused, by a decision in the audit log (CRE-1)."""
    for reservation_id, decision_id, outcome in _rows(_ACCESS, _scope(pools)):
        yield reservation_id, f"has decision {decision_id or 'none'} on it with outcome {outcome}"


# A key's row has its own history; the types beside those of states (extended, ending, …) say nothing of the state.
_HISTORY = """
SELECT r.id, r.state, r.version, h.count, h.first, h.last, h.latest FROM reservations_reservation r
CROSS JOIN LATERAL (
    SELECT count(*), max(e.subject_version) AS latest, count(DISTINCT e.subject_version) AS versions,
        (array_agg(e.type ORDER BY e.subject_version) FILTER (WHERE e.type <> %(asked)s))[1] AS first,
        (array_agg(e.type ORDER BY e.subject_version DESC))[1] AS last,
        count(*) FILTER (WHERE e.type = %(asked)s) AS asked,
        max(e.subject_version) FILTER (WHERE e.type = %(asked)s) AS asked_at,
        min(e.subject_version) FILTER (WHERE e.type <> %(asked)s) AS admitted_at
    FROM computeplatform_event e
    WHERE e.subject_type = 'reservation' AND e.subject_id = r.id AND e.type = ANY(%(types)s)
        AND e.tenant_id = r.tenant_id
) AS h
WHERE (%(all)s OR r.pool_id = ANY(%(pools)s)) AND (h.versions <> h.count OR h.latest > r.version
    OR CASE WHEN r.state = ANY(%(internal)s)
        THEN h.count > h.asked OR (r.state = 'awaiting-confirmation' AND h.asked = 0) OR r.version <> h.asked
        ELSE replace(h.last, 'queued', 'pending') IS DISTINCT FROM 'reservation.' || r.state
            OR h.first IS NULL OR h.first <> ALL(%(first)s) OR h.asked_at > h.admitted_at END)
"""


@invariant("reservations.history")
def history(pools: Pools) -> Found:
    """The events of a reservation tell its way: admitted once, one event per move, the last one its state (CRE-17).

    Before it was admitted it may have waited for confirmations, and nothing else is told of a draft.
    """
    types = {
        "types": sorted([*OF_STATE.values(), *OF_MOVE.values()]),
        "internal": sorted(DRAFT_STATES),
        "first": [PLACED, PENDING, QUEUED],
        "asked": AWAITING_CONFIRMATION,
    }
    for reservation_id, state, version, count, first, last, latest in _rows(_HISTORY, _scope(pools) | types):
        told = f"{count} events from {first} to {last} (version {latest})"
        yield reservation_id, f"is {state} at version {version}; its history has {told}"


_TIMES = """
SELECT id, state, starts_at, ends_at FROM reservations_reservation
WHERE (%(all)s OR pool_id = ANY(%(pools)s)) AND (
    (state = 'pending') <> (pending_since IS NOT NULL AND state <> ALL(%(terminal)s))
    OR (state IN ('binding', 'active') AND binding_since IS NULL) OR (state = 'active' AND active_at IS NULL)
    OR (state = ANY(%(booked)s)
        AND (starts_at < coalesce(requested_starts_at, created_at) OR starts_at >= start_before))
)
"""


@invariant("reservations.times")
def times(pools: Pools) -> Found:
    """Each state has its time, and a window begins when its caller allowed (CRE-16)."""
    for reservation_id, state, starts_at, ends_at in _rows(_TIMES, _scope(pools)):
        yield reservation_id, f"is {state} in [{starts_at}, {ends_at}), which its own times do not allow"


_FOREIGN = """
SELECT b.reservation_id, b.id, b.node_id FROM reservations_booking b
JOIN reservations_reservation r ON r.id = b.reservation_id LEFT JOIN fleet_node n ON n.id = b.node_id
WHERE (%(all)s OR b.pool_id = ANY(%(pools)s) OR r.pool_id = ANY(%(pools)s)) AND (
    (b.tenant_id, b.pool_id) <> (r.tenant_id, r.pool_id) OR n.id IS NULL
    OR NOT b.units <@ int8range(n.unit_base, n.unit_base + %(span)s)
    OR upper(b.units) - lower(b.units) <> b.devices * (%(grains)s::jsonb ->> r.device_class)::bigint
)
"""


@invariant("reservations.booking-of-its-node")
def booking_of_its_node(pools: Pools) -> Found:
    """A booking is its reservation's, in units of its node, as many as its devices have."""
    sizes = {"span": UNITS_PER_NODE, "grains": json.dumps(UNITS_PER_GRAIN)}
    for reservation_id, booking_id, node_id in _rows(_FOREIGN, _scope(pools) | sizes):
        yield reservation_id, f"booking {booking_id} on {node_id} has another tenant, pool, node or number of units"


_TERMS = """
SELECT a.reservation_id, a.node_id, r.state, a.desired, a.until, r.ends_at
FROM fleet_allocation a LEFT JOIN reservations_reservation r ON r.id = a.reservation_id
WHERE (%(all)s OR a.pool_id = ANY(%(pools)s)) AND a.desired <> 'withdrawn' AND (
    r.id IS NULL OR (a.tenant_id, a.pool_id, a.binding) <> (r.tenant_id, r.pool_id, r.binding) OR a.until <> r.ends_at
    OR (a.desired = 'bound') <> (r.binding <> 'hold' AND r.state IN ('binding', 'active'))
)
"""


@invariant("reservations.allocation-terms")
def allocation_terms(pools: Pools) -> Found:
    """A node is told the reservation's terms: whose it is, until when, and to bind it once it has begun (NOD-2)."""
    for reservation_id, node_id, state, desired, until, ends_at in _rows(_TERMS, _scope(pools)):
        told = f"{node_id} is told {desired} until {until}"
        yield reservation_id, f"is {state or 'nowhere'} until {ends_at}; {told}, or another tenant, pool or binding"


# Devices as grains of their node: a GPU's position, the place of an instance on it, a slot.
_DEVICES = """
WITH booked AS (
    SELECT id, placement, starts_at, ends_at, (%(grains)s::jsonb ->> device_class)::bigint AS size
    FROM reservations_reservation WHERE state = ANY(%(booked)s) AND (%(all)s OR pool_id = ANY(%(pools)s))
), shown AS (
    SELECT r.id, p ->> 'nodeId' AS node, (d ->> 'position')::bigint * (%(gpu)s / r.size)
        + coalesce((d ->> 'index')::bigint, (d ->> 'slot')::bigint, 0) AS grain
    FROM booked r, jsonb_array_elements(r.placement) AS p, jsonb_array_elements(p -> 'devices') AS d
), told AS (
    SELECT r.id, a.node_id AS node, (d ->> 'position')::bigint * (%(gpu)s / r.size)
        + coalesce((d ->> 'index')::bigint, (d ->> 'slot')::bigint, 0) AS grain
    FROM booked r JOIN fleet_allocation a ON a.reservation_id = r.id AND a.desired <> 'withdrawn',
        jsonb_array_elements(a.devices) AS d
), held AS (
    SELECT r.id, b.node_id AS node, grain - n.unit_base / r.size AS grain
    FROM booked r JOIN reservations_booking b ON b.reservation_id = r.id
        AND b.planned = int8range(r.starts_at, r.ends_at) AND NOT isempty(b.during)
        JOIN fleet_node n ON n.id = b.node_id,
        generate_series(lower(b.units) / r.size, (upper(b.units) - 1) / r.size) AS grain
)
SELECT id, node, grain, s.id IS NOT NULL, t.id IS NOT NULL, h.id IS NOT NULL
FROM shown s FULL JOIN told t USING (id, node, grain) FULL JOIN held h USING (id, node, grain)
WHERE s.id IS NULL OR t.id IS NULL OR h.id IS NULL ORDER BY 1, 2, 3
"""


@invariant("reservations.devices")
def devices(pools: Pools) -> Found:
    """The devices that callers are shown, that nodes are told and that are booked are the same."""
    sizes = {"gpu": UNITS_PER_POSITION, "grains": json.dumps(UNITS_PER_GRAIN)}
    for reservation_id, node_id, grain, *there in _rows(_DEVICES, _scope(pools) | sizes):
        shown, told, booked = there
        yield reservation_id, f"{node_id}/{grain}: shown {shown}, told to the node {told}, booked {booked}"
