"""Reading the fleet. A tenant reaches a pool through its own tenancy or an offer; nodes belong to the platform."""

from collections import OrderedDict, defaultdict
from collections.abc import Collection, Iterable
from typing import Any

from django.db import connection
from django.db.models import Count, OuterRef, Q, QuerySet, Subquery

from computeplatform.db.compiled import Compiled
from computeplatform.errors import InvalidInput
from computeplatform.prepared import prepared_cursor
from fleet.contracts import (
    AllocationView,
    DeviceView,
    NodeDetail,
    NodeView,
    OfferView,
    PoolCapacity,
    PoolView,
)
from fleet.errors import NodeNotFound, PoolNotFound
from fleet.models import Allocation, Device, Node, Offer, Pool, Taint
from fleet.projections import allocation_view, node_detail, offer_view, owner_view, pool_view

# --- Pools ------------------------------------------------------------------------------------------------------------


def _visible(tenant_id: str) -> QuerySet[Pool, Any]:
    offers = Offer.objects.filter(pool=OuterRef("pk"), tenant_id=tenant_id, withdrawn_at=None)
    pools = Pool.objects.annotate(offered_priority=Subquery(offers.values("max_priority")))
    return pools.filter(Q(tenant_id=tenant_id) | Q(offered_priority__isnull=False))


# Asked in every create.
_VISIBLE_BY_ID = Compiled(lambda *, tenant_id, pool_id: _visible(tenant_id).filter(id=pool_id), "tenant_id", "pool_id")


_POOL = Compiled(lambda *, pool_id: Pool.objects.filter(id=pool_id), "pool_id")


def _as_seen_by(tenant_id: str, row: Any) -> PoolView:
    if row.tenant_id == tenant_id:
        return owner_view(row)
    return pool_view(row, max_priority=row.offered_priority, offered=True)


def visible_pool(*, tenant_id: str, pool_id: str, for_booking: bool = False) -> PoolView:
    """A pool that the tenant owns or is offered, in one query; raises PoolNotFound.

    An archived one is still visible, but not ``for_booking`` (CRE-9).
    """
    row = _VISIBLE_BY_ID.first(tenant_id=tenant_id, pool_id=pool_id)
    if row is None or (for_booking and row.archived_at is not None):
        raise PoolNotFound
    return _as_seen_by(tenant_id, row)


def list_pools(
    *, tenant_id: str, limit: int, cursor: str | None = None, include_archived: bool = False
) -> tuple[list[PoolView], str | None]:
    """A page of the pools that the tenant owns or is offered, newest first, and the cursor of the next page.

    Raises InvalidInput for a cursor that is no pool which this tenant could have seen. One that was archived or whose
    offer was withdrawn since is still a place in the list.
    """
    rows = _visible(tenant_id)
    if not include_archived:
        rows = rows.filter(archived_at=None)
    if cursor is not None:
        seen = Q(tenant_id=tenant_id) | Q(offers__tenant_id=tenant_id)
        rows = rows.filter(_older_than(Pool.objects.filter(seen, id=cursor)))
    page = list(rows.order_by("-created_at", "-id")[: limit + 1])
    views = [_as_seen_by(tenant_id, row) for row in page[:limit]]
    return views, views[-1].id if len(page) > limit else None


def pools_by_id(ids: Collection[str]) -> dict[str, PoolView]:
    """The pools of these ids as their owners see them: for the platform's own loops, never for a tenant's question."""
    rows = _POOL.objects(pool_id=next(iter(ids))) if len(ids) == 1 else Pool.objects.filter(id__in=set(ids))
    return {row.id: owner_view(row) for row in rows}


def tenants_that_may_book(pool_id: str) -> frozenset[str]:
    """The pool's owner and the tenants that it is offered to at present, in one query."""
    owner = Pool.objects.filter(id=pool_id).values_list("tenant_id", flat=True)
    offered = Offer.objects.filter(pool_id=pool_id, withdrawn_at=None).values_list("tenant_id", flat=True)
    return frozenset(owner.union(offered))


def owned_pool_ids(*, tenant_id: str) -> list[str]:
    """The pools that a tenant owns, archived ones too."""
    return list(Pool.objects.filter(tenant_id=tenant_id).values_list("id", flat=True))


def owned_pools_among(*, tenant_id: str, pool_ids: Collection[str]) -> set[str]:
    """Which of these ids are pools that the tenant owns."""
    return set(Pool.objects.filter(tenant_id=tenant_id, id__in=set(pool_ids)).values_list("id", flat=True))


