"""What the fleet gives to and takes from other apps."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from computeplatform.api.calls import Resource
from fleet.domain.nodes import READY
from fleet.domain.policy import PerGpu, Policy, Price
from fleet.domain.trouble import MaintenanceView, NodeBooking, NodeTrouble, SickDevice
from fleet.domain.units import (
    MIG_PLACES,
    SLOTS,
    UNITS_PER_GRAIN,
    UNITS_PER_NODE,
    UNITS_PER_POSITION,
    grains_touched,
    places_of,
    units_of_grains,
)
from iam.contracts import PLATFORM

__all__ = [
    "ADMINISTER_FLEET",
    "FLEET",
    "MASS_SILENCE",
    "PLATFORM",
    "UNITS_PER_GRAIN",
    "UNITS_PER_NODE",
    "UNITS_PER_POSITION",
    "AllocatedDevice",
    "AllocationView",
    "DeviceDetail",
    "DeviceView",
    "LettingGo",
    "MaintenanceView",
    "NewAllocation",
    "NodeBooking",
    "NodeDetail",
    "NodeTrouble",
    "NodeView",
    "OfferView",
    "PerGpu",
    "Policy",
    "PoolCapacity",
    "PoolView",
    "Price",
    "SickDevice",
    "SyncAnswer",
    "TaintView",
    "Told",
    "places_of",
]

# What is asked of whoever administers the fleet (CONTRACT §14).
FLEET = Resource("compute-fleet", "fleet", PLATFORM, {"tenantId": PLATFORM})
ADMINISTER_FLEET = "compute:fleet:admin"

# The taint of a node that fell silent with many others (REC-8).
MASS_SILENCE = "MassSilence"

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
    mass_silence_since: int | None = None
    mass_silence_ended_at: int | None = None


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
    """A live device. A named tuple, not a dataclass: a snapshot holds 8,000 of them and this is made faster.

    ``instances`` are the MIG instances of the pool's profile, by their place; ``divided``: it has instances at all.
    """

    position: int
    uuid: str
    healthy: bool
    instances: tuple[tuple[int, str], ...] = ()
    divided: bool = False
    slots: int = 0


@dataclass(frozen=True)
class NodeView:
    """A node as placement sees it. ``taints`` are the keys in force; host amounts are None where none was reported.

    Its devices are counted in grains of the pool's class, by bit: a GPU at its position, one of the eight places of MIG
    instances on each GPU, or one of its 256 slots. ``maintenance`` are the times, half-open, in which it takes nothing.
    """

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
    device_class: str = "gpu"
    draining: bool = False
    maintenance: tuple[tuple[int, int], ...] = ()

    @property
    def units_per_grain(self) -> int:
        """How many units a grain has."""
        return UNITS_PER_GRAIN[self.device_class]

    @cached_property
    def installed(self) -> int:
        """The grains that hold a device of the pool at all, one bit each. A GPU that is divided is no whole one."""
        return self._grains(self.devices)

    @cached_property
    def bookable(self) -> int:
        """The grains that may be booked now: healthy, and the node takes bookings."""
        if self.state != READY or self.cordoned or self.draining or self.taints:
            return 0
        return self._grains(device for device in self.devices if device.healthy)

    @cached_property
    def host_amounts(self) -> tuple[int, int, int]:
        """What can be booked of its host: 0.001 vCPU, MiB, pages of 1 GiB; 0 where nothing was reported."""
        return (self.host_vcpu or 0) * 1000, self.host_memory_mib or 0, self.host_hugepages_1gi or 0

    def units_of(self, first: int, count: int) -> tuple[int, int]:
        """The units of ``count`` grains side by side, half-open; a booking holds such a run (DESIGN §4)."""
        return units_of_grains(self.unit_base, first, count, self.units_per_grain)

    def grains_touched(self, lower: int, upper: int) -> int:
        """The grains that a run of units touches, as bits."""
        return grains_touched(self.unit_base, lower, upper, self.units_per_grain)

    def grains_of(self, named: Iterable[Mapping[str, Any]]) -> int:
        """The grains of devices as `name_devices` names them."""
        on_each = UNITS_PER_POSITION // self.units_per_grain
        mask = 0
        for device in named:
            mask |= 1 << (device["position"] * on_each + device.get("index", device.get("slot", 0)))
        return mask

    def name_devices(self, grains: int) -> list[dict[str, Any]]:
        """The devices of these grains as allocations and the wire name them."""
        found: list[dict[str, Any]] = []
        for device in self.devices:
            place = {"position": device.position, "uuid": device.uuid}
            here = grains & self._grains([device])
            if not here:
                continue
            if self.device_class == "gpu":
                found.append(place)
            elif self.device_class == "mig":
                here >>= device.position * MIG_PLACES
                found += [place | {"uuid": uuid, "index": i} for i, uuid in device.instances if here >> i & 1]
            else:
                here >>= device.position * SLOTS
                found += [place | {"slot": i} for i in range(here.bit_length()) if here >> i & 1]
        return found

    def _grains(self, devices: Iterable[DeviceView]) -> int:
        mask = 0
        for device in devices:
            if self.device_class == "gpu":
                mask |= 0 if device.divided else 1 << device.position
            elif self.device_class == "mig":
                for index, _ in device.instances:
                    mask |= 1 << (device.position * MIG_PLACES + index)
            else:
                mask |= ((1 << device.slots) - 1) << (device.position * SLOTS)
        return mask


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
    """A device that an allocation is about, as the node is told of it.

    Of a MIG instance ``uuid`` is its own and ``index`` its place on the GPU; of a slot, ``uuid`` is the GPU's.
    """

    position: int
    uuid: str
    device_class: str
    index: int | None = None
    slot: int | None = None

    def as_json(self) -> dict[str, Any]:
        """The shape on the wire and in the row."""
        shown = {"position": self.position, "uuid": self.uuid, "class": self.device_class}
        if self.index is not None:
            shown["index"] = self.index
        if self.slot is not None:
            shown["slot"] = self.slot
        return shown

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "AllocatedDevice":
        """Read it back from the row."""
        return cls(stored["position"], stored["uuid"], stored["class"], stored.get("index"), stored.get("slot"))


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
class LettingGo:
    """A node that has not yet let go of what it held for a reservation, with its last word: how many pods hold it.

    ``lost_at`` is set while the node is lost: its last contact. Times are epoch milliseconds.
    """

    reservation_id: str
    node_id: str
    holders: int
    last_heartbeat_at: int | None
    lost_at: int | None


@dataclass(frozen=True)
class NodeDetail:
    """A node as operators see it. ``host`` is what it last reported as bookable, by wire name.

    ``maintenances`` are those that are not over; ``unknown_allocations`` is what an adopting node holds and nobody
    here knows.
    """

    id: str
    name: str
    pool_id: str | None
    positions: int
    labels: Mapping[str, str]
    state: str
    cordoned: bool
    cordon_reason: str
    draining: bool
    lost_at: int | None
    removed_at: int | None
    host: Mapping[str, int]
    software: Mapping[str, Any]
    last_heartbeat_at: int | None
    created_at: int
    version: int
    taints: tuple[TaintView, ...]
    devices: tuple[DeviceDetail, ...]
    allocations: tuple[AllocationView, ...]
    maintenances: tuple[MaintenanceView, ...]
    unknown_allocations: tuple[Mapping[str, Any], ...]

    @property
    def host_amounts(self) -> tuple[int, int, int]:
        """What can be booked of its host, as in ``NodeView``."""
        return self.host.get("vcpu", 0) * 1000, self.host.get("memoryMiB", 0), self.host.get("hugepages1Gi", 0)


@dataclass(frozen=True)
class Told:
    """One allocation in the answer to a node. For one that nobody knows all but id and ``desired`` is None.

    ``generation`` is given from the second plan on.
    """

    reservation_id: str
    desired: str
    tenant_id: str | None = None
    binding: str | None = None
    devices: tuple[AllocatedDevice, ...] | None = None
    resources: Mapping[str, int] | None = None
    until: int | None = None
    generation: int | None = None


@dataclass(frozen=True)
class SyncAnswer:
    """What a node is told (NOD-2)."""

    session: int
    stale: bool
    allocations: tuple[Told, ...]
    taints: tuple[TaintView, ...]
    heartbeat_seconds: int
