"""The one writer of a reservation's state.

A change is made on the row object and written here in bulk: one guarded statement for many rows. The guard repeats the
state and version that were read; a row that has moved on makes the whole write fail with StateChanged, and the
operation starts afresh.
"""

import json
from collections.abc import Sequence
from typing import Any

from computeplatform.api.calls import Actor, system_actor
from computeplatform.db.locks import notify
from computeplatform.events.outbox import NewEvent, emit
from computeplatform.parking import CHANNEL
from computeplatform.prepared import prepared_cursor
from reservations import events
from reservations.domain.states import MACHINE
from reservations.errors import StateChanged
from reservations.models import Reservation

# Who does by itself what is due (REC-2), as events and taints name it.
RECONCILER = system_actor("capacity.reservations")

# Every column that changes after the draft was stored, with its type.
_COLUMNS = {
    "state": "text",
    "reason": "text",
    "version": "bigint",
    "conditions": "jsonb",
    "estimated_cost": "numeric",
    "currency": "text",
    "starts_at": "bigint",
    "ends_at": "bigint",
    "ended_at": "bigint",
    "pending_since": "bigint",
    "queued_at": "bigint",
    "binding_since": "bigint",
    "active_at": "bigint",
    "extended_at": "bigint",
    "extended_by": "bigint",
    "lease_expires_at": "bigint",
    "pending_change": "jsonb",
    "ending_told_for": "bigint",
    "lease_told_for": "bigint",
    "preempted_by": "text",
    "claim": "jsonb",
    "held_since": "bigint",
    "price": "jsonb",
    "disturbed_since": "bigint",
    "placement": "jsonb",
    "changed_at": "bigint",
    "attempts": "integer",
    "call_open_until": "bigint",
    "decision_id": "text",
    "decided": "boolean",
    "confirmation_id": "text",
    "outcome": "jsonb",
    "due_at": "bigint",
}
_SET = ", ".join(f"{name} = v.{name}" for name in _COLUMNS)
_TYPES = ", ".join(f"{name} {kind}" for name, kind in _COLUMNS.items())
_WRITE = (
    f"UPDATE reservations_reservation AS r SET {_SET}"  # noqa: S608 - column names are constants of this module
    f" FROM jsonb_to_recordset(%s) AS v(id text, was text, was_version bigint, {_TYPES})"
    " WHERE r.id = v.id AND r.state = v.was AND r.version = v.was_version"
)


class Changes:
    """Changes of one transaction, collected row by row and written at its end."""

    def __init__(self, *, by: Actor, now: int) -> None:
        self._by = by
        self._now = now
        self._read: dict[str, tuple[str, int]] = {}
        self._rows: dict[str, Reservation] = {}
        self._entered: list[NewEvent] = []

    @property
    def now(self) -> int:
        """The time of the changes."""
        return self._now

    def touch(self, row: Reservation) -> None:
        """Columns of the row are about to be changed (or have been); its state is not."""
        self._read.setdefault(row.id, (row.state, row.version))
        self._rows[row.id] = row

    def move(
        self,
        row: Reservation,
        event: str,
        *,
        reason: str = "",
        data: dict[str, Any] | None = None,
        by: Actor | None = None,
    ) -> None:
        """Move the row by ``event``; emits the event of the new state if callers can see that state.

        ``by``: who moves this row, where that is not whoever makes the other changes.
        """
        self.touch(row)
        row.state = MACHINE.next(row.state, event)
        row.reason = reason
        row.changed_at = self._now
        if row.state in events.OF_STATE:
            row.version += 1
            self._entered.append(events.entered(row, event, by=by or self._by, now=self._now, data=data))

    def revise(self, row: Reservation) -> None:
        """A visible change within a state, such as of a condition: the version rises, no event is written."""
        self.touch(row)
        row.version += 1
        row.changed_at = self._now

    def tell(
        self, row: Reservation, type_: str, *, reason: str = "", data: dict[str, Any] | None = None, news: bool = False
    ) -> None:
        """Within a state, a visible change that has an event of its own; ``news``: the event alone, nothing changed."""
        if news:
            self.touch(row)
        else:
            self.revise(row)
        self._entered.append(events.told(row, type_, by=self._by, now=self._now, reason=reason, data=data))

    def write(self) -> None:
        """Write every row and event; raises StateChanged if a row is not what was read.

        Whoever waits for one of the rows to change looks again then (CRE-15, GET-2). A draft's answer is no such
        change: whoever gives it notifies by itself.
        """
        if not self._rows:
            return
        values = [
            {"id": row.id, "was": self._read[row.id][0], "was_version": self._read[row.id][1]}
            | {name: getattr(row, name) for name in _COLUMNS}
            for row in self._rows.values()
        ]
        with prepared_cursor() as cursor:
            cursor.execute(_WRITE, [json.dumps(values, default=str)])
            if cursor.rowcount != len(values):
                raise StateChanged
        emit(self._entered)
        notify(CHANNEL, [row.id for row in self._rows.values() if row.version != self._read[row.id][1]])


def ids(rows: Sequence[Reservation]) -> list[str]:
    """The rows' ids."""
    return [row.id for row in rows]
