"""Reading reservations: always through the tenant, never by bare id."""

from collections.abc import Collection, Iterator, Mapping
from decimal import Decimal
from typing import Any

from django.db import connection

from computeplatform.api.calls import Resource
from computeplatform.db.compiled import Compiled
from computeplatform.db.ticks import last_tick
from computeplatform.prepared import prepared_cursor
from fleet import queries as fleet
from fleet.contracts import UNITS_PER_NODE, NodeBooking, PoolView
from fleet.troubles import unit_base_of
from reservations.contracts import Standing, reservation_json
from reservations.domain import states
from reservations.domain.charges import estimated_cost, totals
from reservations.domain.extending import OPEN, Change
from reservations.domain.hosts import Amounts
from reservations.domain.lifecycle import pending_deadline
from reservations.domain.progress import Progress, operation
from reservations.domain.requests import HOUR, ReservationRequest, window_at
from reservations.errors import ReservationNotFound
from reservations.locks import BY_CALL, BY_RANK, due_rows, live_of_agents, open_drafts, ranked
from reservations.models import Reservation

# The tick row of the loop that retries what is pending; ``operation.nextTryAt`` is read from it.
PLACEMENT_TICK = "placement"
# How long after its call an unanswered draft is still finished (CRE-20).
CALL_OPEN = 60_000

# Among how many of those that wait the first in line is looked for, and how many of them one tenant can be.
_HEADS = 64
_OF_EACH = 8
_FIRST_PENDING = """
SELECT id FROM (
    SELECT id, priority, created_at,
        row_number() OVER (PARTITION BY priority, tenant_id ORDER BY created_at, id) AS turn
    FROM reservations_reservation
    WHERE pool_id = %s AND state = 'pending' AND NOT conditions @> '[{"reason": "NeverFits"}]'
) AS waiting WHERE turn <= %s ORDER BY priority DESC, turn, created_at, id LIMIT %s
"""

# Asked twice or thrice in every create.
_BY_ID = Compiled(lambda *, key: Reservation.objects.filter(id=key), "key")
_OF_TENANT = Compiled(
    lambda *, tenant_id, key: Reservation.objects.filter(tenant_id=tenant_id, id=key), "tenant_id", "key"
)


def by_key(reservation_id: str) -> Reservation | None:
    """The row of an idempotency key; the id is derived from the tenant and the caller, so it is theirs."""
    return _BY_ID.first(key=reservation_id)


def standing(row: Reservation) -> Standing:
    """What the row amounts to for a create call."""
    if row.state in (states.DRAFT, states.AWAITING_CONFIRMATION):
        if row.call_open_until is not None:
            return Standing(row.id, waiting=True)
        return Standing(row.id, waiting=False, refusal=(row.outcome or {})["refusal"])
    shown = reservation_json(row)
    admitted = (row.outcome or {})["reservation"]
    fits_later = all(condition["reason"] != "NeverFits" for condition in row.conditions)
    return Standing(
        row.id,
        waiting=False,
        shown=shown,
        # The row's JSON forgets the order in which people read the members.
        admitted={name: admitted[name] for name in (*shown, *admitted) if name in admitted},
        may_be_waited_for=row.state == states.PENDING and fits_later,
    )


def visible(*, tenant_id: str, reservation_id: str) -> Reservation:
    """The tenant's reservation; drafts of any kind are not there (GET-1). Raises ReservationNotFound."""
    row = _OF_TENANT.first(tenant_id=tenant_id, key=reservation_id)
    if row is None or row.state not in states.VISIBLE:
        raise ReservationNotFound
    return row


def any_state(*, tenant_id: str, reservation_id: str) -> Reservation:
    """The tenant's reservation, drafts included; one that IAM refused is not there. Raises ReservationNotFound."""
    row = _OF_TENANT.first(tenant_id=tenant_id, key=reservation_id)
    if row is None or row.state == states.DENIED:
        raise ReservationNotFound
    return row


def asked(row: Reservation) -> ReservationRequest:
    """The stored request, as far as its window and shape go, with what it was extended by."""
    return ReservationRequest(
        pool_id=row.pool_id,
        device_class=row.device_class,
        count=row.count,
        nodes=row.nodes,
        starts_at=row.requested_starts_at,
        ends_at=None if row.requested_ends_at is None else row.requested_ends_at + row.extended_by,
        duration=None if row.duration is None else row.duration + row.extended_by,
        start_before=row.start_before,
    )


