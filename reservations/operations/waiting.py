"""Those that wait in a pool, and what they mean for whoever comes after them (REC-3, REC-9)."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

import structlog

from fleet.contracts import PoolView
from reservations import queries
from reservations.domain import requests
from reservations.domain.charges import device_resource
from reservations.domain.demands import Demand, checked
from reservations.domain.hosts import FOREVER
from reservations.domain.line import InLine, Line
from reservations.domain.order import Waiting
from reservations.domain.placement import Placer
from reservations.models import Reservation
from reservations.operations.bookings import Snapshot, devices_held, snapshot
from reservations.queries import asked, booked_on_each, give_up_at

log = structlog.get_logger(__name__)

# Behind everybody who may ever wait.
_LAST = Waiting("", "", -1, FOREVER, 0)


@dataclass(frozen=True)
class Outlook:
    """A pool as a request finds it: what is booked, claimed, and kept for the first in line, if it comes after that."""

    taken: Snapshot
    placer: Placer
    behind: bool


def outlook(pool: PoolView, row: Reservation | None, *, now: int, ends_at: int) -> Outlook:
    """The pool from ``now`` to ``ends_at`` as this request finds it, stored or not; None: one that is behind everybody.

    Takes no locks and writes nothing: what dry runs and availability ask (CRE-19, POL-2).
    """
    entries = first_in_line(pool, now=now)
    until = beyond(ends_at, [entry.demand for entry in entries])
    taken = snapshot(pool.id, starts_at=now, ends_at=until, now=now)
    placer = Placer(taken.hosts, taken.kept)
    line = Line(placer, entries, partial(devices_held, pool.id, now=now), before=ends_at)
    behind = line.stands_before(waiting_of(row) if row else _LAST)
    if not behind:
        placer.forget_head()
    return Outlook(taken, placer, behind)


def first_in_line(pool: PoolView, *, now: int) -> list[InLine]:
    """Those among whom the first in line is to be found; empty while nobody waits. One query then, else two."""
    rows = [row for row in queries.first_pending(pool.id) if give_up_at(row, pool) > now]
    demands = demands_of(rows, now=now)
    return [in_line(row, demands[row.id], pool) for row in rows if row.id in demands]


def in_line(row: Reservation, demand: Demand, pool: PoolView) -> InLine:
    """One that waits. It is of no use to it to start when it is given up."""
    return InLine(waiting_of(row), demand, give_up_at(row, pool) - 1)


def demands_of(rows: Iterable[Reservation], *, now: int) -> dict[str, Demand]:
    """What is to be placed for each, by id. One that makes no sense is left out, so that it is in nobody's way."""
    found = {}
    for row in rows:
        try:
            found[row.id] = demand_of(row, now=now)
        except Exception:
            log.exception("reservation_skipped", reservation_id=row.id)
    return found


def beyond(ends_at: int, demands: Iterable[Demand]) -> int:
    """How far a snapshot has to reach so that any of these can be looked for at every start before ``ends_at``."""
    return ends_at + max((demand.ends_at - demand.starts_at for demand in demands), default=0)


def waiting_of(row: Reservation) -> Waiting:
    """Its place in the order of REC-3."""
    return Waiting(row.id, row.tenant_id, row.priority, row.created_at, row.count * row.nodes)


def demand_of(row: Reservation, *, now: int) -> Demand:
    """What is to be placed for the row if it is placed now. Raises ValueError where that makes no sense."""
    window = requests.window_at(asked(row), now)
    return checked(
        Demand(
            id=row.id,
            count=row.count,
            nodes=row.nodes,
            starts_at=window.starts_at,
            ends_at=window.ends_at,
            resource=device_resource(row.device_class, row.profile),
            need=booked_on_each(row),
            slides=row.duration is not None,
        )
    )
