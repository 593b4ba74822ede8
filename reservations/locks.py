"""The row locks of reservations. Pools are locked before (``fleet.locks``), quota rows and allocations after."""

from collections.abc import Collection

from django.db.models import Q, QuerySet

from computeplatform.db.locks import claim_rows, lock_rows
from reservations.domain import states
from reservations.errors import ReservationNotFound
from reservations.models import Reservation


def lock_reservation(*, tenant_id: str, reservation_id: str) -> Reservation:
    """The tenant's reservation, locked; raises ReservationNotFound."""
    rows = lock_rows(Reservation.objects.filter(tenant_id=tenant_id, id=reservation_id))
    if not rows:
        raise ReservationNotFound
    return rows[0]


def claim_drafts(*, pool_id: str, decided: bool, now: int, limit: int) -> list[Reservation]:
    """Drafts of the pool whose call is unanswered, oldest call first, that nobody else works on (CRE-20)."""
    rows = Reservation.objects.filter(pool_id=pool_id, state=states.DRAFT, call_open_until__gt=now, decided=decided)
    return claim_rows(rows, limit=limit, order=("call_open_until", "id"))


def claim_due(*, now: int, pool_id: str | None, only: str | None, limit: int) -> list[Reservation]:
    """What the reconciler has to look at, and nobody else looks at just now."""
    rows = due_rows(now=now, pool_id=pool_id)
    if only is not None:
        rows = rows.filter(id=only)
    return claim_rows(rows, limit=limit, order=("due_at", "id"))


def due_rows(*, now: int, pool_id: str | None) -> QuerySet[Reservation]:
    """Rows whose time has come; in one pool also all that are binding, for a node may have reported."""
    due = Q(due_at__lte=now)
    if pool_id is None:
        return Reservation.objects.filter(due)
    return Reservation.objects.filter(due | Q(state=states.BINDING), pool_id=pool_id)


def claim_pending(*, pool_id: str, limit: int) -> list[Reservation]:
    """Pending reservations of the pool that nobody else works on."""
    rows = Reservation.objects.filter(pool_id=pool_id, state=states.PENDING)
    return claim_rows(rows, limit=limit, order=("-priority", "created_at", "id"))


def lock_existing(ids: Collection[str]) -> list[Reservation]:
    """These reservations, locked in key order."""
    return lock_rows(Reservation.objects.filter(id__in=ids))
