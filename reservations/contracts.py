"""What reservations show to others: the shapes of the wire (API-10, CONTRACT §15), apart from the columns."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from computeplatform.quantities import money
from reservations.domain.charges import MIB_PER_GIB, MILLI
from reservations.domain.states import BOOKED, RELEASED
from reservations.models import Reservation


@dataclass(frozen=True)
class Standing:
    """What a key's reservation amounts to for a create call.

    ``waiting``: a draft that a worker is to decide; ``refusal``: what a resting draft was answered; else ``shown`` is
    the reservation as it is stored, ``admitted`` as its admission committed it, and ``may_be_waited_for`` says that it
    is pending for capacity that can come (CRE-15).
    """

    id: str
    waiting: bool
    refusal: dict[str, Any] | None = None
    shown: dict[str, Any] | None = None
    admitted: dict[str, Any] | None = None
    may_be_waited_for: bool = False

    @property
    def admitted_as(self) -> str | None:
        """The state that admission gave it."""
        return self.admitted["state"] if self.admitted else None


def reservation_json(row: Reservation) -> dict[str, Any]:
    """A reservation on the wire; absent members are left out."""
    devices: dict[str, Any] = {"class": row.device_class, "count": row.count, "sharing": row.sharing}
    if row.profile:
        devices["profile"] = row.profile
    creator = {"principal": row.creator_id} | ({"agent": row.creator_agent_id} if row.creator_agent_id else {})
    shown: dict[str, Any] = {
        "id": row.id,
        "tenantId": row.tenant_id,
        "state": row.state,
        "reason": row.reason or None,
        "conditions": row.conditions,
        "poolId": row.pool_id,
        "devices": devices,
        "nodes": row.nodes,
        "binding": row.binding,
        "resources": resources_json(row),
        "spot": row.spot,
        "priority": row.priority,
        "name": row.name or None,
        "labels": row.labels,
        "requested": _requested(row),
        "startsAt": row.starts_at,
        "endsAt": row.ends_at,
        "releasedAt": row.ended_at if row.state == RELEASED else None,
        "leaseSeconds": row.lease_seconds,
        "leaseExpiresAt": row.lease_expires_at if row.state in BOOKED else None,
        "estimatedCost": money(Decimal(row.estimated_cost)),
        "currency": row.currency or None,
        "createdAt": row.created_at,
        "createdBy": creator,
        "placement": row.placement or None,
        "version": row.version,
    }
    return {key: value for key, value in shown.items() if value is not None}


def request_json(row: Reservation) -> dict[str, Any]:
    """The stored request in the words of create, with the priority in force: what a person confirms (IAM-6)."""
    devices: dict[str, Any] = {"class": row.device_class, "count": row.count, "sharing": row.sharing}
    if row.profile:
        devices["profile"] = row.profile
    asked: dict[str, Any] = {
        "poolId": row.pool_id,
        "devices": devices,
        "nodes": row.nodes,
        "binding": row.binding,
        **_requested(row),
        "resources": row.requested_resources,
        "spot": row.spot,
        "priority": row.priority,
        "leaseSeconds": row.lease_seconds,
        "name": row.name or None,
        "labels": row.labels or None,
        "maxCost": None if row.max_cost is None else money(row.max_cost),
    }
    return {key: value for key, value in asked.items() if value is not None}


def resources_json(row: Reservation) -> dict[str, int | float]:
    """The host amounts that are booked on each node, the share included; empty where none are.

    Exact numbers: thousandths of a vCPU, and GiB that are a number of MiB.
    """
    if not (row.vcpu_milli or row.memory_mib or row.hugepages_1gi):
        return {}
    return {
        "vcpu": _number(row.vcpu_milli, MILLI),
        "memoryGiB": _number(row.memory_mib, MIB_PER_GIB),
        "hugepages1Gi": row.hugepages_1gi,
    }


def _number(amount: int, unit: int) -> int | float:
    whole, rest = divmod(amount, unit)
    return amount / unit if rest else whole


def _requested(row: Reservation) -> dict[str, Any]:
    asked = {
        "startsAt": row.requested_starts_at,
        "endsAt": row.requested_ends_at,
        "durationSeconds": row.duration // 1000 if row.duration is not None else None,
        "startBefore": row.start_before,
    }
    return {key: value for key, value in asked.items() if value is not None}
