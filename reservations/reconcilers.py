"""The loops of reservations. Each pass reads what is stored and does what is due; a wake only makes it earlier."""

from collections.abc import Callable, Iterable
from functools import partial

import structlog

from computeplatform.clock import SECOND, compute_now
from computeplatform.db.locks import in_line
from computeplatform.db.ticks import record_tick
from computeplatform.wakes import clear_mark
from reservations import queries
from reservations.operations import displacing
from reservations.operations.admission import admit_pool
from reservations.operations.closing import cancel_closed, closed_pools, end_of_agents, pools_with_ending_agents
from reservations.operations.confirming import end_waits
from reservations.operations.holding import pools_with_held, settle_held
from reservations.operations.isolation import is_passing
from reservations.operations.lifecycle import advance_due, postpone
from reservations.operations.placing import place_waiting

log = structlog.get_logger(__name__)

# A draft that old has missed its wake, or its worker has died.
MISSED_WAKE = 1 * SECOND
# For how long the queue's own tick tries what is queued.
QUEUE_RETRIED = 60 * SECOND
# Passes of one call; what is left is due at the next tick too.
MAX_PASSES = 50
SINGLY = 500
# A reservation that fails is looked at again after this long; one that others hold locked, sooner.
POSTPONED = 60 * SECOND
CONTENDED = 5 * SECOND


def admit(*, pool_id: str) -> None:
    """Admit every due draft of the pool. The wake's mark is cleared before reading, so nothing falls between."""
    clear_mark("admission", pool_id)
    _admit(pool_id)


def place(*, pool_id: str) -> None:
    """Try what waits in the pool."""
    clear_mark("placement", pool_id)
    _place(pool_id)


def reconcile(*, pool_id: str) -> None:
    """Do what is due in the pool."""
    clear_mark("reconcile", pool_id)
    _guarded(partial(cancel_closed, pool_id, now=compute_now()), pool_id)
    _displace([pool_id])
    _advance(pool_id, now=compute_now(), woken=True)


def admission_tick() -> None:
    """Finish drafts that a wake should have brought on already (CRE-20)."""
    now = compute_now()
    for pool_id in queries.pools_with_open_drafts(now=now, called_before=now - MISSED_WAKE):
        _guarded(partial(_admit, pool_id), pool_id)
    record_tick("admission", now=now)


def _admit(pool_id: str) -> None:
    """Each pass has its own time: while one admits, the next draft is stored, and it must not start before that."""
    for _ in range(MAX_PASSES):
        if not admit_pool(pool_id, now=compute_now()).full:
            return


def placement_tick() -> None:
    """Try everything that is pending, pool by pool; one pool's failure does not keep the others from it."""
    now = compute_now()
    for pool_id in queries.pools_with_pending():
        _guarded(partial(_place, pool_id), pool_id)
    record_tick(queries.PLACEMENT_TICK, now=now)


def queue_tick() -> None:
    """Place what was queued and whose wake was lost. What fails time and again is left to the placement tick."""
    now = compute_now()
    for pool_id in queries.pools_with_queued(since=now - QUEUE_RETRIED, until=now - MISSED_WAKE):
        _guarded(partial(_place, pool_id), pool_id)
    record_tick("queue", now=now)


def _place(pool_id: str) -> None:
    place_waiting(pool_id, now=compute_now())


def reconcile_tick() -> None:
    """Do what is due, pool by pool. One that is held up holds one tick up: the next ones pass it by."""
    now = compute_now()
    for pool_id in closed_pools():
        _guarded(partial(cancel_closed, pool_id, now=now), pool_id)
    # What must not start where it is has to leave before the others are looked at.
    _displace(displacing.pools_disturbed())
    for pool_id in sorted({*queries.pools_with_due(now=now), *pools_with_held()}):
        with in_line(f"reconcile:{pool_id}") as line:
            if line is not None:
                _guarded(partial(_advance, pool_id, now=now), pool_id)
    # After what has run out: that has ended by itself, and earlier.
    for pool_id in pools_with_ending_agents():
        _guarded(partial(end_of_agents, pool_id, now=now), pool_id)
    record_tick("reconcile", now=now)


def _displace(pool_ids: Iterable[str]) -> None:
    """Move what lost, draining and sick nodes and devices cannot keep, and tell what runs there."""
    for pool_id in sorted(pool_ids):
        _guarded(partial(displacing.displace, pool_id, now=compute_now()), pool_id)


def _advance(pool_id: str, *, now: int, woken: bool = False) -> None:
    # What nodes have let go of comes first: somebody may wait for it.
    _guarded(partial(settle_held, pool_id=pool_id, now=now), pool_id)
    _guarded(partial(end_waits, pool_id=pool_id, now=now), pool_id)
    for _ in range(MAX_PASSES):
        try:
            report = advance_due(now=now, pool_id=pool_id, woken=woken)
        except Exception:
            # One row must not keep the others from their turn: look at each alone, and push the failing one away.
            log.exception("reconcile_pass_failed", pool_id=pool_id)
            _advance_singly(pool_id, now=now, woken=woken)
            return
        # A look at due rows with nothing to do yet has pushed their time on; one at what is binding changes nothing.
        if not (report.moved or (report.seen and not woken)):
            return


def _advance_singly(pool_id: str, *, now: int, woken: bool) -> None:
    for reservation_id in queries.due_ids(now=now, pool_id=pool_id, woken=woken, limit=SINGLY):
        try:
            advance_due(now=now, only=reservation_id)
        except Exception as error:
            log.exception("reservation_postponed", reservation_id=reservation_id)
            postpone(reservation_id=reservation_id, until=now + (CONTENDED if is_passing(error) else POSTPONED))


def _guarded(work: Callable[[], object], pool_id: str) -> None:
    try:
        work()
    except Exception:
        log.exception("pool_pass_failed", pool_id=pool_id)
