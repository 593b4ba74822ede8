"""The fleet's checks: what no single constraint can say."""

from collections.abc import Collection, Iterable

from django.db import connection

from computeplatform.invariants import invariant
from fleet.domain.units import UNITS_PER_NODE

_MISALIGNED = """
SELECT id, unit_base FROM fleet_node
WHERE (%(pools)s::text[] IS NULL OR pool_id = ANY(%(pools)s)) AND unit_base %% %(span)s <> 0 ORDER BY id
"""
_FOREIGN = """
SELECT a.reservation_id, a.node_id, a.pool_id, n.pool_id FROM fleet_allocation a JOIN fleet_node n ON n.id = a.node_id
WHERE (%(pools)s::text[] IS NULL OR a.pool_id = ANY(%(pools)s))
  AND a.desired <> 'withdrawn' AND n.pool_id IS DISTINCT FROM a.pool_id ORDER BY a.id
"""
_SHARED = """
SELECT a.node_id, d.position || coalesce('/' || coalesce(d.index, d.slot), ''), count(DISTINCT a.reservation_id)
FROM fleet_allocation a, jsonb_to_recordset(a.devices) AS d (position int, index int, slot int)
WHERE (%(pools)s::text[] IS NULL OR a.pool_id = ANY(%(pools)s))
  AND a.observed = 'bound'
GROUP BY 1, 2 HAVING count(DISTINCT a.reservation_id) > 1 ORDER BY 1, 2
"""

_STUCK = """
SELECT t.node_id, t.until FROM fleet_taint t JOIN fleet_node n ON n.id = t.node_id
WHERE (%(pools)s::text[] IS NULL OR n.pool_id = ANY(%(pools)s))
  AND t.key = 'KubernetesReleaseStuck' AND (t.subjects = '{}' OR t.until IS NOT NULL) ORDER BY 1
"""
_UNKNOWN = """
SELECT 'pool ' || p.id, p.tenant_id, '' FROM fleet_pool p
WHERE (%(pools)s::text[] IS NULL OR p.id = ANY(%(pools)s)) AND p.tenant_id NOT IN (SELECT id FROM iam_tenant)
UNION ALL
SELECT 'offer ' || o.id, o.tenant_id, p.tenant_id FROM fleet_offer o JOIN fleet_pool p ON p.id = o.pool_id
WHERE (%(pools)s::text[] IS NULL OR p.id = ANY(%(pools)s))
  AND (o.tenant_id = p.tenant_id OR o.tenant_id NOT IN (SELECT id FROM iam_tenant)) ORDER BY 1
"""
_SILENT = """
SELECT id, state FROM fleet_node
WHERE (%(pools)s::text[] IS NULL OR pool_id = ANY(%(pools)s))
  AND state <> 'registered' AND (session = 0 OR boot_id = '' OR last_heartbeat_at IS NULL) ORDER BY id
"""
_OUTSIDE = """
SELECT d.node_id, d.position, n.positions FROM fleet_device d JOIN fleet_node n ON n.id = d.node_id
WHERE (%(pools)s::text[] IS NULL OR n.pool_id = ANY(%(pools)s))
  AND d.retired_at IS NULL AND d.position >= n.positions ORDER BY 1, 2
"""