def booked_on_each(row: Reservation) -> Amounts:
    """The host amounts that are booked on each of its nodes, the share included (HST-1)."""
    return Amounts(row.vcpu_milli, row.memory_mib, row.hugepages_1gi)


def share_on_each(row: Reservation) -> Amounts:
    """How much of that is the share of its GPUs, which is not charged (HST-5)."""
    return Amounts(row.share_vcpu_milli, row.share_memory_mib)


def cost_of(row: Reservation, *, milliseconds: int, price: Mapping[str, str] | None) -> Decimal:
    """What a window of that length costs, at a price in its wire form: the row's own once it is admitted (QTA-3)."""
    return estimated_cost(
        price, devices=row.count * row.nodes, nodes=row.nodes, booked=booked_on_each(row), milliseconds=milliseconds
    )


def give_up_at(row: Reservation, pool: PoolView) -> int:
    """When a pending reservation is given up at the latest (CRE-16)."""
    return pending_deadline(
        requested_ends_at=asked(row).ends_at,
        start_before=row.start_before,
        pending_since=row.pending_since or 0,
        max_pending=pool.policy.max_pending_hours * HOUR,
    )


def decision_resource(
    row: Reservation, pool: PoolView, *, now: int, change: Change | None = None, cost: Decimal | None = None
) -> Resource:
    """What IAM sees of a reservation (CRE-7): every attribute, always there, typed; counts over the whole gang.

    With a ``change`` it is the reservation as it would be after that, at this ``cost`` (EXT-2).
    """
    window = window_at(asked(row), now)
    starts_at = row.starts_at if row.starts_at is not None else window.starts_at
    ends_at = row.ends_at if row.ends_at is not None else window.ends_at
    devices = row.count * row.nodes
    return Resource(
        "compute-reservation",
        row.id,
        row.tenant_id,
        {
            "tenantId": row.tenant_id,
            "poolId": pool.id,
            "ownerTenantId": pool.tenant_id,
            "region": pool.region,
            "gpuModel": pool.gpu_model,
            "gpuCount": devices if row.device_class == "gpu" else 0,
            "deviceClass": row.device_class,
            "deviceCount": devices,
            "profile": row.profile,
            "sharing": row.sharing,
            "nodes": row.nodes,
            "binding": row.binding,
            "spot": row.spot,
            "priority": row.priority,
            "durationHours": change.duration_hours if change else -(-(ends_at - starts_at) // HOUR),
            "startsInHours": max(0, -(-(starts_at - now) // HOUR)),
            "leaseSeconds": row.lease_seconds or 0,
            **totals(booked_on_each(row), row.nodes),
            "estimatedCost": Decimal(row.estimated_cost) if cost is None else cost,
            "currency": row.currency,
            "creatorId": row.creator_id,
            "creatorKind": row.creator_kind,
            "creatorAgentId": row.creator_agent_id,
        },
    )


def pools_of(rows: Collection[Reservation]) -> Mapping[str, PoolView]:
    """The pools of these reservations, whatever has become of them."""
    return fleet.pools_by_id({row.pool_id for row in rows})


def progress_of(row: Reservation) -> dict[str, Any]:
    """``operation`` and, once a node reported devices bound, ``binding`` (GET-1)."""
    reported = fleet.allocations_of([row.id]).get(row.id, [])
    shown: dict[str, Any] = {
        "operation": operation(
            Progress(
                state=row.state,
                reason=row.reason,
                attempts=row.attempts,
                created_at=row.created_at,
                starts_at=row.starts_at,
                active_at=row.active_at,
                ended_at=row.ended_at,
                changed_at=row.changed_at,
                withdrawing=row.state in states.TERMINAL and bool(reported),
                may_be_held=row.binding == "kubernetes",
                last_retry_at=last_tick(PLACEMENT_TICK) if row.state == states.PENDING else None,
                extending_since=_extending_since(row),
                extended_at=row.extended_at,
            )
        )
    }
    # What a node of an earlier try still holds, or has bound too late, is being withdrawn and binds nothing.
    bound = [a for a in reported if a.desired == "bound" and a.observed == "bound"]
    if bound:
        shown["binding"] = [{"nodeId": a.node_id, "devices": [device.as_json() for device in a.devices]} for a in bound]
    return shown


def _extending_since(row: Reservation) -> int | None:
    change = Change.from_json(row.pending_change)
    return None if change is None else change.open_until - OPEN


def pools_with_open_drafts(*, now: int, called_before: int) -> list[str]:
    """Pools with a draft whose call is unanswered and came before the given time."""
    opened_before = called_before + CALL_OPEN
    rows = Reservation.objects.filter(call_open_until__gt=now, call_open_until__lte=opened_before)
    return list(rows.order_by("pool_id").values_list("pool_id", flat=True).distinct())


def open_draft_ids(*, pool_id: str, decided: bool, now: int, limit: int) -> list[str]:
    """The unanswered drafts of a pool that a pass of admission would work on, in its order."""
    rows = open_drafts(pool_id=pool_id, decided=decided, now=now).order_by(*BY_CALL)
    return list(rows.values_list("id", flat=True)[:limit])


def pending_ids(*, pool_id: str, limit: int) -> list[str]:
    """The pending reservations of a pool that a pass of placement would try, in the order in which it reads them."""
    rows = ranked(Reservation.objects.filter(pool_id=pool_id, state=states.PENDING)).order_by(*BY_RANK)
    return list(rows.values_list("id", flat=True)[:limit])


def first_pending(pool_id: str) -> list[Reservation]:
    """Of those that wait in a pool and could ever fit, the oldest of each tenant and priority, the highest first."""
    with prepared_cursor() as cursor:
        cursor.execute(_FIRST_PENDING, [pool_id, _OF_EACH, _HEADS])
        ids = [row_id for (row_id,) in cursor.fetchall()]
    return list(Reservation.objects.filter(id__in=ids)) if ids else []


def pools_with_pending() -> list[str]:
    """Pools in which something waits."""
    rows = Reservation.objects.filter(state=states.PENDING)
    return list(rows.order_by("pool_id").values_list("pool_id", flat=True).distinct())


def pools_of_agents(agents: Collection[str]) -> list[str]:
    """Pools in which something lives that these agents have reserved."""
    return list(live_of_agents(agents).order_by("pool_id").values_list("pool_id", flat=True).distinct())


def pools_with_queued(*, since: int, until: int) -> list[str]:
    """Pools in which something was queued in ``[since, until)`` and has not had its turn."""
    rows = Reservation.objects.filter(queued_at__gte=since, queued_at__lt=until)
    return list(rows.order_by("pool_id").values_list("pool_id", flat=True).distinct())


def pools_with_due(*, now: int) -> list[str]:
    """Pools in which the reconciler has something to look at."""
    return list(due_rows(now=now).order_by("pool_id").values_list("pool_id", flat=True).distinct())


def due_ids(*, now: int, pool_id: str, woken: bool, limit: int) -> list[str]:
    """The reservations that the reconciler has to look at, most overdue first."""
    rows = due_rows(now=now, pool_id=pool_id, woken=woken).order_by("due_at", "id")
    return list(rows.values_list("id", flat=True)[:limit])


_ON_NODE = """
SELECT reservation_id, tenant_id, sum(devices), min(lower(during)), max(upper(during)) FROM reservations_booking
WHERE units && int8range(%(base)s, %(base)s + %(span)s) AND during && int8range(%(from)s, %(until)s)
    AND node_id = %(node)s
GROUP BY reservation_id, tenant_id ORDER BY 4, 1
"""


def bookings_on_node(node_id: str, *, starts_at: int, ends_at: int | None) -> list[NodeBooking]:
    """What is booked on a node at any time of ``[starts_at, ends_at)``, by reservation; the earliest first.

    ``ends_at`` None: for ever. The fleet asks this through its port. The index over units answers it, so the history
    of the pool costs nothing.
    """
    values: dict[str, Any] = {"base": unit_base_of(node_id), "span": UNITS_PER_NODE, "node": node_id}
    with connection.cursor() as cursor:
        cursor.execute(_ON_NODE, values | {"from": starts_at, "until": ends_at})
        return [NodeBooking(row[0], row[1], int(row[2]), row[3], row[4]) for row in cursor.fetchall()]


def named_decisions(tenant_id: str | None) -> Iterator[tuple[str, str]]:
    """Reservations with the decision that each of them names, one by one; of all tenants if none is given."""
    rows = Reservation.objects.exclude(decision_id="")
    if tenant_id is not None:
        rows = rows.filter(tenant_id=tenant_id)
    yield from rows.values_list("id", "decision_id").iterator(1_000)
