"""The fleet's objects on the wire: what is shown of them, and the parts that several inputs share."""

from typing import Any

from computeplatform.api.fields import Anything, Flag, Id, Instant, Items, Mapped, Name, OneOf, Shape, Text, Whole
from computeplatform.conditions import Condition
from fleet.contracts import (
    MASS_SILENCE,
    AllocationView,
    MaintenanceView,
    NodeBooking,
    NodeDetail,
    OfferView,
    PoolView,
    TaintView,
)
from fleet.domain.nodes import STATES
from fleet.domain.pools import DEVICE_CLASSES, PROFILE, SHARINGS
from quotas.contracts import QuotaView

WORD = r"^[A-Za-z0-9][A-Za-z0-9._-]*\Z"
RESOURCE = r"^(gpu|slot|vcpu|memoryGiB|mig:[0-9a-z.+]{1,48})\Z"
LABEL_KEY = r"^[A-Za-z0-9._/-]{1,63}\Z"
_MONEY = r"^(0|[1-9][0-9]{0,8})(\.[0-9]{1,6})?\Z"
_ABSOLUTE = r"^(/(?!\.{1,2}(/|\Z))[A-Za-z0-9._-]{1,255}){1,32}\Z"
HOUR = 3_600
DAY = 24 * HOUR


class Maxima(Mapped):
    """Quota maxima by resource name."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(child=Whole(), key_pattern=RESOURCE, max_items=16, **kwargs)


class Labels(Mapped):
    """At most 32 labels."""

    def __init__(self, **kwargs: Any) -> None:
        value = Text(min_length=0, max_length=255, pattern=r"^[^\x00-\x1f\x7f-\x9f]*\Z")
        super().__init__(child=value, key_pattern=LABEL_KEY, max_items=32, **kwargs)


class Kubernetes(Shape):
    """The cluster that binds reservations of the pool."""

    cluster = Name(max_length=128)


class PerGpuShape(Shape):
    """What goes with each GPU."""

    vcpu = Whole(max_value=1_000_000, help_text="Whole vCPUs.")
    memoryGiB = Whole(max_value=1_000_000)


class PriceShape(Shape):
    """What an hour costs. Amounts are decimal text."""

    perDeviceHour = Text(pattern=_MONEY, help_text='Decimal text, as "2.20".')
    perVcpuHour = Text(pattern=_MONEY, required=False)
    perGiBHour = Text(pattern=_MONEY, required=False)
    currency = Text(pattern=r"^[A-Z]{3}\Z", help_text="ISO 4217.")


class PolicyShape(Shape):
    """A pool's policy. A member that is left out has its default."""

    tenantRoot = Text(
        pattern=_ABSOLUTE, max_length=1024, required=False, help_text="Absolute path; `node` bindings need it."
    )
    kubernetes = Kubernetes(required=False)
    perGpu = PerGpuShape(required=False, help_text="The host's share per GPU.")
    placer = OneOf(choices=["inline", "pool-lease"], required=False, help_text="Default inline.")
    preemptSpot = Flag(required=False, help_text="Default true.")
    budgetCheck = Flag(required=False, help_text="Default false.")
    price = PriceShape(required=False)
    maxDurationHours = Whole(min_value=1, max_value=87_600, required=False, help_text="Default 720.")
    maxAdvanceDays = Whole(max_value=3_650, required=False, help_text="Default 90.")
    nodeLostGraceSeconds = Whole(max_value=DAY, required=False, help_text="Default 300.")
    bindTimeoutSeconds = Whole(min_value=1, max_value=DAY, required=False, help_text="Default 300.")
    maxPendingHours = Whole(min_value=1, max_value=8_760, required=False, help_text="Default 168.")
    spotNoticeSeconds = Whole(max_value=DAY, required=False, help_text="Default 0.")
    agentsNeedLease = Flag(required=False, help_text="Default false.")


class PolicyChange(PolicyShape):
    """Members of a pool's policy to be changed. `null` gives a member its default again; others stay as they are."""

    def get_fields(self) -> dict[str, Any]:
        """The policy's members, each of which may be null here."""
        fields: dict[str, Any] = dict(super().get_fields())
        for field in fields.values():
            field.allow_null = True
        return fields


class PoolConditionShape(Shape):
    """What is true of a pool beside its terms."""

    type = OneOf(choices=[MASS_SILENCE])
    status = OneOf(choices=["True"])
    reason = Text(max_length=64)
    message = Text(max_length=256)
    lastTransitionAt = Instant()


