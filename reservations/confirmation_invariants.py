"""What must hold of drafts that wait for a person, and of approvals, at every commit: read-only checks."""

from computeplatform.invariants import invariant
from reservations.invariants import Found, Pools, _rows, _scope

_AWAITING = """
SELECT r.id, r.state, r.confirmation_id, c.state FROM reservations_reservation r
LEFT JOIN iam_confirmation c ON c.id = r.confirmation_id AND c.resource_id = r.id AND c.tenant_id = r.tenant_id
    AND c.action = 'compute:reservations:create' AND c.user_id = r.creator_id AND c.agent_id = r.creator_agent_id
LEFT JOIN iam_decision d ON d.id = r.decision_id
WHERE (%(all)s OR r.pool_id = ANY(%(pools)s)) AND (r.confirmation_id <> '' OR r.state = 'awaiting-confirmation') AND (
    c.id IS NULL OR (c.state = 'pending' AND r.state <> 'awaiting-confirmation')
    OR (r.state = 'awaiting-confirmation' AND (c.state = 'used' OR r.due_at > c.expires_at
        OR r.decision_id = '' OR (d.outcome, d.reason) <> ('deny', 'confirmation-required')))
)
"""


@invariant("reservations.awaiting")
def awaiting(pools: Pools) -> Found:
    """A draft waits for a confirmation of its own, that a decision has asked for, and is looked at when that ends."""
    for reservation_id, state, confirmation_id, found in _rows(_AWAITING, _scope(pools)):
        yield reservation_id, f"is {state} with confirmation {confirmation_id or 'none'}, which is {found or 'not its'}"


_ASKED = """
SELECT c.resource_id, c.id, r.state FROM iam_confirmation c
LEFT JOIN reservations_reservation r ON r.id = c.resource_id AND r.tenant_id = c.tenant_id
WHERE c.resource_type = 'compute-reservation' AND (%(all)s OR r.pool_id = ANY(%(pools)s)) AND (
    c.action = 'compute:reservations:create' AND c.state = 'pending'
        AND (r.state, r.confirmation_id) IS DISTINCT FROM ('awaiting-confirmation', c.id)
    OR c.action = 'compute:reservations:extend' AND (r.id IS NULL OR r.state IN ('draft', 'awaiting-confirmation'))
)
"""


@invariant("reservations.asked")
def asked(pools: Pools) -> Found:
    """What a person can still answer about a create, its draft waits for; extensions are asked of what was admitted."""
    for reservation_id, confirmation_id, state in _rows(_ASKED, _scope(pools)):
        yield reservation_id, f"is {state or 'gone'}, and confirmation {confirmation_id} is open on it"
