"""Ending: release and cancel by callers (REL-1, CAN-1), and what every end has in common."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from computeplatform.api.calls import Actor
from computeplatform.conditions import from_json, to_json, without_condition
from computeplatform.db.retry import in_transaction
from computeplatform.wakes import wake
from fleet.locks import lock_nodes
from quotas.operations.charges import refund
from reservations import locks
from reservations.domain import states
from reservations.domain.conditions import HELD_BY_PREVIOUS, PREEMPTION_SCHEDULED, UNSCHEDULABLE
from reservations.errors import ReservationNotFound, WrongState
from reservations.models import Reservation
from reservations.operations.holding import Leaving, leave_nodes
from reservations.operations.queueing import leave_queue
from reservations.operations.state import Changes
from reservations.operations.troubles import leave_trouble


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


def end_rows(
    ends: Sequence[End], changes: Changes, *, now: int, nodes: Collection[str] = (), along: Collection[str] = ()
) -> None:
    """End reservations: the charge is refunded, the nodes withdraw, and the bookings end; held ones as REL-2 says.

    The caller has locked the rows and writes ``changes`` after this. Locks quota rows and allocations, and in their
    order also what the caller changes next: ``nodes`` that it taints, allocations of the reservations ``along``.
    """
    for end in ends:
        row = end.row
        leave_queue(row)
        over = (UNSCHEDULABLE, PREEMPTION_SCHEDULED, HELD_BY_PREVIOUS)
        row.conditions = to_json(without_condition(from_json(row.conditions), *over))
        _give_up_claim(row)
        row.ended_at = end.at
        row.due_at = None
        changes.move(row, end.event, reason=end.reason)
    leave_trouble({end.row: end.at for end in ends})
    refund([end.row.id for end in ends], now=now)
    if nodes:
        lock_nodes(nodes)
    leave_nodes([Leaving(end.row, end.at, end.billed) for end in ends], changes, now=now, along=along)


def _give_up_claim(row: Reservation) -> None:
    """What preemption kept for it is there for others (PRE-2)."""
    if row.claim is not None:
        row.claim = None
        wake("placement", row.pool_id)


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
    if booked:
        wake_waiting([row])
