"""What must hold between reservations and the nodes that fail, hold on or go: read-only checks."""

import json

from computeplatform.invariants import invariant
from reservations.domain.holding import LONGEST
from reservations.invariants import Found, Pools, _rows, _scope

# What is held says so, row, booking and condition alike; nothing is held, or billed, for longer than may be.
_HOLDS = """
SELECT r.id, b.id FROM reservations_booking b JOIN reservations_reservation r ON r.id = b.reservation_id
WHERE (%(all)s OR r.pool_id = ANY(%(pools)s)) AND (
    (b.held_since IS NOT NULL AND (r.held_since IS NULL OR r.binding <> 'kubernetes' OR isempty(b.during)))
    OR (NOT isempty(b.during) AND upper(b.during) > upper(b.planned) + %(longest)s)
    OR (NOT isempty(b.billed) AND upper(b.billed) > upper(b.planned))
) UNION ALL
SELECT r.id, NULL FROM reservations_reservation r
WHERE (%(all)s OR r.pool_id = ANY(%(pools)s)) AND (
    (r.held_since IS NOT NULL) <> (r.conditions @> '[{"type": "DevicesHeld"}]')
    OR (r.held_since IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM reservations_booking b WHERE b.reservation_id = r.id AND b.held_since IS NOT NULL)))
"""


@invariant("reservations.holds")
def holds(pools: Pools) -> Found:
    """Devices are held for kubernetes reservations that say so, and carried on for a day at most, unbilled (REL-3)."""
    for reservation_id, booking_id in _rows(_HOLDS, _scope(pools) | {"longest": LONGEST}):
        what = f"booking {booking_id}" if booking_id else "it"
        yield reservation_id, f"{what} is held without the other, or beyond what may be held or billed"


_STUCK = """
SELECT r.id, t.node_id FROM fleet_taint t CROSS JOIN unnest(t.subjects) AS s (id)
JOIN reservations_reservation r ON r.id = s.id
WHERE t.key = 'KubernetesReleaseStuck' AND (%(all)s OR r.pool_id = ANY(%(pools)s)) AND NOT EXISTS (
    SELECT 1 FROM reservations_booking b
    WHERE b.reservation_id = r.id AND b.node_id = t.node_id AND b.stuck_since IS NOT NULL)
"""


@invariant("reservations.stuck-nodes")
def stuck_nodes(pools: Pools) -> Found:
    """A node is tainted on a reservation's account only while that one's devices are stuck there (REL-3)."""
    for reservation_id, node_id in _rows(_STUCK, _scope(pools)):
        yield reservation_id, f"{node_id} is tainted on its account, and nothing of it is stuck there"


_DISTURBED = """
SELECT r.id, r.state, r.disturbed_since, r.conditions::text, d.began_at FROM reservations_reservation r
LEFT JOIN reservations_downtime d ON d.reservation_id = r.id AND d.ended_at IS NULL
WHERE (%(all)s OR r.pool_id = ANY(%(pools)s)) AND (
    (r.disturbed_since IS NOT NULL) <> (r.conditions @> '[{"type": "NodeLost"}]'
        OR r.conditions @> '[{"type": "DeviceUnhealthy"}]')
    OR (r.disturbed_since IS NOT NULL AND r.state NOT IN ('binding', 'active'))
    OR (d.id IS NOT NULL) <> (r.conditions @> '[{"type": "DeviceUnhealthy", "reason": "AllDevices"}]')
)
"""


@invariant("reservations.disturbed")
def disturbed(pools: Pools) -> Found:
    """What runs on something lost or sick says so, and nothing else does; one whose devices all are is down (NOD-5)."""
    for reservation_id, state, since, conditions, down_since in _rows(_DISTURBED, _scope(pools)):
        types = ", ".join(one.get("type", "?") for one in json.loads(conditions)) or "no condition"
        yield reservation_id, f"is {state} with {types}, disturbed since {since}, down since {down_since}"


_ON_REMOVED = """
SELECT b.reservation_id, b.node_id, upper(b.during), n.removed_at
FROM fleet_node n JOIN reservations_booking b ON b.node_id = n.id AND upper(b.during) > n.removed_at
WHERE n.removed_at IS NOT NULL AND (%(all)s OR b.pool_id = ANY(%(pools)s))
"""


@invariant("reservations.removed-nodes")
def removed_nodes(pools: Pools) -> Found:
    """Nothing is booked on a node beyond its removal (NOD-1)."""
    for reservation_id, node_id, until, removed_at in _rows(_ON_REMOVED, _scope(pools)):
        yield reservation_id, f"is booked on {node_id} until {until}, which was removed at {removed_at}"