def offer_to(*, pool_id: str, tenant_id: str) -> OfferView | None:
    """The terms on which a tenant may use a pool at present."""
    row = Offer.objects.filter(pool_id=pool_id, tenant_id=tenant_id, withdrawn_at=None).first()
    return offer_view(row) if row else None


def offer_made(*, pool_id: str, tenant_id: str) -> OfferView:
    """An offer that is known to have been made, withdrawn since or not: a replay answers it (API-11)."""
    return offer_view(Offer.objects.get(pool_id=pool_id, tenant_id=tenant_id))


# --- Nodes ------------------------------------------------------------------------------------------------------------

# What placement reads of a node changes its version; a taint that ends by itself goes from the second hash. Both are
# sums by XOR, so the order of rows is of no matter.
_REVISION = """
SELECT coalesce(bit_xor(hashtextextended(n.id || ' ' || n.version, 0)), 0),
    (SELECT coalesce(bit_xor(hashtextextended(t.node_id || ' ' || t.key, 0)), 0)
     FROM fleet_taint t JOIN fleet_node tn ON tn.id = t.node_id
     WHERE tn.pool_id = %s AND (t.until IS NULL OR t.until > compute_now()))
FROM fleet_node n WHERE n.pool_id = %s
"""
_NODES = """
SELECT n.id, n.name, n.unit_base, n.state, n.cordoned, n.host_vcpu, n.host_memory_mib, n.host_hugepages_1gi,
    (SELECT array_agg(t.key) FROM fleet_taint t
     WHERE t.node_id = n.id AND (t.until IS NULL OR t.until > compute_now()))
FROM fleet_node n WHERE n.pool_id = %s ORDER BY n.unit_base
"""
_DEVICES = """
SELECT d.node_id, d.position, d.uuid, d.health = 'ok' FROM fleet_device d JOIN fleet_node n ON n.id = d.node_id
WHERE n.pool_id = %s AND d.retired_at IS NULL ORDER BY d.node_id, d.position
"""
# The pools that this process has read, the latest last: nodes change seldom, and a large pool costs 60 ms to read.
_READ: OrderedDict[str, tuple[tuple[int, int], tuple[NodeView, ...]]] = OrderedDict()
_READ_POOLS = 32


def pool_nodes(pool_id: str) -> tuple[NodeView, ...]:
    """Every node of a pool with its live devices and the taints in force, in the order of their units.

    One query while nothing about them has changed since this process has read them last, else three. Plain SQL, because
    a pool has a thousand nodes with eight GPUs each and placement reads them under its lock.
    """
    with prepared_cursor() as cursor:
        cursor.execute(_REVISION, [pool_id, pool_id])
        revision = cursor.fetchone()
    known = _READ.get(pool_id)
    if known is None or known[0] != revision:
        # Read after its revision: what has changed in between is read again next time.
        known = (revision, _read_nodes(pool_id))
        _READ[pool_id] = known
        if len(_READ) > _READ_POOLS:
            _READ.popitem(last=False)
    return known[1]


def _read_nodes(pool_id: str) -> tuple[NodeView, ...]:
    devices: dict[str, list[DeviceView]] = defaultdict(list)
    with prepared_cursor() as cursor:
        cursor.execute(_NODES, [pool_id])
        nodes = cursor.fetchall()
        cursor.execute(_DEVICES, [pool_id])
        for node_id, position, uuid, healthy in cursor.fetchall():
            devices[node_id].append(DeviceView(position, uuid, healthy))
    return tuple(
        NodeView(
            id=node_id,
            name=name,
            pool_id=pool_id,
            unit_base=unit_base,
            state=state,
            cordoned=cordoned,
            taints=frozenset(taints or ()),
            devices=tuple(devices.get(node_id, ())),
            host_vcpu=vcpu,
            host_memory_mib=memory,
            host_hugepages_1gi=hugepages,
        )
        for node_id, name, unit_base, state, cordoned, vcpu, memory, hugepages, taints in nodes
    )


def nodes_named(ids: Collection[str]) -> dict[str, str]:
    """The names of these nodes, by id."""
    return dict(Node.objects.filter(id__in=set(ids)).values_list("id", "name"))


def nodes_by_id(ids: Collection[str]) -> dict[str, NodeDetail]:
    """These nodes with all that belongs to them; four queries, however many nodes."""
    rows = Node.objects.filter(id__in=set(ids))
    return {detail.id: detail for detail in _details(list(rows))}


