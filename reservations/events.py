"""The events of a reservation (EVT-5)."""

from typing import Any

from computeplatform.api.calls import Actor
from computeplatform.events.outbox import NewEvent
from reservations.models import Reservation

PLACED = "reservation.placed"
PENDING = "reservation.pending"
BINDING = "reservation.binding"
ACTIVE = "reservation.active"
RELEASED = "reservation.released"
CANCELLED = "reservation.cancelled"

OF_STATE = {
    "placed": PLACED,
    "pending": PENDING,
    "binding": BINDING,
    "active": ACTIVE,
    "released": RELEASED,
    "cancelled": CANCELLED,
}


def entered(row: Reservation, *, by: Actor, now: int, data: dict[str, Any] | None = None) -> NewEvent:
    """The event of the state that the reservation has just entered."""
    return NewEvent(
        type=OF_STATE[row.state],
        tenant_id=row.tenant_id,
        at=now,
        subject_type="reservation",
        subject_id=row.id,
        subject_version=row.version,
        reason=row.reason,
        actor_id=by.principal_id,
        agent_id=by.agent_id,
        request_id=by.request_id,
        data={"poolId": row.pool_id, "state": row.state} | (data or {}),
    )
