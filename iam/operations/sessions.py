"""Delegated sessions: ended with what they depend on, and forgotten when they are long over (IAM-5)."""

from django.db.models import QuerySet

from computeplatform.clock import DAY
from computeplatform.db.locks import claim_rows
from computeplatform.db.retry import in_transaction
from iam.locks import lock_open_sessions
from iam.models import DelegatedSession, Delegation

# How long one that is over can still be looked up: to answer an idempotency key, and by whoever asks what happened.
KEPT = 30 * DAY


def end_sessions(delegations: QuerySet[Delegation], *, now: int) -> None:
    """End what was assumed under these delegations, for good, in the caller's transaction.

    For what can come back: whoever holds the user's and the agent's row keeps new ones from being assumed meanwhile.
    """
    DelegatedSession.objects.filter(id__in=lock_open_sessions(delegations, now=now)).update(ended_at=now)


@in_transaction
def forget_old_sessions(*, now: int, limit: int) -> int:
    """Remove up to ``limit`` sessions that have been over for 30 days, the oldest first; how many it were."""
    over = DelegatedSession.objects.filter(expires_at__lte=now - KEPT)
    old = [row.id for row in claim_rows(over, limit=limit, order=("expires_at", "id"))]
    DelegatedSession.objects.filter(id__in=old).delete()
    return len(old)
