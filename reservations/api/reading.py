"""``reservations/get`` and ``list`` (CONTRACT §4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from computeplatform.api.calls import Call, Resource
from computeplatform.api.marks import open_mark, seal_mark
from computeplatform.api.methods import Answer, Data, method
from computeplatform.errors import InvalidInput
from computeplatform.parking import Park
from reservations import queries
from reservations.api.shapes import GetAnswer, GetInput, ListAnswer, ListInput
from reservations.contracts import reservation_json
from reservations.domain import waits
from reservations.queries import listing

if TYPE_CHECKING:
    from reservations.models import Reservation

READ = listing.READ


def _visible(call: Call, data: Data) -> tuple[Resource, Reservation]:
    row = queries.visible(tenant_id=call.tenant_id, reservation_id=data["reservationId"])
    return queries.decision_resource(row, queries.pools_of([row])[row.pool_id], now=call.now), row


@method(
    "reservations/get",
    kind="read",
    action=READ,
    resource="compute-reservation",
    input=GetInput,
    output=GetAnswer,
    load=_visible,
    module="capacity",
)
def get(call: Call, data: Data, row: Reservation) -> Answer:
    """One reservation, what the platform is doing for it, and its binding once a node reported devices bound.

    ``operation`` is the latest thing done for the reservation: kind create, extend or end; status running, waiting or
    done; its step, its attempts, and when the next one is due. ``binding`` lists per node the devices it reported
    bound. A draft is NOT_FOUND, like an id that does not exist.

    ``wait`` holds the answer for up to ``timeoutMs`` (0-30000 milliseconds) and gives it as soon as ``until`` holds:
    ``active``, the reservation runs or has ended; ``terminal``, it has ended; ``changed``, its version is no longer
    ``wait.version``, or without that the one it had when the call came. What holds already is answered at once. When
    the time is up the answer is what is stored then, not an error. ``wait.version`` with another ``until`` is
    INVALID_INPUT. To follow a reservation without missing a change, pass the ``version`` of the answer before. A
    renewal and a change of ``operation`` alone are no change of the version.

    Clauses GET-1, GET-2.
    """
    if seconds := _to_wait(call, data.get("wait"), row):
        raise Park(row.id, seconds, note=str(_known_version(call, row)))
    return {"reservation": reservation_json(row), **queries.progress_of(row)}


def _to_wait(call: Call, wait: Data | None, row: Reservation) -> float:
    """For how many seconds after its arrival the call goes on waiting; 0: it is answered now."""
    if wait is None or (call.resume is not None and call.resume.expired):
        return 0
    known = wait.get("version", _known_version(call, row))
    if waits.holds(wait["until"], state=row.state, version=row.version, known=known):
        return 0
    return float(wait["timeoutMs"] / 1000)


def _known_version(call: Call, row: Reservation) -> int:
    """The version at the call's first look, which a parked call has noted."""
    return row.version if call.resume is None else int(call.resume.note)


@method(
    "reservations/list",
    kind="read",
    action=READ,
    resource="compute-tenant + items",
    input=ListInput,
    output=ListAnswer,
    module="capacity",
)
def list_(call: Call, data: Data, _: Any) -> Answer:
    """The tenant's reservations, newest first, a page at a time; drafts are not shown.

    ``scope`` mine (default): the caller's own. ``scope`` all: each reservation is checked on itself and only those
    that the caller may read are returned; a page is then short only at the end or after 10,000 rows looked at.
    ``state`` (one or several) and ``poolId`` filter. ``limit`` 1-200, default 50. ``cursor`` is the id of the last
    reservation of the page before, or its ``nextCursor``, which is there while more remain; any other value is
    INVALID_INPUT. Clauses LST-1 to LST-3.
    """
    filters = listing.Filters(call.tenant_id, data.get("state", ()), data.get("poolId"))
    after, limit = _position(call, data.get("cursor")), data["limit"]
    if data["scope"] == "mine":
        page = listing.own_page(filters, creator_id=call.caller.principal_id, after=after, limit=limit)
    else:
        page = listing.readable_page(filters, caller=call.caller, context=call.context, after=after, limit=limit)
    answer: Answer = {"reservations": [reservation_json(row) for row in page.rows]}
    if page.more:
        answer["nextCursor"] = page.rows[-1].id
    elif page.stopped_at is not None:
        created_at, last_id = page.stopped_at
        answer["nextCursor"] = seal_mark(call.tenant_id, f"{created_at}/{last_id}")
    return answer


def _position(call: Call, cursor: str | None) -> listing.Mark | None:
    if cursor is None:
        return None
    mark = listing.mark_of(tenant_id=call.tenant_id, reservation_id=cursor)
    if mark is None and (opened := open_mark(call.tenant_id, cursor)):
        created_at, _, last_id = opened.partition("/")
        mark = (int(created_at), last_id)
    if mark is None:
        raise InvalidInput.at("cursor", "is not the id of a reservation of the page before")
    return mark
