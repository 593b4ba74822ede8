"""The events of a reservation (EVT-5)."""

from typing import Any

from computeplatform.api.calls import Actor
from computeplatform.events.outbox import NewEvent
from reservations.models import Reservation

PLACED = "reservation.placed"
PENDING = "reservation.pending"
QUEUED = "reservation.queued"
AWAITING_CONFIRMATION = "reservation.awaiting-confirmation"
BINDING = "reservation.binding"
ACTIVE = "reservation.active"
EXTENDED = "reservation.extended"
ENDING = "reservation.ending"
RELEASED = "reservation.released"
CANCELLED = "reservation.cancelled"
PREEMPTION_SCHEDULED = "reservation.preemption-scheduled"
DEVICES_HELD = "reservation.devices-held"
NODE_LOST = "reservation.node-lost"
DEVICE_UNHEALTHY = "reservation.device-unhealthy"

OF_STATE = {
    "awaiting-confirmation": AWAITING_CONFIRMATION,
    "placed": PLACED,
    "pending": PENDING,
    "binding": BINDING,
    "active": ACTIVE,
    "released": RELEASED,
    "cancelled": CANCELLED,
}


# Moves whose event is not that of the state they lead to (CRE-17).
OF_MOVE = {"admit-queued": QUEUED}


def entered(row: Reservation, move: str, *, by: Actor, now: int, data: dict[str, Any] | None = None) -> NewEvent:
    """The event of the state that the reservation has just entered by ``move``."""
    type_ = OF_MOVE.get(move, OF_STATE[row.state])
    return told(row, type_, by=by, now=now, reason=row.reason, data=data)


def told(
    row: Reservation, type_: str, *, by: Actor, now: int, reason: str = "", data: dict[str, Any] | None = None
) -> NewEvent:
    """An event of the reservation as it is now."""
    return NewEvent(
        type=type_,
        tenant_id=row.tenant_id,
        at=now,
        subject_type="reservation",
        subject_id=row.id,
        subject_version=row.version,
        reason=reason,
        actor_id=by.principal_id,
        agent_id=by.agent_id,
        request_id=by.request_id,
        data={"poolId": row.pool_id, "state": row.state} | (data or {}),
    )
