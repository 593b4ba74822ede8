"""What operators do to nodes (NOD-1, NOD-4, NOD-6)."""

from collections.abc import Mapping

from django.db import connection

from computeplatform.api.calls import Actor
from computeplatform.db.constraints import refusing
from computeplatform.db.retry import in_transaction
from computeplatform.errors import StaleVersion
from computeplatform.events.outbox import emit
from computeplatform.ids import new_id
from computeplatform.wakes import wake
from fleet import events
from fleet.contracts import MASS_SILENCE
from fleet.domain.nodes import ADOPTING, NODE, REGISTERED
from fleet.domain.units import unit_base
from fleet.errors import (
    NodeInUse,
    NodeMoved,
    NodeNameTaken,
    NodeNotFound,
    NodeRemoved,
    NodeStillUsed,
    PoolArchived,
    PoolNotFound,
)
from fleet.locks import lock_node, lock_pool_rows
from fleet.models import Allocation, Node
from fleet.occupancy import bookings_on_node
from fleet.operations.taints import clear_taint
from iam.operations.principals import create_node_service, end_node_service


@in_transaction
def register_node(
    *, name: str, pool_id: str | None, positions: int, labels: Mapping[str, str], by: Actor, now: int
) -> tuple[str, str]:
    """Make a node and the service that its software signs in as; returns its id and the software's token.

    The node takes nothing before its first applied sync. Raises NodeNameTaken, PoolNotFound, PoolArchived. Emits
    ``node.registered``.
    """
    if pool_id is not None:
        _open_pool(pool_id)
    node_id = new_id("node")
    with refusing({"node_name_unique": NodeNameTaken()}):
        node = Node.objects.create(
            id=node_id,
            name=name,
            pool_id=pool_id,
            positions=positions,
            unit_base=unit_base(_next_number()),
            state=REGISTERED,
            labels=dict(labels),
            created_at=now,
            created_by=by.principal_id,
        )
    _, token = create_node_service(node_id=node_id, name=name, by=by, now=now)
    emit([events.node_event(events.NODE_REGISTERED, node, by=by, now=now, poolId=pool_id)])
    return node_id, token


@in_transaction
def assign_node(*, node_id: str, pool_id: str | None, version: int | None, by: Actor, now: int) -> None:
    """Put the node into another pool, or into none, under both pools' locks (NOD-4).

    Raises NodeInUse while any reservation should hold it or it still holds something, PoolNotFound, PoolArchived,
    StaleVersion, and NodeMoved where it changed its pool at the same moment. Emits ``node.assigned``.
    """
    before = Node.objects.filter(id=node_id).values_list("pool_id", flat=True).first()
    if before is None and not Node.objects.filter(id=node_id).exists():
        raise NodeNotFound
    pools = lock_pool_rows({p for p in (before, pool_id) if p})
    if pool_id is not None and pool_id != before:
        if pool_id not in pools:
            raise PoolNotFound
        if pools[pool_id].archived_at is not None:
            raise PoolArchived
    node = _lock_at(node_id, version)
    if node.pool_id != before:
        raise NodeMoved
    if node.pool_id == pool_id:
        return
    held = Allocation.objects.filter(node=node).count()
    if held:
        raise NodeInUse(allocations=held)
    _out_of_mass_silence(node, reason="assigned", by=by, now=now)
    node.pool_id = pool_id
    _change(node, "pool", type_=events.NODE_ASSIGNED, by=by, now=now, poolId=pool_id, poolIdBefore=before)
    if pool_id is not None:
        wake("placement", pool_id)


@in_transaction
def cordon_node(*, node_id: str, reason: str, version: int | None, by: Actor, now: int) -> None:
    """Nothing new is booked on the node from here on; what is booked stays. Repeated: unchanged, but for the reason.

    The pool's lock is taken, so an admission that is placing now either has booked or sees the cordon. Emits
    ``node.cordoned``.
    """
    node = lock_node_with_pool(node_id, version)
    if node.cordoned and node.cordon_reason == reason:
        return
    node.cordoned, node.cordon_reason = True, reason
    _change(node, "cordoned", "cordon_reason", type_=events.NODE_CORDONED, by=by, now=now, reason=reason)


@in_transaction
def uncordon_node(*, node_id: str, version: int | None, by: Actor, now: int) -> None:
    """The node takes bookings again; draining ends too. Repeated: unchanged.

    Emits ``node.uncordoned`` and wakes the pool.
    """
    node = lock_node_with_pool(node_id, version)
    if not node.cordoned:
        return
    node.cordoned, node.cordon_reason, node.draining = False, "", False
    _change(node, "cordoned", "cordon_reason", "draining", type_=events.NODE_UNCORDONED, by=by, now=now)
    if node.pool_id is not None:
        wake("placement", node.pool_id)


