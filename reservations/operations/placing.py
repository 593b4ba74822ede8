"""Placing: what was just admitted, and what waits (CRE-14, REC-3). Callers hold the pool's lock."""

from collections.abc import Collection, Sequence
from functools import partial

from computeplatform.api.calls import Actor, system_actor
from computeplatform.conditions import Condition, from_json, to_json, with_condition, without_condition
from computeplatform.db.locks import Line, in_line, notify
from computeplatform.db.retry import in_transaction
from computeplatform.parking import CHANNEL
from computeplatform.wakes import wake
from fleet.contracts import AllocatedDevice, NewAllocation, PoolView
from fleet.operations import allocations
from reservations import locks, queries
from reservations.contracts import reservation_json
from reservations.domain import lifecycle, requests
from reservations.domain.charges import device_resource
from reservations.domain.order import Waiting, WaitingOrder
from reservations.domain.placement import Assignment, Demand, Placer, Shortfall
from reservations.models import Reservation
from reservations.operations.bookings import Snapshot, book, devices_held, snapshot
from reservations.operations.isolation import isolated
from reservations.operations.state import Changes
from reservations.queries import asked

UNSCHEDULABLE = "Unschedulable"
LOOP = "capacity.placement"
# How many pending reservations one pass looks at.
PASS_LIMIT = 10_000


def place_admitted(rows: Sequence[Reservation], pool: PoolView, changes: Changes, *, now: int) -> None:
    """Place charged drafts in the order of their calls; each gets the answer that its call waits for.

    Whoever called has done it, whichever worker carries it out: the events are theirs (EVT-1).
    """
    if not rows:
        return
    taken = _snapshot_for(rows, pool, now=now)
    placer = Placer(taken.hosts)
    placed: list[Reservation] = []
    for row in rows:
        row.call_open_until = None
        by = Actor(row.creator_id, row.creator_agent_id, row.context["requestId"])
        found = placer.place(demand_of(row, now=now))
        if isinstance(found, Assignment):
            _place(row, found, taken, changes, "admit-placed", by=by)
            placed.append(row)
        else:
            row.pending_since = now
            changes.move(row, "admit-pending", data={"why": found.reason}, by=by)
            _explain(row, found, pool, now=now)
        row.outcome = {"reservation": reservation_json(row)}
    _book(placed, taken, pool, now=now)


def place_waiting(pool_id: str, *, now: int) -> None:
    """Try everything that waits in the pool; one at which that fails waits on, and the others go on without it.

    Where another pass waits for the pool's lock already, that one does it.
    """
    with in_line(f"placement:{pool_id}") as line:
        if line is not None:
            isolated(
                partial(place_pending, pool_id=pool_id, now=now, line=line),
                due=partial(queries.pending_ids, pool_id=pool_id, limit=PASS_LIMIT),
                give_up=_leave_waiting,
            )


def _leave_waiting(reservation_id: str) -> None:
    """Nothing to do: it is pending as before, and the next pass tries it again."""


@in_transaction
def place_pending(*, pool_id: str, now: int, only: Collection[str] | None = None, line: Line | None = None) -> int:
    """Try everything that waits in the pool, in the order of REC-3; returns how many were placed."""
    pool, now = locks.lock_pool(pool_id, now=now, line=line)
    rows = locks.claim_pending(pool_id=pool_id, limit=PASS_LIMIT, only=only)
    if not rows:
        return 0
    changes = Changes(by=system_actor(LOOP), now=now)
    by_id = {row.id: row for row in rows if not _expired(row, pool, now=now)}
    taken = _snapshot_for(list(by_id.values()), pool, now=now)
    placer = Placer(taken.hosts)
    order = WaitingOrder([_waiting(row) for row in by_id.values()], devices_held(pool_id, now=now))
    placed: list[Reservation] = []
    for item in order:
        row = by_id[item.id]
        found = placer.place(demand_of(row, now=now))
        if isinstance(found, Assignment):
            order.took(item)
            _place(row, found, taken, changes, "place")
            placed.append(row)
        elif _explain(row, found, pool, now=now):
            changes.revise(row)
    _book(placed, taken, pool, now=now)
    changes.write()
    notify(CHANNEL, [row.id for row in placed])
    return len(placed)


def _expired(row: Reservation, pool: PoolView, *, now: int) -> bool:
    """Too late to be placed; the reconciler cancels it (CRE-16)."""
    return _give_up_at(row, pool) <= now


def _give_up_at(row: Reservation, pool: PoolView) -> int:
    return lifecycle.pending_deadline(
        requested_ends_at=row.requested_ends_at,
        start_before=row.start_before,
        pending_since=row.pending_since or 0,
        max_pending=pool.policy.max_pending_hours * requests.HOUR,
    )


def _waiting(row: Reservation) -> Waiting:
    return Waiting(row.id, row.tenant_id, row.priority, row.created_at, row.count * row.nodes)


def demand_of(row: Reservation, *, now: int) -> Demand:
    """What is to be placed for the row if it is placed now."""
    window = requests.window_at(asked(row), now)
    return Demand(
        id=row.id,
        count=row.count,
        nodes=row.nodes,
        starts_at=window.starts_at,
        ends_at=window.ends_at,
        resource=device_resource(row.device_class, row.profile),
    )


def _snapshot_for(rows: Sequence[Reservation], pool: PoolView, *, now: int) -> Snapshot:
    demands = [demand_of(row, now=now) for row in rows]
    first = min((d.starts_at for d in demands), default=now)
    last = max((d.ends_at for d in demands), default=now + 1)
    return snapshot(pool.id, starts_at=first, ends_at=last)


def _place(
    row: Reservation, found: Assignment, taken: Snapshot, changes: Changes, event: str, *, by: Actor | None = None
) -> None:
    row.starts_at, row.ends_at = found.demand.starts_at, found.demand.ends_at
    row.placement = [{"nodeId": node, "devices": taken.devices(node, mask)} for node, mask in found.hosts]
    row.pending_since = None
    row.due_at = row.starts_at
    row.conditions = to_json(without_condition(from_json(row.conditions), UNSCHEDULABLE))
    changes.move(row, event, data={"startsAt": row.starts_at, "endsAt": row.ends_at}, by=by)


def _explain(row: Reservation, why: Shortfall, pool: PoolView, *, now: int) -> bool:
    """Say why it does not fit; True if that says anything new."""
    row.due_at = _give_up_at(row, pool)
    told = Condition(UNSCHEDULABLE, "True", why.reason, why.message, now)
    conditions = to_json(with_condition(from_json(row.conditions), told))
    changed = bool(conditions != row.conditions)
    row.conditions = conditions
    return changed


def _book(placed: Sequence[Reservation], taken: Snapshot, pool: PoolView, *, now: int) -> None:
    """Bookings and allocations of everything that was placed; what starts at once wakes the reconciler."""
    if not placed:
        return
    book(placed, taken)
    allocations.plan(
        [
            NewAllocation(
                reservation_id=row.id,
                tenant_id=row.tenant_id,
                pool_id=row.pool_id,
                node_id=part["nodeId"],
                binding=row.binding,
                devices=tuple(
                    AllocatedDevice(device["position"], device["uuid"], row.device_class) for device in part["devices"]
                ),
                resources={},
                until=row.ends_at or 0,
            )
            for row in placed
            for part in row.placement
        ]
    )
    if any(row.due_at is not None and row.due_at <= now for row in placed):
        wake("reconcile", pool.id)
