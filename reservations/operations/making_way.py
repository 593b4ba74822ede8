"""Spot work that makes way: it is released at once, or its end moves to where it has to go (PRE-1, PRE-2)."""

from collections.abc import Collection
from datetime import UTC, datetime

from django.db import connection

from computeplatform.conditions import Condition, from_json, to_json, with_condition
from computeplatform.wakes import wake
from fleet.contracts import PoolView
from fleet.locks import lock_allocations
from fleet.operations import allocations
from reservations import events
from reservations.domain.conditions import PREEMPTION_SCHEDULED
from reservations.domain.preemption import runs_until
from reservations.models import Reservation
from reservations.operations.ending import End, end_rows
from reservations.operations.state import Changes

PREEMPTED = "preempted"

# The condition's reason, and words for the victim, whose tenant does not learn for whom.
Why = tuple[str, str]
NEEDED: Why = ("DevicesNeeded", "its devices are needed for work that is not spot")
DRAINED: Why = ("NodeDraining", "its node is being drained")


class MakingWay:
    """The victims of one transaction: ``add`` each, then ``carry_out`` once, so that all is locked in order.

    Callers hold the pool's lock and that of each victim's row, and write ``changes`` after ``carry_out``.
    """

    def __init__(self, pool: PoolView, changes: Changes, *, now: int) -> None:
        self._pool = pool
        self._changes = changes
        self._now = now
        self._ended: list[Reservation] = []
        self._shortened: list[tuple[Reservation, int]] = []

    def add(self, victim: Reservation, *, cause: str, start: int, why: Why = NEEDED) -> int | None:
        """It is in the way from ``start`` on. Returns its new end; None: it goes at once.

        What runs has the pool's notice first (EVT-4). ``cause``: the id of the reservation or node that asks for this.
        """
        starts_at, ends_at = victim.starts_at or 0, victim.ends_at or 0
        notice = self._pool.policy.spot_notice_seconds * 1_000
        until = runs_until((starts_at, ends_at), start, now=self._now, notice=notice)
        if until is not None and until >= ends_at:
            return ends_at
        victim.preempted_by = cause
        if until is None:
            self._ended.append(victim)
            return None
        self._shortened.append((victim, ends_at))
        victim.ends_at = until
        # Its holder is told of the new end when that is near (EVT-4).
        victim.due_at = self._now
        reason, words = why
        told = f"{words}; it ends at {time_text(until)}"
        condition = Condition(PREEMPTION_SCHEDULED, "True", reason, told, self._now)
        victim.conditions = to_json(with_condition(from_json(victim.conditions), condition))
        data = {"startsAt": starts_at, "endsAt": until}
        self._changes.tell(victim, events.PREEMPTION_SCHEDULED, reason=PREEMPTED, data=data)
        return until

    def carry_out(self, *, along: Collection[str] = ()) -> None:
        """End those that go at once, and cut the others short. ``along``: whose allocations are changed after this."""
        if not (self._ended or self._shortened):
            return
        along = [*along, *(row.id for row, _ in self._shortened)]
        if self._ended:
            ends = [End(row, "end", PREEMPTED, at=self._now) for row in self._ended]
            end_rows(ends, self._changes, now=self._now, along=along)
            wake("placement", self._pool.id)
        else:
            lock_allocations(along)
        if self._shortened:
            _shorten(self._shortened)
            wake("reconcile", self._pool.id)


def _shorten(rows: Collection[tuple[Reservation, int]]) -> None:
    """The bookings of those who run on for a while, and what their nodes are told, end at the new time."""
    windows = [(row.id, was, row.ends_at) for row, was in rows]
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE reservations_booking AS b SET planned = planned * int8range(NULL, e.until),"
            " during = during * int8range(NULL, e.until), billed = billed * int8range(NULL, e.until)"
            " FROM unnest(%s::text[], %s::bigint[], %s::bigint[]) AS e(id, was, until)"
            " WHERE b.reservation_id = e.id AND upper(b.planned) = e.was AND NOT isempty(b.during)"
            " AND b.held_since IS NULL",
            [list(column) for column in zip(*windows, strict=True)],
        )
    allocations.until({row.id: row.ends_at or 0 for row, _ in rows})


def time_text(moment: int) -> str:
    """Epoch milliseconds for people, to the second."""
    return f"{datetime.fromtimestamp(moment / 1000, tz=UTC):%Y-%m-%d %H:%M:%S} UTC"