@in_transaction
def drain_node(*, node_id: str, reason: str, version: int | None, by: Actor, now: int) -> None:
    """Cordon the node and empty it: reservations reads that by level and moves what it can (NOD-1).

    Repeated: unchanged, but for the reason. Emits ``node.draining`` and wakes the pool.
    """
    node = lock_node_with_pool(node_id, version)
    if node.draining and node.cordon_reason == reason:
        return
    node.cordoned, node.cordon_reason, node.draining = True, reason, True
    columns = ("cordoned", "cordon_reason", "draining")
    _change(node, *columns, type_=events.NODE_DRAINING, by=by, now=now, reason=reason)
    if node.pool_id is not None:
        wake("reconcile", node.pool_id)


@in_transaction
def adopt_node(*, node_id: str, reason: str, by: Actor, now: int) -> None:
    """The operator's word on an adopting node: what is stored here holds, and it works on as any other (NOD-6).

    From its next report on it is told to withdraw what nobody here knows. A node that is not adopting: unchanged.
    Emits ``node.adopted`` and wakes the pool.
    """
    node = lock_node_with_pool(node_id, None)
    if node.state != ADOPTING:
        return
    given_up = node.unknown_allocations or []
    node.state, node.unknown_allocations, node.lost_at = NODE.next(node.state, "adopted"), None, None
    node.version += 1
    node.save(update_fields=["state", "unknown_allocations", "lost_at", "version"])
    emit([events.node_event(events.NODE_ADOPTED, node, by=by, now=now, reason=reason, withdrawn=given_up)])
    if node.pool_id is not None:
        wake("placement", node.pool_id)


@in_transaction
def remove_node(*, node_id: str, version: int | None, by: Actor, now: int) -> None:
    """Take the node out of the fleet for good: its software's key is revoked, its name is free, its units are not.

    Live allocations are those that somebody wants, and those that a node that is heard of has still to withdraw.
    Removed already: unchanged. Raises NodeNotFound, StaleVersion, NodeMoved, NodeStillUsed. Emits ``node.removed``.
    """
    if Node.objects.filter(id=node_id, removed_at__isnull=False).exists():
        return
    node = lock_node_with_pool(node_id, version)
    held = Allocation.objects.filter(node=node)
    live = held if node.lost_at is None else held.exclude(desired="withdrawn")
    allocations = live.count()
    bookings = bookings_on_node(node_id, starts_at=now, ends_at=None)
    if bookings or allocations:
        raise NodeStillUsed(bookings=len(bookings), allocations=allocations)
    held.delete()
    _out_of_mass_silence(node, reason="removed", by=by, now=now)
    before, node.pool_id, node.removed_at = node.pool_id, None, now
    _change(node, "pool", "removed_at", type_=events.NODE_REMOVED, by=by, now=now, poolIdBefore=before)
    end_node_service(node_id=node_id, by=by, now=now)


def lock_node_with_pool(node_id: str, version: int | None) -> Node:
    """The node, locked after its pool, at the version that is asked for if one is.

    Raises NodeNotFound, NodeRemoved, StaleVersion, and NodeMoved where it changed its pool at this moment.
    """
    pool_id = Node.objects.filter(id=node_id).values_list("pool_id", flat=True).first()
    lock_pool_rows([pool_id] if pool_id else [])
    node = _lock_at(node_id, version)
    if node.pool_id != pool_id:
        raise NodeMoved
    return node


def _lock_at(node_id: str, version: int | None) -> Node:
    node = lock_node(node_id)
    if node.removed_at is not None:
        raise NodeRemoved
    if version is not None and node.version != version:
        raise StaleVersion(given=version, present=node.version)
    return node


def _change(node: Node, *columns: str, type_: str, by: Actor, now: int, reason: str = "", **data: str | None) -> None:
    node.version += 1
    node.save(update_fields=[*columns, "version"])
    emit([events.node_event(type_, node, by=by, now=now, reason=reason, **data)])


def _out_of_mass_silence(node: Node, *, reason: str, by: Actor, now: int) -> None:
    """It leaves the pool of which many are silent: it is none of those any more, and judged by itself (REC-8)."""
    if clear_taint([node.id], MASS_SILENCE, by=by, now=now, reason=reason):
        node.refresh_from_db(fields=["version"])


def _open_pool(pool_id: str) -> None:
    """The pool, locked: it is not archived while a node joins it."""
    pool = lock_pool_rows([pool_id]).get(pool_id)
    if pool is None:
        raise PoolNotFound
    if pool.archived_at is not None:
        raise PoolArchived


def _next_number() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT nextval('fleet_node_number')")
        return int(cursor.fetchone()[0])
