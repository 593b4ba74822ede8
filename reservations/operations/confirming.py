"""What a person is asked to confirm, and the drafts that wait for it (CRE-8, EXT-7).

A waiting draft is moved by its key's next call or by the reconciler, each by what its confirmation is then; nobody has
to tell it of the answer. Both hold the draft's row and then the confirmation's.
"""

from decimal import Decimal

from computeplatform.api.calls import Actor, Call, ConfirmationAsked
from computeplatform.db.retry import in_transaction
from computeplatform.errors import AccessDenied
from iam.contracts import ConfirmationInfo, Gate
from iam.operations import confirmations, decisions
from reservations import locks, queries
from reservations.contracts import request_json
from reservations.domain.extending import Change
from reservations.errors import ConfirmationRequired, stored
from reservations.models import Reservation
from reservations.operations.state import RECONCILER, Changes

CREATE = "compute:reservations:create"
BATCH = 200


def draft_gate(row: Reservation, *, opens: bool = True) -> Gate:
    """A create is confirmed as the stored request; the draft remembers the confirmation that it waited for."""
    return confirmations.gate(
        request_json(row),
        cost=Decimal(row.estimated_cost),
        currency=row.currency,
        confirmation_id=row.confirmation_id,
        opens=opens,
    )


def change_gate(row: Reservation, change: Change, cost: Decimal) -> Gate:
    """An extension is confirmed as the reservation and its absolute new end, however that was asked for."""
    return confirmations.gate({"reservationId": row.id, "endsAt": change.until}, cost=cost, currency=row.currency)


def required(row: Reservation, asked: ConfirmationAsked) -> ConfirmationRequired:
    """The refusal of a call that lacks nothing but a confirmation."""
    return ConfirmationRequired(reservation_id=row.id, confirmation_id=asked.id, expires_at=asked.expires_at)


def wait_for(row: Reservation, asked: ConfirmationAsked, changes: Changes) -> None:
    """The draft, whose call has been answered, waits for the person. Whoever called has asked them (EVT-1)."""
    row.confirmation_id = asked.id
    row.due_at = asked.expires_at
    by = Actor(row.creator_id, row.creator_agent_id, row.context["requestId"])
    changes.move(row, "ask", data={"confirmationId": asked.id, "expiresAt": asked.expires_at}, by=by)


def is_over(found: ConfirmationInfo, *, now: int) -> bool:
    """Whether the request is refused for good: the person said no, or one of the two times has run out (CRE-8).

    One that its delegation has voided can be asked anew, under another delegation, until its time to answer is over.
    """
    return found.state in ("refused", "lapsed") or (found.state == "void" and found.expires_at <= now)


@in_transaction
def deny_unconfirmed(*, call: Call, reservation: Reservation) -> bool:
    """Refuse the key's request for good, and record that; False where it stands otherwise under its locks."""
    row = locks.lock_reservation(tenant_id=call.tenant_id, reservation_id=reservation.id)
    if (row.state, row.attempts) != (reservation.state, reservation.attempts):
        return False
    found = confirmations.settle([row.confirmation_id], now=call.now)[row.confirmation_id]
    if not is_over(found, now=call.now):
        return False
    resource = queries.decision_resource(row, queries.pools_of([row])[row.pool_id], now=call.now)
    verdict = decisions.decide(
        call.caller, CREATE, resource, context=call.context, record=True, barred="confirmation-refused"
    )
    changes = Changes(by=call.actor, now=call.now)
    row.decision_id = verdict.decision_id
    _deny(row, changes)
    changes.write()
    return True


@in_transaction
def end_waits(*, pool_id: str, now: int) -> int:
    """Look at waiting drafts whose time has come; returns at how many.

    One that was approved can be used for a while yet; what was refused, not answered or not used is refused (CRE-8).
    """
    rows = locks.claim_awaiting(pool_id=pool_id, now=now, limit=BATCH)
    if not rows:
        return 0
    found = confirmations.settle([row.confirmation_id for row in rows], now=now)
    changes = Changes(by=RECONCILER, now=now)
    for row in rows:
        confirmation = found[row.confirmation_id]
        if is_over(confirmation, now=now):
            _deny(row, changes)
        else:
            changes.touch(row)
            row.due_at = confirmation.expires_at
    changes.write()
    return len(rows)


def _deny(row: Reservation, changes: Changes) -> None:
    changes.move(row, "deny")
    row.due_at = None
    row.call_open_until = None
    row.outcome = {"refusal": stored(AccessDenied())}
