"""Placing: what was just admitted, and what waits (CRE-14, REC-3). Callers hold the pool's lock."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial

from computeplatform.api.calls import Actor, system_actor
from computeplatform.conditions import Condition, from_json, to_json, with_condition, without_condition
from computeplatform.db.retry import in_transaction
from computeplatform.wakes import wake
from fleet import queries as fleet
from fleet.contracts import AllocatedDevice, NewAllocation, PoolView
from fleet.operations import allocations
from reservations import locks, queries
from reservations.contracts import reservation_json
from reservations.domain.conditions import UNSCHEDULABLE
from reservations.domain.demands import Assignment, Demand, Outcome, Shortfall
from reservations.domain.line import InLine, Line
from reservations.domain.order import WaitingOrder
from reservations.domain.placement import Placer
from reservations.domain.shortfalls import NEVER_FITS
from reservations.models import Reservation
from reservations.operations.bookings import Snapshot, book, devices_held, snapshot
from reservations.operations.isolation import isolated
from reservations.operations.preempting import HaveVictims, Preemption, try_victims, wait_for_victims
from reservations.operations.queueing import leave_queue, placer_lease
from reservations.operations.state import Changes
from reservations.operations.terms import start_terms
from reservations.operations.waiting import beyond, demand_of, demands_of, first_in_line, in_line, waiting_of
from reservations.queries import cost_of, give_up_at

LOOP = "capacity.placement"
# How many pending reservations one pass looks at.
PASS_LIMIT = 10_000


def place_admitted(rows: Sequence[Reservation], pool: PoolView, changes: Changes, *, now: int) -> None:
    """Place charged drafts in the order of their calls; each gets the answer that its call waits for.

    Whoever called has done it, whichever worker carries it out: the events are theirs (EVT-1). One that comes while
    others wait is placed if that does not delay the first of them, or if it comes before that one itself (REC-9).
    """
    if not rows:
        return
    held = partial(devices_held, pool.id, now=now)
    entries = first_in_line(pool, now=now)
    demands = {row.id: demand_of(row, now=now) for row in rows}
    this = _Pass(demands, pool, changes, entries=entries, held=held, now=now, victims=try_victims)
    for row in rows:
        row.call_open_until = None
        row.pending_since = now
        by = Actor(row.creator_id, row.creator_agent_id, row.context["requestId"])
        found = this.try_to_place(row, "admit-placed", by=by)
        if isinstance(found, Shortfall):
            changes.move(row, "admit-pending", data={"why": found.reason}, by=by)
            _explain(row, found, pool, now=now)
        row.outcome = {"reservation": reservation_json(row)}
    this.finish()


def place_waiting(pool_id: str, *, now: int) -> None:
    """Try everything that waits in the pool; one at which that fails waits on, and the others go on without it.

    Where another pass waits for the pool's lease already, that one does it.
    """
    with placer_lease(pool_id) as mine:
        if mine:
            isolated(
                partial(place_pending, pool_id=pool_id, now=now),
                due=partial(queries.pending_ids, pool_id=pool_id, limit=PASS_LIMIT),
                give_up=_leave_waiting,
            )


def _leave_waiting(reservation_id: str) -> None:
    """Nothing to do: it is pending as before, and the next pass tries it again."""


@in_transaction
def place_pending(*, pool_id: str, now: int, only: Collection[str] | None = None) -> int:
    """Try everything that waits in the pool, in the order of REC-3; returns how many were placed.

    ``only``: these alone, in a transaction that has made them leave their nodes.
    """
    pool, now = locks.lock_pool(pool_id, now=now)
    rows = locks.claim_pending(pool_id=pool_id, limit=PASS_LIMIT, only=only)
    if not rows:
        return 0
    changes = Changes(by=system_actor(LOOP), now=now)
    wanted = list(_still_wanted(rows, pool, changes, now=now))
    demands = demands_of(wanted, now=now)
    by_id = {row.id: row for row in wanted if row.id in demands}
    if not by_id:
        changes.write()
        return 0
    held = devices_held(pool_id, now=now)
    # Of all that waits the order says who is the first in line; some of it are behind that one, or before it.
    others = [] if only is None else [entry for entry in first_in_line(pool, now=now) if entry.waiting.id not in by_id]
    this = _Pass(
        demands,
        pool,
        changes,
        entries=others,
        held=lambda: held,
        now=now,
        # Whoever has left nodes before this holds their allocations.
        victims=wait_for_victims if only is None else try_victims,
        in_order=only is None,
    )
    order = WaitingOrder([waiting_of(row) for row in by_id.values()], held)
    for item in order:
        row = by_id[item.id]
        found = this.try_to_place(row, "place")
        if isinstance(found, Assignment):
            order.took(item)
        elif _explain(row, found, pool, now=now):
            changes.revise(row)
    placed = this.finish()
    changes.write()
    return placed


def _still_wanted(rows: Sequence[Reservation], pool: PoolView, changes: Changes, *, now: int) -> Iterator[Reservation]:
    """Those that may be placed; the reconciler cancels the others (CRE-16, POL-3)."""
    may_book = frozenset() if pool.archived_at is not None else fleet.tenants_that_may_book(pool.id)
    for row in rows:
        if _expired(row, pool, now=now):
            # The pool's policy may have become stricter since its time was set.
            changes.touch(row)
            row.due_at = now
        elif row.tenant_id in may_book or row.reason:
            # With a reason it was placed before: a re-placement is no new booking.
            yield row


def _expired(row: Reservation, pool: PoolView, *, now: int) -> bool:
    """Too late to be placed; the reconciler cancels it (CRE-16)."""
    return give_up_at(row, pool) <= now


class _Pass:
    """One pass of placement over a pool: its snapshot, which fills up, and what is to be written at the end.

    ``demands``: of those that are to be placed, by id. ``entries``: those that wait beside them; ``in_order``: there
    are none, and they come in the order of REC-3. ``victims``: how the rows of those are had that make way (PRE-1).
    """

    def __init__(
        self,
        demands: Mapping[str, Demand],
        pool: PoolView,
        changes: Changes,
        *,
        entries: Sequence[InLine],
        held: Callable[[], Mapping[str, int]],
        now: int,
        victims: HaveVictims,
        in_order: bool = False,
    ) -> None:
        self._pool, self._changes, self._now = pool, changes, now
        self._demands = demands
        everybody = [*self._demands.values(), *(entry.demand for entry in entries)]
        # Whom spot work makes way for may start only when that has had its notice.
        before = max(demand.ends_at for demand in self._demands.values()) + pool.policy.spot_notice_seconds * 1_000
        until = before if len(everybody) == 1 else beyond(before, everybody)
        first = min(demand.starts_at for demand in everybody)
        self._taken = snapshot(pool.id, starts_at=first, ends_at=until, now=now)
        self._placer = Placer(self._taken.hosts, self._taken.kept)
        self._line = Line(self._placer, entries, held, before=before, in_order=in_order)
        self._preemption = Preemption(pool, self._taken, self._placer, changes, now=now, victims=victims)
        self._placed: list[Reservation] = []

    def try_to_place(self, row: Reservation, event: str, *, by: Actor | None = None) -> Outcome:
        """Place the row, by ``event`` of the machine, or let it wait in line and say why."""
        item = waiting_of(row)
        found = self._line.place(item, self._demands[row.id])
        if isinstance(found, Shortfall):
            found = self._preemption.make_room(row, found, behind=partial(self._line.stands_before, item))
        if isinstance(found, Assignment):
            self._line.took(item, found)
            _place(row, found, self._taken, self._changes, event, by=by)
            self._placed.append(row)
        elif found.reason != NEVER_FITS:
            self._line.joins(in_line(row, self._demands[row.id], self._pool))
        return found

    def finish(self) -> int:
        """Carry out what was decided; returns how many were placed. The caller writes the changes of rows after it."""
        self._preemption.carry_out(self._placed)
        _book(self._placed, self._taken, self._pool, now=self._now)
        return len(self._placed)


def _place(
    row: Reservation, found: Assignment, taken: Snapshot, changes: Changes, event: str, *, by: Actor | None = None
) -> None:
    row.starts_at, row.ends_at = found.demand.starts_at, found.demand.ends_at
    row.placement = [{"nodeId": node, "devices": taken.devices(node, mask)} for node, mask in found.hosts]
    row.pending_since = row.claim = None
    row.estimated_cost = cost_of(row, milliseconds=row.ends_at - row.starts_at, price=row.price)
    start_terms(row, now=changes.now)
    leave_queue(row)
    row.conditions = to_json(without_condition(from_json(row.conditions), UNSCHEDULABLE))
    changes.move(row, event, data={"startsAt": row.starts_at, "endsAt": row.ends_at}, by=by)


def _explain(row: Reservation, why: Shortfall, pool: PoolView, *, now: int) -> bool:
    """Say why it does not fit; True if that says anything new."""
    before = row.conditions
    row.due_at = give_up_at(row, pool)
    leave_queue(row)
    told = Condition(UNSCHEDULABLE, "True", why.reason, why.message, now)
    row.conditions = to_json(with_condition(from_json(row.conditions), told))
    return bool(row.conditions != before)


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
                    AllocatedDevice(
                        device["position"], device["uuid"], row.device_class, device.get("index"), device.get("slot")
                    )
                    for device in part["devices"]
                ),
                resources=_told_resources(row),
                until=row.ends_at or 0,
            )
            for row in placed
            for part in row.placement
        ]
    )
    if any(row.due_at is not None and row.due_at <= now for row in placed):
        wake("reconcile", pool.id)


def _told_resources(row: Reservation) -> dict[str, int]:
    """What of its host the node is to enforce (HST-1); empty where nothing is booked of it."""
    amounts = {"vcpuMilli": row.vcpu_milli, "memoryMiB": row.memory_mib, "hugepages1Gi": row.hugepages_1gi}
    return amounts if any(amounts.values()) else {}
