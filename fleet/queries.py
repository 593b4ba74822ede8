"""Reading the fleet. A tenant reaches a pool through its own tenancy or an offer; nodes belong to the platform."""

import json
from collections import OrderedDict, defaultdict
from collections.abc import Collection, Iterable
from typing import Any

from django.db import connection
from django.db.models import BigIntegerField, Count, Func, OuterRef, Q, QuerySet, Subquery

from computeplatform.db.compiled import Compiled
from computeplatform.errors import InvalidInput
from computeplatform.prepared import prepared_cursor
from fleet.contracts import (
    AllocationView,
    DeviceView,
    LettingGo,
    NodeDetail,
    NodeView,
    OfferView,
    PoolCapacity,
    PoolView,
)
from fleet.errors import NodeNotFound, PoolNotFound
from fleet.models import Allocation, Device, Maintenance, Node, Offer, Pool, Taint
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


def closed_among(pool_ids: Collection[str]) -> dict[str, tuple[bool, frozenset[str]]]:
    """Which of these pools take nothing more, of anybody (True) or of these tenants; open ones are absent (POL-3)."""
    archived = set(Pool.objects.filter(id__in=set(pool_ids), archived_at__isnull=False).values_list("id", flat=True))
    withdrawn: dict[str, set[str]] = defaultdict(set)
    offers = Offer.objects.filter(pool_id__in=set(pool_ids), withdrawn_at__isnull=False)
    for pool_id, tenant_id in offers.values_list("pool_id", "tenant_id"):
        withdrawn[pool_id].add(tenant_id)
    return {pool: (pool in archived, frozenset(withdrawn[pool])) for pool in sorted(archived | withdrawn.keys())}


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

# What placement reads of a node changes its version; a taint that ends by itself goes from the second hash, maintenance
# from the third. They are sums by XOR, so the order of rows is of no matter.
_REVISION = """
SELECT coalesce(bit_xor(hashtextextended(n.id || ' ' || n.version, 0)), 0),
    (SELECT coalesce(bit_xor(hashtextextended(t.node_id || ' ' || t.key, 0)), 0)
     FROM fleet_taint t JOIN fleet_node tn ON tn.id = t.node_id
     WHERE tn.pool_id = %s AND (t.until IS NULL OR t.until > compute_now())),
    (SELECT coalesce(bit_xor(hashtextextended(m.id, 0)), 0)
     FROM fleet_maintenance m JOIN fleet_node mn ON mn.id = m.node_id
     WHERE mn.pool_id = %s AND m.ends_at > compute_now())
FROM fleet_node n WHERE n.pool_id = %s
"""
_NODES = """
SELECT n.id, n.name, n.unit_base, n.state, n.cordoned, n.draining, n.host_vcpu, n.host_memory_mib,
    n.host_hugepages_1gi, p.device_class,
    (SELECT array_agg(t.key) FROM fleet_taint t
     WHERE t.node_id = n.id AND (t.until IS NULL OR t.until > compute_now())),
    (SELECT array_agg(ARRAY[m.starts_at, m.ends_at] ORDER BY m.starts_at) FROM fleet_maintenance m
     WHERE m.node_id = n.id AND m.ends_at > compute_now())
FROM fleet_node n JOIN fleet_pool p ON p.id = n.pool_id WHERE n.pool_id = %s ORDER BY n.unit_base
"""
_DEVICES = """
SELECT d.node_id, d.position, d.uuid, d.health = 'ok', d.mig::text, d.slots, p.profile
FROM fleet_device d JOIN fleet_node n ON n.id = d.node_id JOIN fleet_pool p ON p.id = n.pool_id
WHERE n.pool_id = %s AND d.retired_at IS NULL ORDER BY d.node_id, d.position
"""
# The pools that this process has read, the latest last: nodes change seldom, and a large pool costs 60 ms to read.
_READ: OrderedDict[str, tuple[tuple[int, int, int], tuple[NodeView, ...]]] = OrderedDict()
_READ_POOLS = 32


def pool_nodes(pool_id: str) -> tuple[NodeView, ...]:
    """Every node of a pool with its live devices and the taints in force, in the order of their units.

    One query while nothing about them has changed since this process has read them last, else three. Plain SQL, because
    a pool has a thousand nodes with eight GPUs each and placement reads them under its lock.
    """
    with prepared_cursor() as cursor:
        cursor.execute(_REVISION, [pool_id, pool_id, pool_id])
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
        for row in cursor.fetchall():
            devices[row[0]].append(_device_view(row))
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
            device_class=device_class,
            draining=draining,
            maintenance=tuple((begin, end) for begin, end in maintenance or ()),
        )
        for (
            node_id,
            name,
            unit_base,
            state,
            cordoned,
            draining,
            vcpu,
            memory,
            hugepages,
            device_class,
            taints,
            maintenance,
        ) in nodes
    )


