"""Extending: the change is stored, decided, and then applied or dropped (EXT-1 … EXT-7).

Step by step as create, but in the process that the call came to: nothing is charged, and whoever calls is there to hear
the outcome. Each step is a transaction of its own, and starts from what is stored. Every outcome clears the stored
change; where a process dies in between, the reconciler does.
"""

import contextlib
from dataclasses import dataclass
from decimal import Decimal

from django.db import DatabaseError

from computeplatform.api.calls import Call, Resource, Verdict
from computeplatform.db.retry import in_transaction
from computeplatform.errors import AccessDenied, InvalidInput, Refusal
from computeplatform.ids import new_id
from computeplatform.quantities import money
from fleet import queries as fleet
from fleet.contracts import PoolView
from fleet.errors import PoolArchived
from fleet.operations import allocations
from iam.contracts import Gate
from iam.operations.decisions import Question, decide_many
from reservations import events, locks, queries
from reservations.domain.extending import OPEN, RETRY_SECONDS, SECOND, Change
from reservations.domain.reminders import NOTICE
from reservations.domain.requests import HOUR
from reservations.errors import ExtendInFlight, MaxCostExceeded, OfferWithdrawn, WindowChanged
from reservations.models import Reservation
from reservations.operations.confirming import change_gate, required
from reservations.operations.reaching import extend_bookings, reach
from reservations.operations.state import Changes
from reservations.operations.terms import refuse_ended

EXTEND = "compute:reservations:extend"
READ = "compute:reservations:read"


@dataclass(frozen=True)
class Asked:
    """A new end, or a length by which the present one is to move; exactly one of them, in milliseconds."""

    until: int | None = None
    by: int | None = None

    @property
    def field(self) -> str:
        """The member of the input that it came in."""
        return "until" if self.by is None else "by"

    def end(self, present: int) -> int:
        """The end that is asked for."""
        return present + self.by if self.by is not None else self.until or 0


@dataclass(frozen=True)
class Extended:
    """What became of it; ``available_until`` where others are in the way."""

    extended: bool
    available_until: int | None = None


def extend(*, call: Call, reservation_id: str, asked: Asked) -> Extended:
    """Move the end of a placed, binding or active reservation later, after one decision.

    Raises ReservationNotFound, WrongState, LeaseLapsed, PoolArchived, OfferWithdrawn, InvalidInput, ExtendInFlight,
    AccessDenied, ConfirmationRequired, MaxCostExceeded, WindowChanged.
    """
    row = queries.any_state(tenant_id=call.tenant_id, reservation_id=reservation_id)
    pool = queries.pools_of([row])[row.pool_id]
    as_it_is = queries.decision_resource(row, pool, now=call.now)
    try:
        row, change = propose(call=call, reservation_id=reservation_id, asked=asked, pool=pool)
    except Refusal:
        # Who may not extend is told that, and not what is in the way of those who may (API-5).
        _refuse_without(call, as_it_is, EXTEND)
        raise
    if change is None:
        # Without a decision (EXT-4), whoever may read it sees what it shows to readers.
        _refuse_without(call, as_it_is, EXTEND, READ)
        return Extended(False)
    try:
        cost = _cost(row, change)
        resource = queries.decision_resource(row, pool, now=call.now, change=change, cost=cost)
        _refuse_unless_allowed(_decide(call=call, resource=resource, gate=change_gate(row, change, cost)), row)
        outcome = apply(call=call, reservation_id=row.id, pool_id=pool.id, token=change.token, field=asked.field)
    except Exception:
        with contextlib.suppress(DatabaseError):
            drop(reservation_id=row.id, token=change.token)
        raise
    if isinstance(outcome, Refusal):
        raise outcome
    return outcome


@in_transaction
def _decide(*, call: Call, resource: Resource, gate: Gate) -> Verdict:
    """The one decision, and the use of an approval with it."""
    return decide_many([Question(call.caller, EXTEND, resource, call.context, gate=gate)], now=call.now)[0]


def _refuse_unless_allowed(verdict: Verdict, row: Reservation) -> None:
    if verdict.confirmation:
        # The change does not wait: whoever calls extends again once it is approved (EXT-7).
        raise required(row, verdict.confirmation)
    if not verdict.allowed:
        raise AccessDenied


def _refuse_without(call: Call, resource: Resource, *actions: str) -> None:
    """The change itself is not decided; a caller who may do none of ``actions`` is refused nonetheless."""
    if not any(call.permits(action, resource) for action in actions):
        call.decide(EXTEND, resource)


