"""A pool's policy: typed, every member with its default (CONTRACT §15)."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any


@dataclass(frozen=True)
class PerGpu:
    """The share of the host that goes with each GPU, in whole vCPUs and GiB (HST-2)."""

    vcpu: int
    memory_gib: int


@dataclass(frozen=True)
class Price:
    """What an hour costs, in exact decimals of one currency (QTA-3)."""

    per_device_hour: Decimal
    currency: str
    per_vcpu_hour: Decimal | None = None
    per_gib_hour: Decimal | None = None


@dataclass(frozen=True)
class Policy:
    """What holds in a pool. Durations name their unit."""

    tenant_root: str | None = None
    kubernetes_cluster: str | None = None
    per_gpu: PerGpu | None = None
    placer: str = "inline"
    preempt_spot: bool = True
    budget_check: bool = False
    price: Price | None = None
    max_duration_hours: int = 720
    max_advance_days: int = 90
    node_lost_grace_seconds: int = 300
    bind_timeout_seconds: int = 300
    max_pending_hours: int = 168
    spot_notice_seconds: int = 0
    agents_need_lease: bool = False

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Policy":
        """The policy from its wire form. Absent members have their defaults; whoever takes input has checked it."""
        plain = {name: stored[member] for member, name in _PLAIN.items() if member in stored}
        return cls(
            **plain,
            kubernetes_cluster=stored["kubernetes"]["cluster"] if "kubernetes" in stored else None,
            per_gpu=_per_gpu(stored["perGpu"]) if "perGpu" in stored else None,
            price=_price(stored["price"]) if "price" in stored else None,
        )

    def merged(self, changes: Mapping[str, Any]) -> "Policy":
        """The policy with these members in the place of its own; one that is None has its default again.

        A member that is an object (``kubernetes``, ``perGpu``, ``price``) is replaced as a whole.
        """
        whole = self.as_json() | dict(changes)
        return Policy.from_json({member: value for member, value in whole.items() if value is not None})

    def as_json(self) -> dict[str, Any]:
        """The wire form, defaults written out; members without a value are left out."""
        shown: dict[str, Any] = {member: getattr(self, name) for member, name in _PLAIN.items()}
        if self.kubernetes_cluster is not None:
            shown["kubernetes"] = {"cluster": self.kubernetes_cluster}
        if self.per_gpu is not None:
            shown["perGpu"] = {"vcpu": self.per_gpu.vcpu, "memoryGiB": self.per_gpu.memory_gib}
        if self.price is not None:
            shown["price"] = _price_json(self.price)
        return {member: value for member, value in shown.items() if value is not None}


# Members that are stored as they are, by their names on the wire.
_PLAIN = {
    "tenantRoot": "tenant_root",
    "placer": "placer",
    "preemptSpot": "preempt_spot",
    "budgetCheck": "budget_check",
    "maxDurationHours": "max_duration_hours",
    "maxAdvanceDays": "max_advance_days",
    "nodeLostGraceSeconds": "node_lost_grace_seconds",
    "bindTimeoutSeconds": "bind_timeout_seconds",
    "maxPendingHours": "max_pending_hours",
    "spotNoticeSeconds": "spot_notice_seconds",
    "agentsNeedLease": "agents_need_lease",
}


def _per_gpu(stored: Mapping[str, Any]) -> PerGpu:
    return PerGpu(stored["vcpu"], stored["memoryGiB"])


def _price(stored: Mapping[str, Any]) -> Price:
    extra = {
        name: Decimal(stored[member])
        for member, name in (("perVcpuHour", "per_vcpu_hour"), ("perGiBHour", "per_gib_hour"))
        if member in stored
    }
    return Price(Decimal(stored["perDeviceHour"]), stored["currency"], **extra)


def _price_json(price: Price) -> dict[str, str]:
    amounts = {
        "perDeviceHour": price.per_device_hour,
        "perVcpuHour": price.per_vcpu_hour,
        "perGiBHour": price.per_gib_hour,
    }
    return {k: str(v) for k, v in amounts.items() if v is not None} | {"currency": price.currency}
