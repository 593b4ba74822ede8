"""Rows of the fleet as its contracts."""

from collections.abc import Iterable

from fleet.contracts import (
    OWNER_PRIORITY,
    AllocatedDevice,
    AllocationView,
    DeviceDetail,
    MaintenanceView,
    NodeDetail,
    OfferView,
    PoolView,
    TaintView,
)
from fleet.domain.policy import Policy
from fleet.models import Allocation, Device, Maintenance, Node, Offer, Pool, Taint


def pool_view(row: Pool, *, max_priority: int, offered: bool) -> PoolView:
    """The pool as a tenant with this ceiling sees it."""
    return PoolView(
        id=row.id,
        tenant_id=row.tenant_id,
        name=row.name,
        region=row.region,
        gpu_model=row.gpu_model,
        device_class=row.device_class,
        sharing=row.sharing,
        profile=row.profile,
        policy=Policy.from_json(row.policy),
        archived_at=row.archived_at,
        created_at=row.created_at,
        version=row.version,
        max_priority=max_priority,
        offered=offered,
        mass_silence_since=row.mass_silence_since,
        mass_silence_ended_at=row.mass_silence_ended_at,
    )


def owner_view(row: Pool) -> PoolView:
    """The pool as its owner sees it."""
    return pool_view(row, max_priority=OWNER_PRIORITY, offered=False)


def offer_view(row: Offer) -> OfferView:
    """The terms of an offer."""
    return OfferView(
        row.id, row.pool_id, row.tenant_id, row.budget_check, row.max_priority, row.created_at, row.version
    )


def allocation_view(row: Allocation) -> AllocationView:
    """Desired and observed of one row."""
    return AllocationView(
        reservation_id=row.reservation_id,
        tenant_id=row.tenant_id,
        node_id=row.node_id,
        desired=row.desired,
        observed=row.observed,
        observed_at=row.observed_at,
        told_at=row.told_at,
        devices=tuple(AllocatedDevice.from_json(device) for device in row.devices),
        until=row.until,
        holders=row.holders,
    )


def host_json(row: Node) -> dict[str, int]:
    """The host amounts that the node reported, by their names on the wire."""
    amounts = {
        "vcpu": row.host_vcpu,
        "memoryMiB": row.host_memory_mib,
        "hugepages1Gi": row.host_hugepages_1gi,
    }
    return {name: amount for name, amount in amounts.items() if amount is not None}


def device_detail(row: Device) -> DeviceDetail:
    """A live device."""
    return DeviceDetail(row.position, row.uuid, row.model, row.memory_mib, row.health, row.mig, row.slots)


def taint_view(row: Taint) -> TaintView:
    """A taint."""
    return TaintView(row.key, row.effect, row.reason, row.since, row.until)


def maintenance_view(row: Maintenance) -> MaintenanceView:
    """A planned maintenance."""
    return MaintenanceView(row.id, row.starts_at, row.ends_at, row.reason)


def node_detail(
    row: Node,
    *,
    devices: Iterable[Device],
    taints: Iterable[Taint],
    allocations: Iterable[Allocation],
    maintenances: Iterable[Maintenance],
) -> NodeDetail:
    """A node with all that belongs to it."""
    return NodeDetail(
        id=row.id,
        name=row.name,
        pool_id=row.pool_id,
        positions=row.positions,
        labels=row.labels,
        state=row.state,
        cordoned=row.cordoned,
        cordon_reason=row.cordon_reason,
        draining=row.draining,
        lost_at=row.lost_at,
        removed_at=row.removed_at,
        host=host_json(row),
        software=row.software,
        last_heartbeat_at=row.last_heartbeat_at,
        created_at=row.created_at,
        version=row.version,
        taints=tuple(taint_view(taint) for taint in taints),
        devices=tuple(device_detail(device) for device in devices),
        allocations=tuple(allocation_view(allocation) for allocation in allocations),
        maintenances=tuple(maintenance_view(maintenance) for maintenance in maintenances),
        unknown_allocations=tuple(row.unknown_allocations or ()),
    )
