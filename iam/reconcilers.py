"""The loops of identity and access. Each pass reads what is stored and does what is due."""

from computeplatform.clock import compute_now
from computeplatform.db.ticks import record_tick
from iam.operations.audit import seal
from iam.operations.sessions import forget_old_sessions

# Entries in one transaction of the sealer, and transactions in one tick: a longer backlog goes on with the next one.
SEALED = 10_000
# Sessions in one transaction.
FORGOTTEN = 1_000
PASSES = 50


def seal_tick() -> None:
    """Seal the entries that have been committed (IAM-7)."""
    for _ in range(PASSES):
        if not seal(now=compute_now(), limit=SEALED):
            break
    record_tick("audit", now=compute_now())


def housekeeping() -> None:
    """Remove what nobody can ask for any more."""
    now = compute_now()
    for _ in range(PASSES):
        if forget_old_sessions(now=now, limit=FORGOTTEN) < FORGOTTEN:
            break
