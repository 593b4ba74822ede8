"""What the fleet gives to and takes from other apps."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from computeplatform.api.calls import Resource
from fleet.domain.nodes import READY
from fleet.domain.policy import PerGpu, Policy, Price
from fleet.domain.units import UNITS_PER_NODE, UNITS_PER_POSITION, places_of, positions_in, run_of
from iam.contracts import PLATFORM

__all__ = [
    "ADMINISTER_FLEET",
    "FLEET",
    "PLATFORM",
    "UNITS_PER_NODE",
    "UNITS_PER_POSITION",
    "AllocatedDevice",
    "AllocationView",
    "DeviceDetail",
    "DeviceView",
    "NewAllocation",
    "NodeDetail",
    "NodeView",
    "OfferView",
    "PerGpu",
    "Policy",
    "PoolCapacity",
    "PoolView",
    "Price",
    "SyncAnswer",
    "TaintView",
    "Told",
    "places_of",
]

# What is asked of whoever administers the fleet (CONTRACT §14).
FLEET = Resource("compute-fleet", "fleet", PLATFORM, {"tenantId": PLATFORM})
ADMINISTER_FLEET = "compute:fleet:admin"

# The owner of a pool may use every priority; a borrower what its offer says (QTA-4).
OWNER_PRIORITY = 100
OFFER_PRIORITY = 50


@dataclass(frozen=True)
class PoolView:
    """A pool as one tenant sees it: ``offered`` and ``max_priority`` are that tenant's."""

    id: str
    tenant_id: str
    name: str
    region: str
    gpu_model: str
    device_class: str
    sharing: str
    profile: str
    policy: Policy
    archived_at: int | None
    created_at: int
    version: int
    max_priority: int
    offered: bool


@dataclass(frozen=True)
class PoolCapacity:
    """What a pool has: its nodes, those that take bookings, and its devices in the units of its class."""

    id: str
    name: str
    region: str
    gpu_model: str
    nodes: int
    open_nodes: int
    devices: int


@dataclass(frozen=True)
class OfferView:
    """The terms on which a tenant may use a pool. ``budget_check`` None: as the pool's policy says."""

    id: str
    pool_id: str
    tenant_id: str
    budget_check: bool | None
    max_priority: int
    created_at: int
    version: int


class DeviceView(NamedTuple):
    """A live device. A named tuple, not a dataclass: a snapshot holds 8,000 of them and this is made faster."""

    position: int
    uuid: str
    healthy: bool


@dataclass(frozen=True)
class NodeView:
    """A node as placement sees it. ``taints`` are the keys in force; host amounts are None where none was reported."""

    id: str
    name: str
    pool_id: str | None
    unit_base: int
    state: str
    cordoned: bool
    taints: frozenset[str]
    devices: tuple[DeviceView, ...]
    host_vcpu: int | None = None
    host_memory_mib: int | None = None
    host_hugepages_1gi: int | None = None

    @cached_property
    def installed(self) -> int:
        """The positions that hold a device at all, one bit each."""
        return sum(1 << device.position for device in self.devices)

    @cached_property
    def bookable(self) -> int:
        """The positions that may be booked now: healthy, and the node takes bookings."""
        if self.state != READY or self.cordoned or self.taints:
            return 0
        return sum(1 << device.position for device in self.devices if device.healthy)

    def units_of(self, first_position: int, count: int) -> tuple[int, int]:
        """The units of ``count`` devices side by side, half-open; a booking holds such a run (DESIGN §4)."""
        return run_of(self.unit_base, first_position, count)

    def positions_in(self, lower: int, upper: int) -> range:
        """The positions that a run of units touches."""
        return positions_in(self.unit_base, lower, upper)


@dataclass(frozen=True)
class DeviceDetail:
    """A live device as the node reported it; ``health`` is ok, unhealthy, or missing from its last report."""

    position: int
    uuid: str
    model: str
    memory_mib: int
    health: str
    mig: list[dict[str, Any]]
    slots: int | None


@dataclass(frozen=True)
class TaintView:
    """A taint; ``until`` is when it ends by itself."""

    key: str
    effect: str
    reason: str
    since: int
    until: int | None


@dataclass(frozen=True)
class AllocatedDevice:
    """A device that an allocation is about, as the node is told of it."""

    position: int
    uuid: str
    device_class: str

    def as_json(self) -> dict[str, Any]:
        """The shape on the wire and in the row."""
        return {"position": self.position, "uuid": self.uuid, "class": self.device_class}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "AllocatedDevice":
        """Read it back from the row."""
        return cls(stored["position"], stored["uuid"], stored["class"])


@dataclass(frozen=True)
class NewAllocation:
    """What a node is to hold for a reservation until ``until`` (epoch milliseconds).

    ``resources`` are the host amounts that the node enforces (HST-1), whole numbers by name: ``vcpuMilli`` (0.001
    vCPU), ``memoryMiB``, ``hugepages1Gi``; empty where none are booked.
    """

    reservation_id: str
    tenant_id: str
    pool_id: str
    node_id: str
    binding: str
    devices: tuple[AllocatedDevice, ...]
    resources: Mapping[str, int]
    until: int


@dataclass(frozen=True)
class AllocationView:
    """Desired and observed of one node for one reservation. ``observed`` is empty while the node has said nothing."""

    reservation_id: str
    tenant_id: str
    node_id: str
    desired: str
    observed: str
    observed_at: int | None
    told_at: int | None
    devices: tuple[AllocatedDevice, ...]
    until: int
    holders: int


@dataclass(frozen=True)
class NodeDetail:
    """A node as operators see it. ``host`` is what it last reported as bookable, by wire name."""

    id: str
    name: str
    pool_id: str | None
    positions: int
    labels: Mapping[str, str]
    state: str
    cordoned: bool
    cordon_reason: str
    host: Mapping[str, int]
    software: Mapping[str, Any]
    last_heartbeat_at: int | None
    created_at: int
    version: int
    taints: tuple[TaintView, ...]
    devices: tuple[DeviceDetail, ...]
    allocations: tuple[AllocationView, ...]


@dataclass(frozen=True)
class Told:
    """One allocation in the answer to a node. For one that nobody knows all but id and ``desired`` is None."""

    reservation_id: str
    desired: str
    tenant_id: str | None = None
    binding: str | None = None
    devices: tuple[AllocatedDevice, ...] | None = None
    resources: Mapping[str, int] | None = None
    until: int | None = None


@dataclass(frozen=True)
class SyncAnswer:
    """What a node is told (NOD-2)."""

    session: int
    stale: bool
    allocations: tuple[Told, ...]
    taints: tuple[TaintView, ...]
    heartbeat_seconds: int
