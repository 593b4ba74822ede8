"""What must hold of events at every commit (EVT-1)."""

from collections.abc import Collection, Iterator

from django.db import connection

from computeplatform.invariants import invariant

# A number is given once (a constraint), so the numbers are 1 to n exactly when there are n and the last one is n.
_NUMBERS = """
SELECT tenant_id, coalesce(s.last, 0), coalesce(e.count, 0), e.first, e.last
FROM (
    SELECT tenant_id, count(*), min(sequence) AS first, max(sequence) AS last FROM computeplatform_event
    WHERE sequence IS NOT NULL GROUP BY tenant_id
) AS e
FULL JOIN computeplatform_tenantsequence AS s USING (tenant_id)
WHERE e.first <> 1 OR e.last <> e.count OR coalesce(s.last, 0) <> coalesce(e.count, 0) ORDER BY tenant_id
"""

_ORDER = """
SELECT subject_type, subject_id, subject_version, before FROM (
    SELECT subject_type, subject_id, subject_version,
        lag(subject_version) OVER (PARTITION BY tenant_id, subject_type, subject_id ORDER BY sequence) AS before
    FROM computeplatform_event
    WHERE sequence IS NOT NULL AND (%(pools)s::text[] IS NULL OR data ->> 'poolId' = ANY(%(pools)s))
) AS stamped
WHERE before > subject_version ORDER BY 1, 2, 3
"""


@invariant("events.numbers")
def numbers(pools: Collection[str] | None) -> Iterator[tuple[str, str]]:
    """A tenant's stamped events are numbered from 1 on without a gap. No pool has numbers of its own."""
    if pools is not None:
        return
    with connection.cursor() as cursor:
        cursor.execute(_NUMBERS)
        for tenant_id, given, count, first, last in cursor.fetchall():
            yield tenant_id, f"{count} events are numbered {first} to {last}; the last number given is {given}"


@invariant("events.order")
def order(pools: Collection[str] | None) -> Iterator[tuple[str, str]]:
    """The numbers of one subject's events rise with its version."""
    with connection.cursor() as cursor:
        cursor.execute(_ORDER, {"pools": None if pools is None else list(pools)})
        for kind, subject, version, before in cursor.fetchall():
            yield f"{kind} {subject}", f"the event of version {version} comes after that of version {before}"
