"""The row locks of reservations. Pools are locked before (``fleet.locks``), quota rows and allocations after."""

from collections.abc import Collection

from django.db.models import BooleanField, ExpressionWrapper, Q, QuerySet

from computeplatform.clock import compute_now
from computeplatform.db.locks import Line, claim_rows, lock_rows
from fleet.contracts import PoolView
from fleet.locks import lock_pools
from reservations.domain import states
from reservations.errors import ReservationNotFound
from reservations.models import Reservation

# The order in which drafts are admitted, and that in which those that wait are read.
BY_CALL = ("call_open_until", "id")
BY_RANK = ("never_fits", "-priority", "created_at", "id")
_NEVER_FITS = Q(conditions__contains=[{"reason": "NeverFits"}])
# How many reservations with held devices one pass looks at; what is left is looked at in the next one.
HELD_LIMIT = 1_000


def lock_pool(pool_id: str, *, now: int, line: Line | None = None) -> tuple[PoolView, int]:
    """The pool, locked, and the time to go on with; the place in the line of those who wait for it is left.

    The lock may have been waited for. Placing at the time before would start a window in the past, and find devices
    taken that have become free meanwhile; so this is the one place below the edges that reads the clock.
    """
    pool = lock_pools([pool_id])[pool_id]
    if line:
        line.leave()
    return pool, max(now, compute_now())


def lock_reservation(*, tenant_id: str, reservation_id: str) -> Reservation:
    """The tenant's reservation, locked; raises ReservationNotFound."""
    rows = lock_rows(Reservation.objects.filter(tenant_id=tenant_id, id=reservation_id))
    if not rows:
        raise ReservationNotFound
    return rows[0]


def claim_drafts(
    *, pool_id: str, decided: bool, now: int, limit: int, only: Collection[str] | None = None
) -> list[Reservation]:
    """Drafts of the pool whose call is unanswered, oldest call first, that nobody else works on (CRE-20)."""
    rows = _among(open_drafts(pool_id=pool_id, decided=decided, now=now), only)
    return claim_rows(rows, limit=limit, order=BY_CALL)


def open_drafts(*, pool_id: str, decided: bool, now: int) -> QuerySet[Reservation]:
    """Drafts of the pool whose call is unanswered, with or without a decision."""
    return Reservation.objects.filter(pool_id=pool_id, state=states.DRAFT, call_open_until__gt=now, decided=decided)


def _among(rows: QuerySet[Reservation], only: Collection[str] | None) -> QuerySet[Reservation]:
    return rows if only is None else rows.filter(id__in=only)


def claim_due(*, now: int, pool_id: str | None, woken: bool, only: str | None, limit: int) -> list[Reservation]:
    """What the reconciler has to look at, and nobody else looks at just now."""
    rows = due_rows(now=now, pool_id=pool_id, woken=woken).exclude(state=states.AWAITING_CONFIRMATION)
    if only is not None:
        rows = rows.filter(id=only)
    return claim_rows(rows, limit=limit, order=("due_at", "id"))


def due_rows(*, now: int, pool_id: str | None = None, woken: bool = False) -> QuerySet[Reservation]:
    """Rows whose time has come, of one pool or of all; ``woken``: also what is binding (a node may have reported)."""
    rows = Reservation.objects.filter(Q(due_at__lte=now) | Q(state=states.BINDING) if woken else Q(due_at__lte=now))
    return rows if pool_id is None else rows.filter(pool_id=pool_id)


def claim_awaiting(*, pool_id: str, now: int, limit: int) -> list[Reservation]:
    """Drafts of the pool that wait for a confirmation and have to be looked at, and nobody else works on."""
    rows = due_rows(now=now, pool_id=pool_id).filter(state=states.AWAITING_CONFIRMATION)
    return claim_rows(rows, limit=limit, order=("due_at", "id"))


def claim_pending(*, pool_id: str, limit: int, only: Collection[str] | None = None) -> list[Reservation]:
    """Pending reservations of the pool that nobody else works on."""
    rows = _among(Reservation.objects.filter(pool_id=pool_id, state=states.PENDING), only)
    return claim_rows(ranked(rows), limit=limit, order=BY_RANK)


def ranked(rows: QuerySet[Reservation]) -> QuerySet[Reservation]:
    """With what BY_RANK sorts by: what could never fit comes last, else it might fill a pass by itself."""
    return rows.annotate(never_fits=ExpressionWrapper(_NEVER_FITS, output_field=BooleanField()))


def claim_closed(*, pool_id: str, tenants: Collection[str] | None, limit: int) -> list[Reservation]:
    """What waits for its first placement in the pool, of these tenants or of all, and nobody else works on.

    What was placed before, and has a reason for which it waits again, runs out: its re-placement is no new booking.
    """
    rows = Reservation.objects.filter(pool_id=pool_id, state=states.PENDING, reason="")
    if tenants is not None:
        rows = rows.filter(tenant_id__in=list(tenants))
    return claim_rows(rows, limit=limit, order=("id",))


def claim_of_agents(*, pool_id: str, agents: Collection[str], limit: int) -> list[Reservation]:
    """What lives of these agents in the pool, and nobody else works on."""
    return claim_rows(live_of_agents(agents).filter(pool_id=pool_id), limit=limit, order=("id",))


def live_of_agents(agents: Collection[str]) -> QuerySet[Reservation]:
    """What these agents have reserved, by themselves or in somebody's name, and has not ended."""
    # Said as the two partial indexes say it, so that they serve however many agents there are.
    in_names = Q(creator_agent_id__in=list(agents)) & ~Q(creator_agent_id="")
    return Reservation.objects.filter(Q(creator_id__in=list(agents)) | in_names, state__in=sorted(states.LIVE))


def claim_held(pool_id: str) -> list[Reservation]:
    """Reservations of the pool whose devices nodes keep, and that nobody else works on."""
    return claim_rows(
        Reservation.objects.filter(pool_id=pool_id, held_since__isnull=False), limit=HELD_LIMIT, order=("id",)
    )


def claim_existing(ids: Collection[str]) -> list[Reservation]:
    """Those of these reservations that nobody else works on just now, locked."""
    return claim_rows(Reservation.objects.filter(id__in=ids), limit=len(ids), order=("id",))


def lock_existing(ids: Collection[str]) -> list[Reservation]:
    """These reservations, locked in key order."""
    return lock_rows(Reservation.objects.filter(id__in=ids))
