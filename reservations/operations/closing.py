"""What other apps have ended, and we read by level: closed pools and withdrawn offers, for those that wait (POL-3), and
agents suspended with ``endReservations``, for all that they have reserved (OPS-4)."""

from computeplatform.db.retry import in_transaction
from fleet import queries as fleet
from iam.queries.agents import agents_ending
from reservations import locks, queries
from reservations.domain import states
from reservations.operations.ending import End, end_rows, wake_waiting
from reservations.operations.state import RECONCILER, Changes

BATCH = 200


def closed_pools() -> list[str]:
    """Pools in which something waits and somebody may book nothing more; two queries, which mostly find nothing."""
    return list(fleet.closed_among(queries.pools_with_pending()))


def cancel_closed(pool_id: str, *, now: int) -> int:
    """Cancel what waits in the pool and may not be booked any more; returns how many."""
    done = 0
    for archived, tenants in fleet.closed_among([pool_id]).values():
        while found := _cancel(pool_id=pool_id, archived=archived, tenants=tenants, now=now):
            done += found
    return done


@in_transaction
def _cancel(*, pool_id: str, archived: bool, tenants: frozenset[str], now: int) -> int:
    """One batch of them; what somebody else works on just now is left to the next tick."""
    rows = locks.claim_closed(pool_id=pool_id, tenants=None if archived else tenants, limit=BATCH)
    if not rows:
        return 0
    # The offer may be open again, while the pool waited for its turn.
    still = fleet.closed_among([pool_id]).get(pool_id, (False, frozenset()))
    changes = Changes(by=RECONCILER, now=now)
    reason = "pool-archived" if still[0] else "offer-withdrawn"
    ends = [End(row, "cancel", reason, at=now) for row in rows if still[0] or row.tenant_id in still[1]]
    end_rows(ends, changes, now=now)
    changes.write()
    return len(ends)


def pools_with_ending_agents() -> list[str]:
    """Pools in which something lives of an agent that was suspended with it; one query, which mostly finds nothing."""
    agents = agents_ending()
    return queries.pools_of_agents(agents) if agents else []


def end_of_agents(pool_id: str, *, now: int) -> int:
    """End what such agents have in the pool, in delegated sessions too; returns how many."""
    done = 0
    while found := _end_of_agents(pool_id=pool_id, now=now):
        done += found
    return done


@in_transaction
def _end_of_agents(*, pool_id: str, now: int) -> int:
    """One batch: what is pending is cancelled, the rest released. An agent that was resumed keeps what is left."""
    rows = locks.claim_of_agents(pool_id=pool_id, agents=agents_ending(), limit=BATCH)
    if not rows:
        return 0
    changes = Changes(by=RECONCILER, now=now)
    booked = [row for row in rows if row.state in states.BOOKED]
    events = {states.PENDING: "cancel"}
    end_rows([End(row, events.get(row.state, "end"), "agent-suspended", at=now) for row in rows], changes, now=now)
    changes.write()
    wake_waiting(booked)
    return len(rows)