def _rows(sql: str, pools: Collection[str] | None) -> list[tuple[object, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, {"pools": None if pools is None else list(pools), "span": UNITS_PER_NODE})
        return list(cursor.fetchall())


@invariant("fleet.node-spans-are-aligned")
def node_spans_are_aligned(pools: Collection[str] | None) -> Iterable[tuple[str, str]]:
    """Every node's span starts at a multiple of its size: with distinct starts, no two spans overlap."""
    for node_id, base in _rows(_MISALIGNED, pools):
        yield str(node_id), f"its units start at {base}"


@invariant("fleet.allocations-in-their-pool")
def allocations_in_their_pool(pools: Collection[str] | None) -> Iterable[tuple[str, str]]:
    """A node that holds something for a pool's reservation is in that pool (NOD-4)."""
    for reservation_id, node_id, pool_id, actual in _rows(_FOREIGN, pools):
        yield str(node_id), f"{reservation_id} is of {pool_id}, the node is in {actual}"


@invariant("fleet.device-bound-once")
def device_bound_once(pools: Collection[str] | None) -> Iterable[tuple[str, str]]:
    """No node reported one GPU, MIG instance or slot bound for two reservations (NOD-8)."""
    for node_id, position, count in _rows(_SHARED, pools):
        yield f"{node_id}/{position}", f"bound for {count} reservations"


@invariant("fleet.stuck-on-account-of-somebody")
def stuck_on_account_of_somebody(pools: Collection[str] | None) -> Iterable[tuple[str, str]]:
    """A node is KubernetesReleaseStuck on some reservation's account, and it ends with that (REL-3)."""
    for node_id, until in _rows(_STUCK, pools):
        yield str(node_id), f"is tainted until {until or 'somebody clears it'}, on nobody's account"


@invariant("fleet.tenants-are-there")
def tenants_are_there(pools: Collection[str] | None) -> Iterable[tuple[str, str]]:
    """Pools are owned by tenants, and offered to tenants other than their owner."""
    for subject, tenant_id, owner in _rows(_UNKNOWN, pools):
        yield str(subject), f"is of {tenant_id}, " + ("the owner" if tenant_id == owner else "who is no tenant")


@invariant("fleet.nodes-have-spoken")
def nodes_have_spoken(pools: Collection[str] | None) -> Iterable[tuple[str, str]]:
    """A node is no more than registered until its software has opened a session (NOD-1, NOD-9)."""
    for node_id, state in _rows(_SILENT, pools):
        yield str(node_id), f"is {state}, but its software never spoke"


@invariant("fleet.devices-have-places")
def devices_have_places(pools: Collection[str] | None) -> Iterable[tuple[str, str]]:
    """A node's GPUs are at its positions, so their units are its own."""
    for node_id, position, positions in _rows(_OUTSIDE, pools):
        yield f"{node_id}/{position}", f"the node has {positions} positions"


_REMOVED = """
SELECT n.id, count(*) FROM fleet_node n JOIN fleet_allocation a ON a.node_id = n.id
WHERE n.removed_at IS NOT NULL AND (%(pools)s::text[] IS NULL OR a.pool_id = ANY(%(pools)s))
GROUP BY n.id ORDER BY n.id
"""
# A removed node is in no pool.
_SIGNED_IN = """
SELECT n.id, p.id FROM fleet_node n JOIN iam_principal p ON p.node_id = n.id AND p.status = 'active'
WHERE n.removed_at IS NOT NULL AND %(pools)s::text[] IS NULL ORDER BY n.id
"""
_HELD = """
SELECT n.id, n.state, p.mass_silence_since FROM fleet_taint t JOIN fleet_node n ON n.id = t.node_id
LEFT JOIN fleet_pool p ON p.id = n.pool_id
WHERE t.key = 'MassSilence' AND (%(pools)s::text[] IS NULL OR n.pool_id = ANY(%(pools)s))
  AND (n.lost_at IS NOT NULL OR p.mass_silence_since IS NULL) ORDER BY n.id
"""


@invariant("fleet.removed-nodes-hold-nothing")
def removed_nodes_hold_nothing(pools: Collection[str] | None) -> Iterable[tuple[str, str]]:
    """A removed node is to hold nothing (NOD-1)."""
    for node_id, allocations in _rows(_REMOVED, pools):
        yield str(node_id), f"was removed, and has {allocations} allocations"


@invariant("fleet.removed-nodes-are-signed-out")
def removed_nodes_are_signed_out(pools: Collection[str] | None) -> Iterable[tuple[str, str]]:
    """The software of a removed node cannot sign in any more (NOD-1)."""
    for node_id, service in _rows(_SIGNED_IN, pools):
        yield str(node_id), f"was removed, and its service {service} is active"


@invariant("fleet.held-nodes-are-not-lost")
def held_nodes_are_not_lost(pools: Collection[str] | None) -> Iterable[tuple[str, str]]:
    """None of many nodes that fell silent at once is lost before an operator says so, and its pool says it (REC-8)."""
    for node_id, state, since in _rows(_HELD, pools):
        yield str(node_id), f"fell silent with many others, and is {state}; its pool says so since {since or 'never'}"
