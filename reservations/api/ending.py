"""``reservations/release`` and ``cancel`` (CONTRACT §5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from computeplatform.api.calls import Call
from computeplatform.api.methods import Answer, Data, method
from reservations.api.loading import present, with_drafts, without_drafts
from reservations.api.shapes import ReservationAnswer, ReservationInput
from reservations.operations import ending

if TYPE_CHECKING:
    from reservations.models import Reservation


@method(
    "reservations/release",
    kind="mutation",
    action="compute:reservations:release",
    resource="compute-reservation",
    input=ReservationInput,
    output=ReservationAnswer,
    load=with_drafts,
    codes=("INVALID_STATE",),
    module="capacity",
)
def release(call: Call, data: Data, row: Reservation) -> Answer:
    """End a reservation now: its bookings end, its quota is refunded, it becomes released.

    A pending one is cancelled instead; one that has ended is answered unchanged. A request that has not been admitted
    yet is INVALID_STATE. Freed capacity wakes what is pending in the pool. Emits reservation.released or
    reservation.cancelled with reason release.

    A bound kubernetes reservation is released and refunded at once too, but its devices and host resources stay booked
    and billed until the node reports that no pod holds them; meanwhile it carries the condition DevicesHeld.

    Clauses REL-1, REL-2.
    """
    ending.release(tenant_id=call.tenant_id, reservation_id=row.id, by=call.actor, now=call.now)
    return present(call, row.id)


@method(
    "reservations/cancel",
    kind="mutation",
    action="compute:reservations:release",
    resource="compute-reservation",
    input=ReservationInput,
    output=ReservationAnswer,
    load=without_drafts,
    codes=("INVALID_STATE",),
    module="capacity",
    phase="v0.2",
)
def cancel(call: Call, data: Data, row: Reservation) -> Answer:
    """Withdraw a reservation that has not started (pending or placed): it becomes cancelled, its quota is refunded.

    A cancelled one is answered unchanged; in any other state INVALID_STATE, and release is the method to use. It is
    decided as compute:reservations:release. Emits reservation.cancelled with reason cancel. Clause CAN-1.
    """
    ending.cancel(tenant_id=call.tenant_id, reservation_id=row.id, by=call.actor, now=call.now)
    return present(call, row.id)
