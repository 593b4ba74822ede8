"""The ledger's checks (REC-5): what is used is what is charged, and every live line has its row."""

from collections.abc import Collection, Iterable

from django.db import connection

from computeplatform.invariants import invariant

_COMPARE = """
SELECT tenant_id, pool_id, resource, q.used, c.amount
FROM (SELECT * FROM quotas_quota WHERE %(pools)s::text[] IS NULL OR pool_id = ANY(%(pools)s)) AS q
FULL JOIN (
    SELECT tenant_id, pool_id, resource, sum(amount)::bigint AS amount FROM quotas_charge
    WHERE refunded_at IS NULL AND (%(pools)s::text[] IS NULL OR pool_id = ANY(%(pools)s)) GROUP BY 1, 2, 3
) AS c USING (tenant_id, pool_id, resource)
WHERE {condition} ORDER BY 1, 2, 3
"""


def _compare(condition: str, pools: Collection[str] | None) -> Iterable[tuple[str, int | None, int | None]]:
    with connection.cursor() as cursor:
        cursor.execute(_COMPARE.format(condition=condition), {"pools": None if pools is None else list(pools)})
        for tenant_id, pool_id, resource, used, amount in cursor.fetchall():
            yield f"{tenant_id}/{pool_id}/{resource}", used, amount


@invariant("quotas.used-is-sum-of-charges")
def used_is_sum_of_charges(pools: Collection[str] | None) -> Iterable[tuple[str, str]]:
    """``used`` of every row equals the sum of its live lines."""
    for subject, used, amount in _compare("q.used IS NOT NULL AND q.used <> coalesce(c.amount, 0)", pools):
        yield subject, f"used is {used}, the live charges sum to {amount or 0}"


@invariant("quotas.charge-has-row")
def charge_has_row(pools: Collection[str] | None) -> Iterable[tuple[str, str]]:
    """No live line without a row: its refund would find nothing to give back to."""
    for subject, _, amount in _compare("q.used IS NULL", pools):
        yield subject, f"{amount} charged, but there is no quota row"