@in_transaction
def propose(*, call: Call, reservation_id: str, asked: Asked, pool: PoolView) -> tuple[Reservation, Change | None]:
    """Store the change for the decision (EXT-2); None where the end reaches that far already (EXT-4)."""
    now = call.now
    row = locks.lock_reservation(tenant_id=call.tenant_id, reservation_id=reservation_id)
    refuse_ended(row, verb="extended", now=now)
    starts_at, ends_at = row.starts_at or 0, row.ends_at or 0
    until = asked.end(ends_at)
    if until <= ends_at:
        return row, None
    if refusal := _refused_by_pool(row, until, pool, asked.field):
        raise refusal
    pending = Change.from_json(row.pending_change)
    if pending and pending.open_until > now:
        raise ExtendInFlight(reservation_id=row.id, retry_after_seconds=_retry_after(pending, now))
    change = Change(until, (starts_at, ends_at), new_id("ext"), now + OPEN)
    changes = Changes(by=call.actor, now=now)
    changes.touch(row)
    row.pending_change = change.as_json()
    row.due_at = min(row.due_at or change.open_until, change.open_until)
    changes.write()
    return row, change


def _retry_after(pending: Change, now: int) -> int:
    return max(1, min(RETRY_SECONDS, -(-(pending.open_until - now) // SECOND)))


def _refused_by_pool(row: Reservation, until: int, pool: PoolView, field: str) -> Refusal | None:
    """The pool takes nothing more of this tenant, or nothing as long as that (EXT-7, POL-3)."""
    if pool.archived_at is not None:
        return PoolArchived()
    if row.tenant_id not in fleet.tenants_that_may_book(pool.id):
        return OfferWithdrawn()
    if until - (row.starts_at or 0) > pool.policy.max_duration_hours * HOUR:
        return InvalidInput.at(
            field, f"the whole window would be longer than the pool's {pool.policy.max_duration_hours} hours"
        )
    return None


@in_transaction
def apply(*, call: Call, reservation_id: str, pool_id: str, token: str, field: str) -> Extended | Refusal:
    """Carry out the allowed change under the pool's lock, all of it or nothing, and clear it.

    Returns a refusal instead of raising it: that the change is cleared must be committed.
    """
    pool, now = locks.lock_pool(pool_id, now=call.now)
    row = locks.lock_reservation(tenant_id=call.tenant_id, reservation_id=reservation_id)
    change = Change.from_json(row.pending_change)
    if change is None or change.token != token:
        # It has ended, or this call took so long that another one is under way.
        refuse_ended(row, verb="extended", now=now)
        raise ExtendInFlight(reservation_id=row.id, retry_after_seconds=1)
    changes = Changes(by=call.actor, now=now)
    changes.touch(row)
    row.pending_change = None
    outcome: Extended | Refusal | None = _refusal(row, change, pool, field, now=now)
    if outcome is None:
        outcome = _move_end(row, change, changes, now=now)
    changes.write()
    return outcome


def _refusal(row: Reservation, change: Change, pool: PoolView, field: str, *, now: int) -> Refusal | None:
    """What has come up since the change was stored, and its cost."""
    try:
        refuse_ended(row, verb="extended", now=now)
    except Refusal as ended:
        return ended
    if (row.starts_at, row.ends_at) != change.was:
        return WindowChanged(reservation_id=row.id)
    if refusal := _refused_by_pool(row, change.until, pool, field):
        return refusal
    cost = _cost(row, change)
    if row.max_cost is not None and cost > row.max_cost:
        return MaxCostExceeded(cost=money(cost), max_cost=money(row.max_cost), currency=row.currency)
    return None


def _move_end(row: Reservation, change: Change, changes: Changes, *, now: int) -> Extended:
    _, ends_at = change.was
    # Whoever preempts it has its devices from then on (PRE-2).
    latest = ends_at if row.preempted_by else reach(row, wanted=change.until, now=now)
    if latest < change.until:
        return Extended(False, latest)
    row.estimated_cost = _cost(row, change)
    row.extended_by += change.until - ends_at
    row.extended_at = now
    row.ends_at = change.until
    row.due_at = min(row.due_at or now, max(now, change.until - NOTICE))
    extend_bookings(row.id, ends_at=ends_at, until=change.until)
    allocations.until({row.id: change.until})
    changes.tell(row, events.EXTENDED, data={"startsAt": row.starts_at, "endsAt": row.ends_at, "endedAt": ends_at})
    return Extended(True)


def _cost(row: Reservation, change: Change) -> Decimal:
    """The estimate for the total after the change, at the price that admission has fixed (QTA-3)."""
    return queries.cost_of(row, milliseconds=change.until - change.was[0], price=row.price)


@in_transaction
def drop(*, reservation_id: str, token: str) -> None:
    """Clear the change that was refused or could not be carried out; another's stays."""
    Reservation.objects.filter(id=reservation_id, pending_change__token=token).update(pending_change=None)
