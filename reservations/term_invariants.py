"""What must hold of a reservation's terms, its end and its lease, at every commit: read-only checks."""

from computeplatform.invariants import invariant
from reservations.invariants import Found, Pools, _rows, _scope

_LEASES = """
SELECT id, state, lease_seconds, lease_expires_at FROM reservations_reservation
WHERE (%(all)s OR pool_id = ANY(%(pools)s)) AND (
    (lease_expires_at IS NOT NULL) <> (lease_seconds IS NOT NULL AND state = ANY(%(booked)s))
    OR (lease_told_for IS NOT NULL AND state <> ALL(%(booked)s))
    OR (ending_told_for IS NOT NULL AND state <> ALL(%(booked)s) AND state <> 'pending')
)
"""


@invariant("reservations.leases")
def leases(pools: Pools) -> Found:
    """A lease runs exactly while it is placed, binding or active (REN-1)."""
    for reservation_id, state, seconds, expires_at in _rows(_LEASES, _scope(pools)):
        yield reservation_id, f"is {state} with a lease of {seconds or 'no'} seconds, which lapses at {expires_at}"


# One that is cut short by preemption ends earlier, and so does what was extended before that.
_ENDS = """
SELECT id, state, ends_at, coalesce(requested_ends_at, starts_at + duration), extended_by FROM reservations_reservation
WHERE (%(all)s OR pool_id = ANY(%(pools)s)) AND (
    extended_by < 0 OR (extended_by > 0) <> (extended_at IS NOT NULL)
    OR (state = ANY(%(booked)s) AND CASE WHEN preempted_by = ''
        THEN ends_at <> coalesce(requested_ends_at, starts_at + duration) + extended_by
        ELSE ends_at > coalesce(requested_ends_at, starts_at + duration) + extended_by END)
)
"""


@invariant("reservations.ends")
def ends(pools: Pools) -> Found:
    """A window ends when its caller asked, later by what it was extended by (EXT-6), unless preemption cut it short."""
    for reservation_id, state, ends_at, asked, extended_by in _rows(_ENDS, _scope(pools)):
        yield reservation_id, f"is {state} until {ends_at}; asked for until {asked}, extended by {extended_by}"


_CHANGES = """
SELECT id, state FROM reservations_reservation
WHERE (%(all)s OR pool_id = ANY(%(pools)s)) AND pending_change IS NOT NULL AND (
    state <> ALL(%(booked)s) OR due_at > (pending_change ->> 'openUntil')::bigint
)
"""


@invariant("reservations.pending-changes")
def pending_changes(pools: Pools) -> Found:
    """Only what can be extended has a change that is being decided, and an abandoned one is looked at (EXT-5)."""
    for reservation_id, state in _rows(_CHANGES, _scope(pools)):
        yield reservation_id, f"is {state}, and a change of it is being decided that nobody would clear"
