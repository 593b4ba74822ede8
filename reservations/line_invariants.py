"""What must hold of those that wait, and of those that make way for them: read-only checks."""

from computeplatform.invariants import invariant
from reservations.invariants import Found, Pools, _rows, _scope

_QUEUED = """
SELECT id, state, queued_at FROM reservations_reservation
WHERE (%(all)s OR pool_id = ANY(%(pools)s)) AND (conditions @> '[{"type": "Queued"}]') <> (queued_at IS NOT NULL)
"""


@invariant("reservations.queued")
def queued(pools: Pools) -> Found:
    """What says that it waits for the pool's placer is in its queue, and the other way round (CRE-14)."""
    for reservation_id, state, queued_at in _rows(_QUEUED, _scope(pools)):
        yield reservation_id, f"is {state}, in the queue since {queued_at}; its condition Queued says otherwise"


_PREEMPTION = """
SELECT id, state, preempted_by FROM reservations_reservation
WHERE (%(all)s OR pool_id = ANY(%(pools)s)) AND (
    (state = ANY(%(live)s) AND (preempted_by <> '') <> (conditions @> '[{"type": "PreemptionScheduled"}]'))
    OR (state = 'pending' AND preempted_by <> '') OR (reason = 'preempted' AND preempted_by = '')
)
"""


@invariant("reservations.preemption")
def preemption(pools: Pools) -> Found:
    """What is to make way says so, and what was preempted knows for whom (PRE-2)."""
    for reservation_id, state, preempted_by in _rows(_PREEMPTION, _scope(pools)):
        yield reservation_id, f"is {state}, preempted by {preempted_by or 'nobody'}; its condition or reason differs"


_CLAIMS = """
WITH kept AS (
    SELECT r.id, r.pool_id, r.tenant_id, c ->> 'nodeId' AS node, int8range((c ->> 'first')::bigint,
        (c ->> 'first')::bigint + (c ->> 'count')::bigint) AS grains
    FROM reservations_reservation r, jsonb_array_elements(r.claim) AS c
    WHERE r.claim IS NOT NULL AND (%(all)s OR r.pool_id = ANY(%(pools)s))
)
SELECT a.id, b.id FROM kept a JOIN kept b ON a.id < b.id AND a.node = b.node AND a.grains && b.grains
UNION SELECT id, NULL FROM reservations_reservation WHERE (%(all)s OR pool_id = ANY(%(pools)s))
    AND (claim IS NOT NULL) <> (conditions @> '[{"type": "Unschedulable", "reason": "AwaitingPreemption"}]')
"""


@invariant("reservations.claims")
def claims(pools: Pools) -> Found:
    """No device is kept for two at once, and whatever waits for others to make way has its devices kept (PRE-2)."""
    for first, second in _rows(_CLAIMS, _scope(pools)):
        too = f"it has devices kept for it that are kept for {second} too"
        yield first, too if second else "it waits for preemption with nothing kept for it, or the other way round"
