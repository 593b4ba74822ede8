"""The host amounts that a request books on each node: what it asks for, its GPUs' share at least (HST-2 … HST-4)."""

from collections.abc import Mapping

from reservations.domain.charges import MIB_PER_GIB, MILLI
from reservations.domain.hosts import NOTHING, Amounts


def share_of(device_class: str, count: int, per_gpu: Amounts) -> Amounts:
    """What goes with ``count`` devices by themselves: only whole GPUs have a share."""
    if device_class != "gpu":
        return NOTHING
    return Amounts(per_gpu.vcpu_milli * count, per_gpu.memory_mib * count)


def booked(asked: Mapping[str, int] | None, share: Amounts) -> Amounts:
    """What is booked on each node: the share is the floor, whatever was asked for, and all where nothing was."""
    wanted = asked or {}
    return Amounts(
        max(share.vcpu_milli, wanted.get("vcpu", 0) * MILLI),
        max(share.memory_mib, wanted.get("memoryGiB", 0) * MIB_PER_GIB),
        wanted.get("hugepages1Gi", 0),
    )