def node(node_id: str) -> NodeDetail:
    """One node; raises NodeNotFound."""
    try:
        return nodes_by_id([node_id])[node_id]
    except KeyError:
        raise NodeNotFound from None


def node_exists(node_id: str) -> bool:
    """Whether there is such a node."""
    return Node.objects.filter(id=node_id).exists()


def list_nodes(
    *, limit: int, pool_id: str | None = None, cursor: str | None = None
) -> tuple[list[NodeDetail], str | None]:
    """A page of the fleet's nodes, newest first, and the cursor of the next page; raises InvalidInput for a bad one."""
    rows = Node.objects.all() if pool_id is None else Node.objects.filter(pool_id=pool_id)
    if cursor is not None:
        rows = rows.filter(_older_than(Node.objects.filter(id=cursor)))
    page = list(rows.order_by("-created_at", "-id")[: limit + 1])
    details = _details(page[:limit])
    return details, details[-1].id if len(page) > limit else None


def _details(rows: list[Node]) -> list[NodeDetail]:
    ids = [row.id for row in rows]
    devices = _by_node(Device.objects.filter(node_id__in=ids, retired_at=None).order_by("position"))
    taints = _by_node(Taint.objects.filter(node_id__in=ids).order_by("key"))
    allocations = _by_node(Allocation.objects.filter(node_id__in=ids).order_by("id"))
    return [
        node_detail(row, devices=devices[row.id], taints=taints[row.id], allocations=allocations[row.id])
        for row in rows
    ]


def _by_node(rows: Iterable[Any]) -> dict[str, list[Any]]:
    grouped: dict[str, list[Any]] = defaultdict(list)
    for row in rows:
        grouped[row.node_id].append(row)
    return grouped


# --- Allocations ------------------------------------------------------------------------------------------------------


_ALLOCATIONS = Compiled(
    lambda *, reservation_id: Allocation.objects.filter(reservation_id=reservation_id).order_by("node_id"),
    "reservation_id",
)


def allocations_of(reservation_ids: Collection[str]) -> dict[str, list[AllocationView]]:
    """What nodes should hold, and hold, for these reservations: by reservation, then in the order of node ids.

    A reservation without rows is absent. One query.
    """
    found: dict[str, list[AllocationView]] = defaultdict(list)
    if len(reservation_ids) == 1:
        rows: Iterable[Allocation] = _ALLOCATIONS.objects(reservation_id=next(iter(reservation_ids)))
    else:
        rows = Allocation.objects.filter(reservation_id__in=set(reservation_ids)).order_by("node_id")
    for row in rows:
        found[row.reservation_id].append(allocation_view(row))
    return dict(found)


def _older_than(place: QuerySet[Any, Any]) -> Q:
    """What comes after the row with the cursor's id in a list that shows the newest first."""
    row = place.values_list("created_at", "id").first()
    if row is None:
        raise InvalidInput.at("cursor", "is not a cursor of this list")
    created_at, row_id = row
    return Q(created_at__lt=created_at) | Q(created_at=created_at, id__lt=row_id)


# --- For operators ----------------------------------------------------------------------------------------------------

# What a pool can book at once, in the units that its class is counted in.
_CAPACITY = """
SELECT p.id, p.name, p.region, p.gpu_model, count(DISTINCT n.id),
    count(DISTINCT n.id) FILTER (WHERE n.state = 'ready' AND NOT n.cordoned),
    coalesce(CASE p.device_class
        WHEN 'gpu' THEN count(d.id)
        WHEN 'slot' THEN sum(d.slots)
        ELSE sum((SELECT count(*) FROM jsonb_array_elements(d.mig) AS m WHERE m->>'profile' = p.profile))
    END, 0)::bigint
FROM fleet_pool p
LEFT JOIN fleet_node n ON n.pool_id = p.id
LEFT JOIN fleet_device d ON d.node_id = n.id AND d.retired_at IS NULL
WHERE p.archived_at IS NULL GROUP BY p.id ORDER BY p.name, p.id LIMIT %s
"""


def capacity(*, limit: int) -> list[PoolCapacity]:
    """What the first open pools have, by name; one query."""
    with connection.cursor() as cursor:
        cursor.execute(_CAPACITY, [limit])
        return [PoolCapacity(*row) for row in cursor.fetchall()]


def nodes_by_state() -> list[tuple[str, bool, int]]:
    """How many nodes there are in each state, cordoned ones apart: ``(state, cordoned, count)``."""
    rows = Node.objects.values_list("state", "cordoned").annotate(count=Count("id"))
    return list(rows.order_by("state", "cordoned"))
