"""Ending: release and cancel by callers (REL-1, CAN-1), and what every end has in common."""

from collections.abc import Sequence
from dataclasses import dataclass

from computeplatform.api.calls import Actor
from computeplatform.conditions import from_json, to_json, without_condition
from computeplatform.db.locks import notify
from computeplatform.db.retry import in_transaction
from computeplatform.parking import CHANNEL
from computeplatform.wakes import wake
from fleet.operations import allocations
from quotas.operations.charges import refund
from reservations import locks
from reservations.domain import states
from reservations.errors import ReservationNotFound, WrongState
from reservations.models import Reservation
from reservations.operations.bookings import end_bookings
from reservations.operations.placing import UNSCHEDULABLE
from reservations.operations.state import Changes


@dataclass(frozen=True)
class End:
    """How one reservation ends: the machine's event, the reason, and the time from which it counts.

    ``billed`` False: nothing of its bookings is charged for (REC-7).
    """

    row: Reservation
    event: str
    reason: str
    at: int
    billed: bool = True


def end_rows(ends: Sequence[End], changes: Changes, *, now: int) -> None:
    """End reservations: their bookings end and the charge is refunded.

    The caller has locked the rows, writes ``changes``, and has the nodes withdraw after that: allocations are locked
    last.
    """
    for end in ends:
        row = end.row
        row.conditions = to_json(without_condition(from_json(row.conditions), UNSCHEDULABLE))
        row.ended_at = end.at
        row.due_at = None
        changes.move(row, end.event, reason=end.reason)
    ids = [end.row.id for end in ends]
    end_bookings({end.row.id: end.at for end in ends}, unbilled=[end.row.id for end in ends if not end.billed])
    refund(ids, now=now)


def wake_waiting(rows: Sequence[Reservation]) -> None:
    """Capacity of these pools is free: try what waits there (REC-3)."""
    for pool_id in sorted({row.pool_id for row in rows}):
        wake("placement", pool_id)


@in_transaction
def release(*, tenant_id: str, reservation_id: str, by: Actor, now: int) -> None:
    """End a reservation now; a pending one is cancelled, one that has ended is left as it is (REL-1).

    Raises ReservationNotFound, and WrongState for a draft.
    """
    row = locks.lock_reservation(tenant_id=tenant_id, reservation_id=reservation_id)
    if row.state == states.DENIED:
        raise ReservationNotFound
    if row.state in states.DRAFT_STATES:
        raise WrongState(reservation_id=row.id, state=row.state, hint="it has not been admitted yet")
    if row.state in states.TERMINAL:
        return
    _end_one(row, event="cancel" if row.state == states.PENDING else "end", reason="release", by=by, now=now)


@in_transaction
def cancel(*, tenant_id: str, reservation_id: str, by: Actor, now: int) -> None:
    """Withdraw a reservation that has not started (CAN-1); a cancelled one is left as it is.

    Raises ReservationNotFound, for drafts too, and WrongState for one that has started or ended.
    """
    row = locks.lock_reservation(tenant_id=tenant_id, reservation_id=reservation_id)
    if row.state in states.DRAFT_STATES:
        raise ReservationNotFound
    if row.state == states.CANCELLED:
        return
    if row.state not in (states.PENDING, states.PLACED):
        raise WrongState(
            reservation_id=row.id, state=row.state, hint="only a pending or placed one can be cancelled, use release"
        )
    _end_one(row, event="cancel", reason="cancel", by=by, now=now)


def _end_one(row: Reservation, *, event: str, reason: str, by: Actor, now: int) -> None:
    changes = Changes(by=by, now=now)
    booked = row.state in states.BOOKED
    end_rows([End(row, event, reason, at=now)], changes, now=now)
    changes.write()
    allocations.withdraw([row.id], now=now)
    notify(CHANNEL, [row.id])
    if booked:
        wake_waiting([row])
