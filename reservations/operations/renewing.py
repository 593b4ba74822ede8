"""Renewing a lease (REN-1): one small update, no event, no new version, nobody is woken."""

from computeplatform.db.retry import in_transaction
from reservations import locks
from reservations.errors import NoLease
from reservations.models import Reservation
from reservations.operations.terms import refuse_ended


@in_transaction
def renew(*, tenant_id: str, reservation_id: str, now: int) -> None:
    """Move the lease deadline to ``now`` + leaseSeconds; never back, where two renewals overtake each other.

    ``now`` is when the call arrived: whoever arrived before the deadline has renewed in time, however late it gets to
    the row; the tick leaves it the moment for that (`leases.SLACK`).

    Raises ReservationNotFound, WrongState, NoLease and LeaseLapsed.
    """
    row = locks.lock_reservation(tenant_id=tenant_id, reservation_id=reservation_id)
    refuse_ended(row, verb="renewed", now=now)
    if row.lease_seconds is None or row.lease_expires_at is None:
        raise NoLease(reservation_id=row.id)
    deadline = max(row.lease_expires_at, now + row.lease_seconds * 1_000)
    Reservation.objects.filter(id=row.id).update(lease_expires_at=deadline)