def _device_view(row: tuple[Any, ...]) -> DeviceView:
    _, position, uuid, healthy, mig, slots, profile = row
    if mig == "[]" and not slots:
        return DeviceView(position, uuid, healthy)
    parts = json.loads(mig)
    instances = tuple((part["index"], part["uuid"]) for part in parts if part["profile"] == profile)
    return DeviceView(position, uuid, healthy, instances, bool(parts), slots or 0)


def gpu_share(pool: PoolView) -> tuple[int, int]:
    """What of the host goes with each GPU of a pool of whole GPUs: 0.001 vCPU and MiB (HST-2).

    The policy's ``perGpu``, else the smallest share that any host can give; hosts that report the amount count, whether
    they take bookings just now or not, and of their GPUs the sick ones too, since these come back. Never 0 where a host
    reports the amount; 0 where none does, for nothing could be booked of it.
    """
    hosts = [(node, node.installed.bit_count()) for node in pool_nodes(pool.id) if node.installed]
    vcpu = min((node.host_vcpu * 1000 // gpus for node, gpus in hosts if node.host_vcpu), default=None)
    memory = min((node.host_memory_mib // gpus for node, gpus in hosts if node.host_memory_mib), default=None)
    if per_gpu := pool.policy.per_gpu:
        vcpu = vcpu and per_gpu.vcpu * 1000
        memory = memory and per_gpu.memory_gib * 1024
        return vcpu or 0, memory or 0
    return 0 if vcpu is None else max(1, vcpu), 0 if memory is None else max(1, memory)


def nodes_named(ids: Collection[str]) -> dict[str, str]:
    """The names of these nodes, by id."""
    return dict(Node.objects.filter(id__in=set(ids)).values_list("id", "name"))


def nodes_by_id(ids: Collection[str]) -> dict[str, NodeDetail]:
    """These nodes with all that belongs to them; five queries, however many nodes."""
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
    """A page of the fleet's nodes, newest first, and the cursor of the next page; raises InvalidInput for a bad one.

    Removed ones are not listed.
    """
    there = Node.objects.filter(removed_at=None)
    rows = there if pool_id is None else there.filter(pool_id=pool_id)
    if cursor is not None:
        rows = rows.filter(_older_than(Node.objects.filter(id=cursor)))
    page = list(rows.order_by("-created_at", "-id")[: limit + 1])
    details = _details(page[:limit])
    return details, details[-1].id if len(page) > limit else None


_NOW = Func(function="compute_now", output_field=BigIntegerField())


def _details(rows: list[Node]) -> list[NodeDetail]:
    ids = [row.id for row in rows]
    devices = _by_node(Device.objects.filter(node_id__in=ids, retired_at=None).order_by("position"))
    taints = _by_node(Taint.objects.filter(node_id__in=ids).order_by("key"))
    allocations = _by_node(Allocation.objects.filter(node_id__in=ids).order_by("id"))
    to_come = Maintenance.objects.filter(node_id__in=ids, ends_at__gt=_NOW)
    maintenances = _by_node(to_come.order_by("starts_at", "id"))
    return [
        node_detail(
            row,
            devices=devices[row.id],
            taints=taints[row.id],
            allocations=allocations[row.id],
            maintenances=maintenances[row.id],
        )
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


def letting_go(reservation_ids: Collection[str]) -> list[LettingGo]:
    """What nodes hold, or may hold, for these reservations and are to let go of; one query."""
    rows = Allocation.objects.filter(reservation_id__in=set(reservation_ids)).select_related("node")
    return [
        LettingGo(
            reservation_id=row.reservation_id,
            node_id=row.node_id,
            holders=row.holders if row.older is None else row.older["holders"],
            last_heartbeat_at=row.node.last_heartbeat_at,
            lost_at=row.node.lost_at,
        )
        for row in rows.filter(Q(desired="withdrawn") | Q(older__isnull=False))
    ]


def lost_nodes(pool_ids: Collection[str]) -> dict[str, int]:
    """The nodes of these pools that are lost, and when each was heard last."""
    rows = Node.objects.filter(pool_id__in=set(pool_ids), lost_at__isnull=False)
    return {node_id: lost_at for node_id, lost_at in rows.values_list("id", "lost_at") if lost_at is not None}


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
        WHEN 'gpu' THEN count(d.id) FILTER (WHERE d.mig = '[]')
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