class PoolShape(Shape):
    """A pool."""

    id = Id()
    tenantId = Id(help_text="The owner.")
    name = Name()
    region = Text(max_length=64)
    gpuModel = Text(max_length=64)
    deviceClass = OneOf(choices=DEVICE_CLASSES)
    sharing = OneOf(choices=SHARINGS)
    profile = Text(pattern=PROFILE, required=False, help_text="MIG pools alone have one.")
    policy = PolicyShape()
    archivedAt = Instant(required=False)
    conditions = Items(
        child=PoolConditionShape(), help_text="`MassSilence` while many of its nodes are silent at once (REC-8)."
    )
    createdAt = Instant()
    version = Whole(min_value=1)


class OfferShape(Shape):
    """The terms on which a tenant may use a pool."""

    poolId = Id()
    toTenantId = Id()
    resources = Maxima(help_text="The tenant's maxima in this pool at present.")
    budgetCheck = Flag(required=False, help_text="Left out: as the pool's policy says.")
    maxPriority = Whole(max_value=100)
    createdAt = Instant()
    version = Whole(min_value=1)


class QuotaShape(Shape):
    """What a tenant may use of one resource of a pool."""

    poolId = Id()
    tenantId = Id()
    resource = Text(pattern=RESOURCE)
    max = Whole()
    used = Whole()
    overBy = Whole(required=False, min_value=1, help_text="How far `used` is above a lowered `max`.")
    version = Whole(min_value=1)


class AllocatedDeviceShape(Shape):
    """A device of an allocation: a GPU, a MIG instance by its own uuid, or a slot of a GPU."""

    position = Whole(max_value=63)
    uuid = Text(max_length=128)
    index = Whole(max_value=7, required=False, help_text="The place of a MIG instance on its GPU.")
    slot = Whole(max_value=255, required=False)


class AllocationShape(Shape):
    """What the node should hold for a reservation, and what it said."""

    reservationId = Id()
    tenantId = Id()
    desired = OneOf(choices=["planned", "bound", "withdrawn"])
    observed = OneOf(choices=["bound", "withdrawing", "withdrawn"], required=False)
    observedAt = Instant(required=False)
    holders = Whole(help_text="How many workloads the node says still use the devices.")
    devices = Items(child=AllocatedDeviceShape())
    until = Instant()


class TaintShape(Shape):
    """Why nothing new lands on the node."""

    key = Text(max_length=64)
    effect = OneOf(choices=["NoSchedule"])
    reason = Text(max_length=128, required=False)
    since = Instant()
    until = Instant(required=False)


class HostShape(Shape):
    """What the node reports as bookable; a member that it never reported is left out."""

    vcpu = Whole(required=False)
    memoryMiB = Whole(required=False)
    hugepages1Gi = Whole(required=False)


class DeviceShape(Shape):
    """A device, as the node reported it; `missing` is one that its last report did not list."""

    position = Whole(max_value=63)
    uuid = Text(max_length=128)
    model = Text(max_length=64)
    memoryMiB = Whole()
    health = OneOf(choices=["ok", "unhealthy", "missing"])
    mig = Items(child=Anything(), required=False)
    slots = Whole(required=False)


class MaintenanceShape(Shape):
    """A time in which the node takes no bookings."""

    id = Id()
    startsAt = Instant()
    endsAt = Instant(help_text="Exclusive.")
    reason = Text(max_length=128, required=False)


class NodeBookingShape(Shape):
    """What a reservation has booked on the node."""

    reservationId = Id()
    tenantId = Id()
    devices = Whole(min_value=1)
    startsAt = Instant()
    endsAt = Instant(help_text="Exclusive.")


class UnknownAllocationShape(Shape):
    """What an adopting node holds and this server has no record of (NOD-6)."""

    reservationId = Text(max_length=128)
    state = OneOf(choices=["bound", "withdrawing", "withdrawn"])
    holders = Whole()


class NodeShape(Shape):
    """A node."""

    id = Id()
    name = Text(max_length=63)
    poolId = Id(required=False)
    positions = Whole(min_value=1, max_value=64)
    labels = Labels()
    state = OneOf(choices=STATES)
    cordoned = Flag()
    cordonReason = Text(max_length=128, required=False)
    draining = Flag(help_text="Cordoned, and emptied of what can be moved or preempted.")
    lostAt = Instant(required=False, help_text="The last contact of a node that is lost.")
    removedAt = Instant(required=False)
    maintenance = Items(child=MaintenanceShape(), help_text="What is planned and under way, the earliest first.")
    taints = Items(child=TaintShape())
    devices = Items(child=DeviceShape())
    host = HostShape()
    software = Mapped(child=Anything(), help_text="What the node's software says of itself.")
    lastHeartbeatAt = Instant(required=False)
    allocations = Items(child=AllocationShape())
    unknownAllocations = Items(
        child=UnknownAllocationShape(), required=False, help_text="While it is adopting: an operator has to decide."
    )
    createdAt = Instant()
    version = Whole(min_value=1)


