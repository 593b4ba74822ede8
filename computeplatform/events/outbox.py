"""Writing events, and stamping their sequence."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db import connection

from computeplatform.db.locks import try_advisory_lock
from computeplatform.db.retry import in_transaction
from computeplatform.events.models import Event
from computeplatform.ids import new_id


@dataclass(frozen=True, kw_only=True)
class NewEvent:
    """An event as an operation hands it over. ``actor_id`` is a principal, or ``system:<loop>``."""

    type: str
    tenant_id: str
    at: int
    subject_type: str
    subject_id: str
    subject_version: int
    reason: str = ""
    actor_id: str
    agent_id: str = ""
    request_id: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)


def emit(events: Iterable[NewEvent]) -> None:
    """Write the events in the caller's transaction: none for what is rolled back, none lost."""
    if not connection.in_atomic_block:
        raise RuntimeError("an event belongs to the transaction of its change")
    Event.objects.bulk_create(
        Event(
            id=new_id("evt"),
            type=e.type,
            tenant_id=e.tenant_id,
            at=e.at,
            subject_type=e.subject_type,
            subject_id=e.subject_id,
            subject_version=e.subject_version,
            reason=e.reason,
            actor_id=e.actor_id,
            agent_id=e.agent_id,
            request_id=e.request_id,
            data=dict(e.data),
        )
        for e in events
    )


# Events keep the order in which they were written, but for those of one subject, which follow its version: where the
# two differ, the lower version goes first and the higher one, written before it, waits for it. A subject's versions
# commit one after the other (its row is locked), so no lower version can turn up after this pass has read.
_STAMP = """
WITH due AS (
    SELECT id, tenant_id, row_number() OVER (PARTITION BY tenant_id ORDER BY turn, subject_version, position) AS place
    FROM (
        SELECT *, max(position) OVER (
            PARTITION BY tenant_id, subject_type, subject_id ORDER BY subject_version, position
        ) AS turn
        FROM (SELECT * FROM computeplatform_event WHERE sequence IS NULL ORDER BY position LIMIT %(limit)s) AS work
    ) AS ranked
), bases AS (
    INSERT INTO computeplatform_tenantsequence (tenant_id, last)
    SELECT tenant_id, count(*) FROM due GROUP BY tenant_id
    ON CONFLICT (tenant_id) DO UPDATE SET last = computeplatform_tenantsequence.last + EXCLUDED.last
    RETURNING tenant_id, last
), counts AS (
    SELECT tenant_id, count(*) AS n FROM due GROUP BY tenant_id
)
UPDATE computeplatform_event AS e SET sequence = b.last - c.n + d.place
FROM due d JOIN bases b USING (tenant_id) JOIN counts c USING (tenant_id)
WHERE e.id = d.id
"""


@in_transaction
def stamp(*, limit: int = 5_000) -> int:
    """Number what has been committed and has no number yet; returns how many. One holder at a time does it.

    ``limit`` bounds one pass. A subject whose events straddle the limit keeps its order: positions rise with versions.
    """
    if not try_advisory_lock("event-stamper"):
        return 0
    with connection.cursor() as cursor:
        cursor.execute(_STAMP, {"limit": limit})
        return int(cursor.rowcount)
