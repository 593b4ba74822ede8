"""What a tenant asks for, and the rules that a pool and the clock put on it (CRE-10)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from computeplatform.errors import Issue

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR

BINDINGS = ("hold", "node", "kubernetes")
HOST_AMOUNTS = ("vcpu", "memoryGiB", "hugepages1Gi")
DEFAULT_PRIORITY = 50
MAX_DEVICES = 65_536
# A start up to this far past means "now": the caller's clock, or the way here, was slow.
START_TOLERANCE = MINUTE


@dataclass(frozen=True, kw_only=True)
class ReservationRequest:
    """The input of create after parsing; times in epoch milliseconds, ``duration`` in milliseconds."""

    pool_id: str
    device_class: str
    count: int
    nodes: int = 1
    profile: str = ""
    sharing: str = ""
    starts_at: int | None = None
    ends_at: int | None = None
    duration: int | None = None
    start_before: int | None = None
    spot: bool = False
    priority: int | None = None
    binding: str = "hold"
    resources: Mapping[str, int] | None = None
    lease_seconds: int | None = None
    name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    max_cost: str = ""
    dry_run: bool = False

    def compared(self) -> dict[str, Any]:
        """What a repeated key is compared by (CRE-3). ``sharing`` has its default from the pool, so it is compared
        with the stored one; ``wait`` is no part of a request."""
        return {
            "poolId": self.pool_id,
            "class": self.device_class,
            "count": self.count,
            "nodes": self.nodes,
            "profile": self.profile,
            "startsAt": self.starts_at,
            "endsAt": self.ends_at,
            "duration": self.duration,
            "startBefore": self.start_before,
            "spot": self.spot,
            "priority": DEFAULT_PRIORITY if self.priority is None else self.priority,
            "binding": self.binding,
            "resources": self._amounts(),
            "leaseSeconds": self.lease_seconds,
            "name": self.name,
            "labels": dict(self.labels),
            "maxCost": f"{Decimal(self.max_cost).normalize():f}" if self.max_cost else "",
        }

    def _amounts(self) -> dict[str, int] | None:
        """No ``resources`` and empty ones are two requests; a member left out is 0."""
        if self.resources is None:
            return None
        return {name: self.resources.get(name, 0) for name in HOST_AMOUNTS}

    def shape_issues(self) -> Iterator[Issue]:
        """What is wrong whatever the pool and the time."""
        if (self.ends_at is None) == (self.duration is None):
            yield Issue("endsAt", "give exactly one of endsAt and durationSeconds")
        if self.count * self.nodes > MAX_DEVICES:
            yield Issue("nodes", f"count x nodes must be at most {MAX_DEVICES}")
        if self.device_class == "mig" and not self.profile:
            yield Issue("devices.profile", "is required for class mig")
        if self.device_class != "mig" and self.profile:
            yield Issue("devices.profile", "is only for class mig")
        if self.binding == "node" and self.resources is not None:
            yield Issue("resources", "cannot be given with binding node")
        if self.starts_at is not None and self.ends_at is not None and self.ends_at <= self.starts_at:
            yield Issue("endsAt", "must be after startsAt")
        if self.start_before is not None and self.starts_at is not None and self.start_before <= self.starts_at:
            yield Issue("startBefore", "must be after startsAt")


@dataclass(frozen=True)
class PoolRules:
    """What of a pool, as the tenant sees it, a request is checked against."""

    device_class: str
    sharing: str
    profile: str
    owned: bool
    tenant_root: bool
    kubernetes: bool
    max_priority: int
    max_duration_hours: int
    max_advance_days: int


def pool_issues(request: ReservationRequest, pool: PoolRules, *, now: int) -> Iterator[Issue]:
    """What is wrong for this pool at this time. Empty when the request may be stored as a draft."""
    if request.device_class != pool.device_class:
        yield Issue("devices.class", f"the pool's devices are of class {pool.device_class}")
    if request.profile and request.profile != pool.profile:
        yield Issue("devices.profile", f"the pool's profile is {pool.profile or 'none'}")
    if request.sharing and request.sharing != pool.sharing:
        yield Issue("devices.sharing", f"the pool's sharing mode is {pool.sharing}")
    if request.binding == "node" and not pool.tenant_root:
        yield Issue("binding", "the pool has no tenantRoot in its policy, so nothing can be bound on its nodes")
    if request.binding == "kubernetes" and not (pool.kubernetes and pool.owned):
        yield Issue("binding", "needs a pool with a kubernetes policy that the tenant owns")
    if request.priority is not None and request.priority > pool.max_priority:
        yield Issue("priority", f"is over the {pool.max_priority} that the tenant may use in this pool")
    yield from _window_issues(request, pool, now)


def _window_issues(request: ReservationRequest, pool: PoolRules, now: int) -> Iterator[Issue]:
    if request.starts_at is not None and request.starts_at < now - START_TOLERANCE:
        yield Issue("startsAt", "is more than 60 seconds in the past")
    if request.ends_at is not None and request.ends_at <= now:
        yield Issue("endsAt", "is in the past")
    if request.start_before is not None and request.start_before <= now:
        yield Issue("startBefore", "is in the past")
    window = window_at(request, now)
    if window.ends_at - window.starts_at > pool.max_duration_hours * HOUR:
        field_name = "endsAt" if request.ends_at is not None else "durationSeconds"
        yield Issue(field_name, f"the window is longer than the pool's {pool.max_duration_hours} hours")
    if window.starts_at - now > pool.max_advance_days * DAY:
        yield Issue("startsAt", f"is more than the pool's {pool.max_advance_days} days ahead")


@dataclass(frozen=True)
class Window:
    """Half-open ``[starts_at, ends_at)``, epoch milliseconds."""

    starts_at: int
    ends_at: int

    @property
    def hours(self) -> int:
        """Whole hours, rounded up."""
        return -(-(self.ends_at - self.starts_at) // HOUR)


def window_at(request: ReservationRequest, now: int) -> Window:
    """The window if it were placed now (CRE-16): never before ``starts_at``; a fixed one keeps its end, a sliding one
    its length."""
    start = now if request.starts_at is None else max(request.starts_at, now)
    if request.ends_at is not None:
        return Window(start, request.ends_at)
    return Window(start, start + (request.duration or 0))