def present(**members: Any) -> dict[str, Any]:
    """The members that have a value: what is not known is left out of an answer, never null."""
    return {name: value for name, value in members.items() if value is not None and value != ""}


def _pool_conditions(pool: PoolView) -> list[dict[str, Any]]:
    if pool.mass_silence_since is None:
        return []
    words = "many of its nodes fell silent at once; none is given up until they are heard of or an operator acts"
    told = Condition(MASS_SILENCE, "True", "NodesSilent", words, pool.mass_silence_since)
    return [told.as_json()]


def pool_json(pool: PoolView) -> dict[str, Any]:
    """A pool on the wire."""
    return present(
        id=pool.id,
        tenantId=pool.tenant_id,
        name=pool.name,
        region=pool.region,
        gpuModel=pool.gpu_model,
        deviceClass=pool.device_class,
        sharing=pool.sharing,
        profile=pool.profile,
        policy=pool.policy.as_json(),
        archivedAt=pool.archived_at,
        conditions=_pool_conditions(pool),
        createdAt=pool.created_at,
        version=pool.version,
    )


def offer_json(offer: OfferView, quotas: list[QuotaView]) -> dict[str, Any]:
    """An offer on the wire, with the tenant's maxima in the pool."""
    return present(
        poolId=offer.pool_id,
        toTenantId=offer.tenant_id,
        resources={quota.resource: quota.max for quota in quotas},
        budgetCheck=offer.budget_check,
        maxPriority=offer.max_priority,
        createdAt=offer.created_at,
        version=offer.version,
    )


def quota_json(quota: QuotaView) -> dict[str, Any]:
    """A quota on the wire."""
    return present(
        poolId=quota.pool_id,
        tenantId=quota.tenant_id,
        resource=quota.resource,
        max=quota.max,
        used=quota.used,
        overBy=quota.used - quota.max if quota.used > quota.max else None,
        version=quota.version,
    )


def taint_json(taint: TaintView) -> dict[str, Any]:
    """A taint on the wire."""
    return present(key=taint.key, effect=taint.effect, reason=taint.reason, since=taint.since, until=taint.until)


def _allocation_json(allocation: AllocationView) -> dict[str, Any]:
    return present(
        reservationId=allocation.reservation_id,
        tenantId=allocation.tenant_id,
        desired=allocation.desired,
        observed=allocation.observed,
        observedAt=allocation.observed_at,
        holders=allocation.holders,
        devices=[
            present(position=device.position, uuid=device.uuid, index=device.index, slot=device.slot)
            for device in allocation.devices
        ],
        until=allocation.until,
    )


def maintenance_json(one: MaintenanceView) -> dict[str, Any]:
    """A maintenance on the wire."""
    return present(id=one.id, startsAt=one.starts_at, endsAt=one.ends_at, reason=one.reason)


def booking_json(booking: NodeBooking) -> dict[str, Any]:
    """A node's booking on the wire."""
    return {
        "reservationId": booking.reservation_id,
        "tenantId": booking.tenant_id,
        "devices": booking.devices,
        "startsAt": booking.starts_at,
        "endsAt": booking.ends_at,
    }


def node_json(node: NodeDetail) -> dict[str, Any]:
    """A node on the wire."""
    devices = [
        present(
            position=device.position,
            uuid=device.uuid,
            model=device.model,
            memoryMiB=device.memory_mib,
            health=device.health,
            mig=device.mig or None,
            slots=device.slots,
        )
        for device in node.devices
    ]
    return present(
        id=node.id,
        name=node.name,
        poolId=node.pool_id,
        positions=node.positions,
        labels=dict(node.labels),
        state=node.state,
        cordoned=node.cordoned,
        cordonReason=node.cordon_reason,
        draining=node.draining,
        lostAt=node.lost_at,
        removedAt=node.removed_at,
        maintenance=[maintenance_json(one) for one in node.maintenances],
        taints=[taint_json(taint) for taint in node.taints],
        devices=devices,
        host=dict(node.host),
        software=dict(node.software),
        lastHeartbeatAt=node.last_heartbeat_at,
        allocations=[_allocation_json(allocation) for allocation in node.allocations],
        unknownAllocations=[dict(one) for one in node.unknown_allocations] or None,
        createdAt=node.created_at,
        version=node.version,
    )
