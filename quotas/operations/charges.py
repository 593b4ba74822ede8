"""Charging and refunding. Both run in the caller's transaction, together with the change of state they belong to."""

from collections.abc import Collection, Sequence

from django.db import connection

from computeplatform.prepared import prepared_cursor
from quotas.contracts import ChargeRequest
from quotas.errors import QuotaExceeded
from quotas.locks import Key, live_keys, lock_quotas
from quotas.models import Charge, Quota


def charge_each(requests: Sequence[ChargeRequest], *, now: int) -> dict[str, QuotaExceeded]:
    """Charge the reservations in the given order; each is charged completely or not at all (QTA-1).

    Returns the refusals by reservation id; whoever is not in it is charged. A refused one uses up nothing, so a
    smaller one behind it may still fit. Three queries, however many requests. Rows are locked in key order and held
    until the caller commits, so two charges at once never pass ``max``; a missing row grants 0 (CRE-12).
    """
    _inside_a_transaction()
    keys = {(r.tenant_id, r.pool_id, name) for r in requests for name, amount in r.amounts.items() if amount}
    rows = lock_quotas(keys)
    used = {key: row.used for key, row in rows.items()}
    refused: dict[str, QuotaExceeded] = {}
    lines: list[Charge] = []
    for request in requests:
        refusal = _shortfall(request, rows, used)
        if refusal is not None:
            refused[request.reservation_id] = refusal
            continue
        for name, amount in request.amounts.items():
            if amount:
                used[request.tenant_id, request.pool_id, name] += amount
                lines.append(_line(request, name, amount, now))
    if lines:
        Charge.objects.bulk_create(lines)
        _store_used({rows[key].id: value for key, value in used.items() if value != rows[key].used})
    return refused


def refusal_of(request: ChargeRequest) -> QuotaExceeded | None:
    """What `charge_each` would refuse at this moment; nothing is charged and no row is locked."""
    names = [name for name, amount in request.amounts.items() if amount]
    found = Quota.objects.filter(tenant_id=request.tenant_id, pool_id=request.pool_id, resource__in=names)
    rows = {(row.tenant_id, row.pool_id, row.resource): row for row in found}
    return _shortfall(request, rows, {key: row.used for key, row in rows.items()})


def refund(reservation_ids: Collection[str], *, now: int) -> int:
    """Give back whatever these reservations are charged; returns how many lines that were.

    Repeating it does nothing: only live lines are refunded, and only their amounts leave ``used``. Rows are locked
    in key order first.
    """
    _inside_a_transaction()
    keys = live_keys(reservation_ids)
    if not keys:
        return 0
    lock_quotas(keys)
    with prepared_cursor() as cursor:
        cursor.execute(_REFUND, {"reservations": list(reservation_ids), "now": now})
        return int(cursor.fetchone()[0])


# What is taken off `used` is exactly what this statement ended, whatever was live when the keys were read.
_REFUND = """
WITH ended AS (
    UPDATE quotas_charge SET refunded_at = greatest(%(now)s, charged_at)
    WHERE reservation_id = ANY(%(reservations)s) AND refunded_at IS NULL
    RETURNING tenant_id, pool_id, resource, amount
), sums AS (
    SELECT tenant_id, pool_id, resource, sum(amount)::bigint AS amount FROM ended GROUP BY 1, 2, 3
), given_back AS (
    UPDATE quotas_quota AS q SET used = q.used - s.amount FROM sums AS s
    WHERE (q.tenant_id, q.pool_id, q.resource) = (s.tenant_id, s.pool_id, s.resource)
)
SELECT count(*) FROM ended
"""


def _shortfall(request: ChargeRequest, rows: dict[Key, Quota], used: dict[Key, int]) -> QuotaExceeded | None:
    for name, amount in request.amounts.items():
        key = (request.tenant_id, request.pool_id, name)
        row = rows.get(key)
        limit, taken = (row.max, used[key]) if row else (0, 0)
        if amount and taken + amount > limit:
            return QuotaExceeded(resource=name, requested=amount, used=taken, max=limit)
    return None


def _line(request: ChargeRequest, resource: str, amount: int, now: int) -> Charge:
    return Charge(
        reservation_id=request.reservation_id,
        tenant_id=request.tenant_id,
        pool_id=request.pool_id,
        resource=resource,
        amount=amount,
        charged_at=now,
    )


def _store_used(values: dict[str, int]) -> None:
    """The rows are locked by us, so the new value needs no guard."""
    with prepared_cursor() as cursor:
        cursor.execute(
            "UPDATE quotas_quota AS q SET used = n.used"
            " FROM unnest(%s::text[], %s::bigint[]) AS n (id, used) WHERE q.id = n.id",
            [list(values), list(values.values())],
        )


def _inside_a_transaction() -> None:
    if not connection.in_atomic_block:
        raise RuntimeError("a charge belongs to the transaction of the change that it pays for")
