"""The fleet's locks. Published order: pools → (reservations, quota rows) → nodes → devices → allocations."""

from collections.abc import Collection

from computeplatform.db.locks import lock_rows
from fleet.contracts import PoolView
from fleet.errors import NodeNotFound
from fleet.models import Allocation, Node, Pool
from fleet.projections import owner_view


def lock_pools(ids: Collection[str]) -> dict[str, PoolView]:
    """Lock the pools in the order of their ids until the transaction ends; returns them as their owners see them.

    Whoever holds a pool's lock is alone in booking, releasing and moving its devices and host resources (NOD-4).
    """
    return {row.id: owner_view(row) for row in lock_rows(Pool.objects.filter(id__in=set(ids)))}


def lock_pool_rows(ids: Collection[str]) -> dict[str, Pool]:
    """The same locks, for the fleet's own operations."""
    return {row.id: row for row in lock_rows(Pool.objects.filter(id__in=set(ids)))}


def lock_nodes(ids: Collection[str]) -> dict[str, Node]:
    """Lock the nodes in the order of their ids."""
    return {row.id: row for row in lock_rows(Node.objects.filter(id__in=set(ids)))}


def lock_node(node_id: str) -> Node:
    """Lock one node; raises NodeNotFound."""
    try:
        return lock_nodes([node_id])[node_id]
    except KeyError:
        raise NodeNotFound from None


def lock_allocations(reservation_ids: Collection[str]) -> list[Allocation]:
    """Lock the allocations of these reservations, in the order of the rows' keys."""
    return lock_rows(Allocation.objects.filter(reservation_id__in=set(reservation_ids)))


def lock_allocations_of_node(node_id: str) -> list[Allocation]:
    """Lock what one node should hold, in the order of the rows' keys."""
    return lock_rows(Allocation.objects.filter(node_id=node_id))
