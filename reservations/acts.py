"""What operators do on the pages of reservations (OPS-1): each act is decided, and done by the operations."""

from computeplatform.admin_tools import Act, Operating
from computeplatform.api.calls import Actor
from fleet.operations.operating import authorise_act
from reservations import queries
from reservations.domain import states
from reservations.models import Reservation
from reservations.operations import ending


def devices_text(row: Reservation) -> str:
    """What it has, in words."""
    each = f"{row.count} {row.device_class}{' ' + row.profile if row.profile else ''}"
    return f"{each} on each of {row.nodes} nodes" if row.nodes > 1 else each


def _foresee_release(row: Reservation) -> str:
    match row.state:
        case states.PENDING:
            return "is cancelled; its quota is given back"
        case states.PLACED:
            return f"is released before it starts; {devices_text(row)} and its quota are given back"
        case states.BINDING | states.ACTIVE:
            return f"is released now: its workloads lose {devices_text(row)}, its quota is given back"
        case states.RELEASED | states.CANCELLED:
            return "has ended already; nothing changes"
        case _:
            return "is refused: it was not admitted"


def _foresee_cancel(row: Reservation) -> str:
    match row.state:
        case states.PENDING:
            return "is cancelled; its quota is given back"
        case states.PLACED:
            return f"is cancelled; {devices_text(row)} and its quota are given back"
        case states.CANCELLED:
            return "is cancelled already; nothing changes"
        case states.BINDING | states.ACTIVE:
            return "is refused: it has started; release ends it"
        case states.RELEASED:
            return "is refused: it has ended"
        case _:
            return "is refused: it was not admitted"


def _release(row: Reservation, by: Operating) -> str:
    actor = _allowed(row, by, "reservations/release")
    ending.release(tenant_id=row.tenant_id, reservation_id=row.id, by=actor, now=by.context.time)
    return _outcome(row)


def _cancel(row: Reservation, by: Operating) -> str:
    actor = _allowed(row, by, "reservations/cancel")
    ending.cancel(tenant_id=row.tenant_id, reservation_id=row.id, by=actor, now=by.context.time)
    return _outcome(row)


def _allowed(row: Reservation, by: Operating, method: str) -> Actor:
    return authorise_act("reservation", row.id, tenant_id=row.tenant_id, by=by, method=method)


def _outcome(row: Reservation) -> str:
    return queries.visible(tenant_id=row.tenant_id, reservation_id=row.id).state


RELEASE = Act(
    name="release",
    title="Release",
    question="Release: they end now, whatever runs on them, and cannot be brought back.",
    foresee=_foresee_release,
    perform=_release,
)
CANCEL = Act(
    name="cancel",
    title="Cancel",
    question="Cancel: those that have not started are withdrawn, and cannot be brought back.",
    foresee=_foresee_cancel,
    perform=_cancel,
)
