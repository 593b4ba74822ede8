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
SELECT a.node_id, d.position, count(DISTINCT a.reservation_id)
FROM fleet_allocation a, jsonb_to_recordset(a.devices) AS d (position int, class text)
WHERE (%(pools)s::text[] IS NULL OR a.pool_id = ANY(%(pools)s))
  AND a.observed = 'bound' AND d.class = 'gpu'
GROUP BY 1, 2 HAVING count(DISTINCT a.reservation_id) > 1 ORDER BY 1, 2
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
    """No node reported one whole GPU bound for two reservations (NOD-8)."""
    for node_id, position, count in _rows(_SHARED, pools):
        yield f"{node_id}/{position}", f"bound for {count} reservations"
