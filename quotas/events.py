"""What the ledger tells: maxima that changed. Charges are told by the reservation they belong to."""

from computeplatform.api.calls import Actor
from computeplatform.events.outbox import NewEvent
from quotas.models import Quota

QUOTA_CHANGED = "quota.changed"


def quota_changed(row: Quota, *, before: int | None, by: Actor, now: int) -> NewEvent:
    """A maximum is another one now, or there is one for the first time (``before`` None)."""
    data = {"poolId": row.pool_id, "resource": row.resource, "max": row.max, "used": row.used}
    return NewEvent(
        type=QUOTA_CHANGED,
        tenant_id=row.tenant_id,
        at=now,
        subject_type="quota",
        subject_id=row.id,
        subject_version=row.version,
        actor_id=by.principal_id,
        agent_id=by.agent_id,
        request_id=by.request_id,
        data=data if before is None else data | {"maxBefore": before},
    )
