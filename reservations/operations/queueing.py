"""The placer of a pool (CRE-14): with ``policy.placer`` pool-lease a create only joins the queue, and the one worker
that holds the pool's lease places what waits, in the order of REC-3.

The lease is a lock of the worker's database session: a killed holder loses it at once and the next one takes over.
What keeps two writers apart is the pool's row lock, as everywhere; the lease only says who is to do the work.
"""

import contextlib
from collections.abc import Iterator, Sequence

from computeplatform.api.calls import Actor
from computeplatform.conditions import Condition, from_json, to_json, with_condition, without_condition
from computeplatform.db.locks import holding, in_line
from computeplatform.wakes import wake
from fleet.contracts import PoolView
from reservations.contracts import reservation_json
from reservations.domain.conditions import QUEUED
from reservations.models import Reservation
from reservations.operations.state import Changes
from reservations.queries import give_up_at

POOL_LEASE = "pool-lease"

_MESSAGE = "waits for its turn with the pool's placer"


def enqueue(rows: Sequence[Reservation], pool: PoolView, changes: Changes, *, now: int) -> None:
    """Leave charged drafts to the pool's placer; their calls are answered ``pending`` with ``Queued``.

    Callers hold the pool's lock. Whoever called has done it, whichever worker carries it out (EVT-1).
    """
    for row in rows:
        row.call_open_until = None
        row.pending_since = row.queued_at = now
        row.due_at = give_up_at(row, pool)
        told = Condition(QUEUED, "True", "AwaitingPlacer", _MESSAGE, now)
        row.conditions = to_json(with_condition(from_json(row.conditions), told))
        changes.move(row, "admit-queued", by=Actor(row.creator_id, row.creator_agent_id, row.context["requestId"]))
        row.outcome = {"reservation": reservation_json(row)}
    if rows:
        wake("placement", pool.id)


def leave_queue(row: Reservation) -> None:
    """It has had its turn, or needs none any more."""
    row.queued_at = None
    row.conditions = to_json(without_condition(from_json(row.conditions), QUEUED))


@contextlib.contextmanager
def placer_lease(pool_id: str) -> Iterator[bool]:
    """Be the one worker that places what waits in the pool.

    False where another one waits for the lease already: it has still to read, so it sees what was committed before
    this call.
    """
    with in_line(f"placement:{pool_id}") as line:
        if line is None:
            yield False
            return
        with holding(f"placer:{pool_id}"):
            line.leave()
            yield True
