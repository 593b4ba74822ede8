"""The pages of ``reservations/list``: newest first, the caller's own or all that the caller may read (CONTRACT §4).

A page begins past a mark, ``(created_at, id)`` of the last reservation before it. Both never change, so whatever is
created or ends between two calls, nothing is repeated and nothing skipped (LST-3).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import cast

from django.db.models import Q, QuerySet

from computeplatform.api.calls import CallContext, Caller
from fleet.contracts import PoolView
from iam.queries.row_checks import RowChecks
from reservations.domain import states
from reservations.models import Reservation
from reservations.queries import decision_resource, pools_of

READ = "compute:reservations:read"
# How many rows one call looks at, at most (LST-2), and how many of them it fetches at a time.
SCAN_LIMIT = 10_000
CHUNK = 500

Mark = tuple[int, str]

# Which columns each attribute of a reservation comes from (CRE-7), beside its pool and the time of the call.
_WINDOW = (
    *("requested_starts_at", "requested_ends_at", "extended_by", "duration", "start_before"),
    *("starts_at", "ends_at"),
)
COLUMNS_OF: dict[str, tuple[str, ...]] = {
    "tenantId": ("tenant_id",),
    "poolId": ("pool_id",),
    "ownerTenantId": ("pool_id",),
    "region": ("pool_id",),
    "gpuModel": ("pool_id",),
    "gpuCount": ("device_class", "count", "nodes"),
    "deviceClass": ("device_class",),
    "deviceCount": ("count", "nodes"),
    "profile": ("profile",),
    "sharing": ("sharing",),
    "nodes": ("nodes",),
    "binding": ("binding",),
    "spot": ("spot",),
    "priority": ("priority",),
    "durationHours": _WINDOW,
    "startsInHours": _WINDOW,
    "leaseSeconds": ("lease_seconds",),
    "vcpu": ("vcpu_milli", "nodes"),
    "memoryGiB": ("memory_mib", "nodes"),
    "hugepages1Gi": ("hugepages_1gi", "nodes"),
    "estimatedCost": ("estimated_cost",),
    "currency": ("currency",),
    "creatorId": ("creator_id",),
    "creatorKind": ("creator_kind",),
    "creatorAgentId": ("creator_agent_id",),
}
# All that is needed to decide on a row and to go on past it: a third of its columns, and none of the large ones.
_COLUMNS = tuple(sorted({"id", "created_at", *(column for columns in COLUMNS_OF.values() for column in columns)}))


@dataclass(frozen=True)
class Filters:
    """Which reservations of a tenant a list is about; no state, no pool: all."""

    tenant_id: str
    states: Collection[str] = ()
    pool_id: str | None = None


@dataclass(frozen=True)
class Page:
    """Some reservations. ``more``: the next page begins past the last of them; ``stopped_at``: past this mark."""

    rows: Sequence[Reservation]
    more: bool = False
    stopped_at: Mark | None = None


def own_page(filters: Filters, *, creator_id: str, after: Mark | None, limit: int) -> Page:
    """What one principal has reserved, whichever of its agents acted."""
    rows = list(_rows(filters, after).filter(creator_id=creator_id)[: limit + 1])
    return Page(rows[:limit], more=len(rows) > limit)


def readable_page(filters: Filters, *, caller: Caller, context: CallContext, after: Mark | None, limit: int) -> Page:
    """What the caller may read, each reservation checked on itself and none of these checks recorded.

    A page is short only at the end, or where ``SCAN_LIMIT`` rows have been looked at. There is ``more`` only where a
    further reservation may be read, so that the answer does not tell of hidden ones.
    """
    reader = _Reader(RowChecks(caller, READ, context=context), now=context.time)
    found: list[Reservation] = []
    looked, whole = 0, True
    while looked < SCAN_LIMIT:
        # Mostly little is hidden: the first rows are fetched as a whole. Those past them are mostly to be passed over.
        size = min(limit + 1 if whole else CHUNK, SCAN_LIMIT - looked)
        rows = list(_rows(filters, after)[:size]) if whole else _glimpses(filters, after, size)
        seen, readable = reader.look(rows, wanted=limit + 1 - len(found))
        # Glimpsed is not read: what has changed meanwhile is checked as it is shown.
        found += readable if whole else filter(reader.may_read, _whole(filters, readable))
        if len(found) > limit:
            return Page(found[:limit], more=True)
        if seen == len(rows) < size:
            return Page(found)
        after = (rows[seen - 1].created_at, rows[seen - 1].id)
        looked, whole = looked + seen, False
    return Page(found, stopped_at=after if _rows(filters, after).exists() else None)


def mark_of(*, tenant_id: str, reservation_id: str) -> Mark | None:
    """Where a reservation stands in the lists; None for one that no list shows."""
    shown = Reservation.objects.filter(tenant_id=tenant_id, id=reservation_id, state__in=states.VISIBLE)
    return shown.values_list("created_at", "id").first()


class _Reader:
    """Whether the caller may read a row. Rows that are alike in what policies look at are decided on once."""

    def __init__(self, checks: RowChecks, *, now: int) -> None:
        self._checks, self._now = checks, now
        self._pools: dict[str, PoolView] = {}
        self._known: dict[object, bool] = {}
        looked_at = {column for name in checks.attributes for column in COLUMNS_OF.get(name, ())}
        self._sight = attrgetter("tenant_id", *sorted(looked_at))

    def look(self, rows: Sequence[Reservation], *, wanted: int) -> tuple[int, list[Reservation]]:
        """Goes through the rows until so many may be read: how many were looked at, and those."""
        if unknown := [row for row in rows if row.pool_id not in self._pools]:
            self._pools |= pools_of(unknown)
        readable: list[Reservation] = []
        for seen, row in enumerate(rows, start=1):
            if self.may_read(row):
                readable.append(row)
                if len(readable) == wanted:
                    return seen, readable
        return len(rows), readable

    def may_read(self, row: Reservation) -> bool:
        sight = self._sight(row), row.id in self._checks.named and row.id
        known = self._known.get(sight)
        if known is None:
            resource = decision_resource(row, self._pools[row.pool_id], now=self._now)
            known = self._known[sight] = self._checks.permits(resource)
        return known


def _rows(filters: Filters, after: Mark | None) -> QuerySet[Reservation]:
    """The reservations of a list past a mark, newest first (LST-1)."""
    rows = Reservation.objects.filter(tenant_id=filters.tenant_id).exclude(state__in=sorted(states.DRAFT_STATES))
    if filters.states:
        rows = rows.filter(state__in=sorted(filters.states))
    if filters.pool_id is not None:
        rows = rows.filter(pool_id=filters.pool_id)
    if after is not None:
        created_at, last_id = after
        # The first condition follows from the second, but it is the one that begins in the middle of an index.
        rows = rows.filter(Q(created_at__lt=created_at) | Q(id__lt=last_id), created_at__lte=created_at)
    return rows.order_by("-created_at", "-id")


def _glimpses(filters: Filters, after: Mark | None, limit: int) -> list[Reservation]:
    """As much of each row as is needed to decide on it; making a whole object of it costs ten times that."""
    glimpsed = _rows(filters, after).values_list(*_COLUMNS, named=True)[:limit]
    return cast("list[Reservation]", list(glimpsed))


def _whole(filters: Filters, glimpsed: Sequence[Reservation]) -> list[Reservation]:
    """The rows that were glimpsed, if the list is still about them."""
    return list(_rows(filters, None).filter(id__in=[row.id for row in glimpsed])) if glimpsed else []
