"""The states of a reservation and every legal move between them (REC-1). Nothing else changes a state."""

from computeplatform.transitions import Machine

DRAFT = "draft"
AWAITING_CONFIRMATION = "awaiting-confirmation"
DENIED = "denied"
PENDING = "pending"
PLACED = "placed"
BINDING = "binding"
ACTIVE = "active"
RELEASED = "released"
CANCELLED = "cancelled"

# Internal: no method shows a reservation in one of these.
DRAFT_STATES = frozenset({DRAFT, AWAITING_CONFIRMATION, DENIED})
# Quota is charged exactly in these.
LIVE = frozenset({PENDING, PLACED, BINDING, ACTIVE})
# Bookings stand in the way of others exactly in these; devices that nodes keep (REL-2) are the exception.
BOOKED = frozenset({PLACED, BINDING, ACTIVE})
TERMINAL = frozenset({RELEASED, CANCELLED})
VISIBLE = LIVE | TERMINAL

MACHINE = Machine(
    name="reservation",
    table={
        (DRAFT, "ask"): AWAITING_CONFIRMATION,
        (DRAFT, "deny"): DENIED,
        (DRAFT, "admit-pending"): PENDING,
        (DRAFT, "admit-queued"): PENDING,
        (DRAFT, "admit-placed"): PLACED,
        (AWAITING_CONFIRMATION, "approve"): DRAFT,
        (AWAITING_CONFIRMATION, "deny"): DENIED,
        (PENDING, "place"): PLACED,
        (PENDING, "cancel"): CANCELLED,
        (PLACED, "start"): BINDING,
        (PLACED, "displace"): PENDING,
        (PLACED, "cancel"): CANCELLED,
        (PLACED, "end"): RELEASED,
        (BINDING, "bound"): ACTIVE,
        (BINDING, "unbind"): PENDING,
        (BINDING, "end"): RELEASED,
        (ACTIVE, "end"): RELEASED,
    },
    terminal=TERMINAL,
)
