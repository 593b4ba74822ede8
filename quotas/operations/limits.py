"""Setting what a tenant may use."""

from collections.abc import Mapping

from computeplatform.api.calls import Actor
from computeplatform.db.retry import in_transaction
from computeplatform.errors import StaleVersion
from computeplatform.events.outbox import emit
from computeplatform.ids import derived_id
from quotas import events
from quotas.contracts import UNLIMITED, QuotaView
from quotas.locks import Key, lock_quotas
from quotas.models import Quota
from quotas.queries import quota_view


@in_transaction
def set_max(
    *,
    tenant_id: str,
    pool_id: str,
    resource: str,
    max: int,  # noqa: A002 - the contract's word
    by: Actor,
    now: int,
    version: int | None = None,
) -> QuotaView:
    """Set one maximum (0 to 2^53−1), below ``used`` too: that stops new charges and ends nothing (QTA-1).

    Raises StaleVersion where ``version`` is given and is not the present one (0: the row must not exist yet).
    """
    if version is not None:
        row = lock_quotas({(tenant_id, pool_id, resource)}).get((tenant_id, pool_id, resource))
        present = row.version if row else 0
        if present != version:
            raise StaleVersion(given=version, present=present)
    return ensure_rows(tenant_id=tenant_id, pool_id=pool_id, maxima={resource: max}, by=by, now=now)[0]


@in_transaction
def ensure_rows(*, tenant_id: str, pool_id: str, maxima: Mapping[str, int], by: Actor, now: int) -> list[QuotaView]:
    """Make a tenant's rows in a pool hold these maxima, creating what is missing; other rows stay as they are.

    Returns the rows in the order of ``maxima``. One ``quota.changed`` per row that changes; four queries at most.
    """
    if any(not 0 <= limit <= UNLIMITED for limit in maxima.values()):
        raise ValueError("a maximum is a whole number from 0 to 2^53−1")
    keys: list[Key] = [(tenant_id, pool_id, name) for name in maxima]
    Quota.objects.bulk_create(
        [
            Quota(id=derived_id("quota", *key), tenant_id=tenant_id, pool_id=pool_id, resource=key[2], max=0, version=0)
            for key in keys
        ],
        ignore_conflicts=True,
    )
    rows = lock_quotas(keys)
    # A row at version 0 was made a moment ago and is not yet what anybody asked for.
    changed = [row for row in rows.values() if row.version == 0 or row.max != maxima[row.resource]]
    before = {row.id: row.max for row in changed if row.version}
    for row in changed:
        row.max, row.version = maxima[row.resource], row.version + 1
    if changed:
        Quota.objects.bulk_update(changed, ["max", "version"])
        emit(events.quota_changed(row, before=before.get(row.id), by=by, now=now) for row in changed)
    return [quota_view(rows[key]) for key in keys]


@in_transaction
def close_rows(*, pool_id: str, tenant_id: str | None = None, by: Actor, now: int) -> None:
    """Set every maximum of a pool, or of one tenant in it, to 0: nothing new is charged, refunds still find their rows.

    One ``quota.changed`` per row that changes; three queries.
    """
    found = Quota.objects.filter(pool_id=pool_id, max__gt=0)
    if tenant_id is not None:
        found = found.filter(tenant_id=tenant_id)
    rows = lock_quotas(set(found.values_list("tenant_id", "pool_id", "resource"))).values()
    changed = [row for row in rows if row.max]
    before = {row.id: row.max for row in changed}
    for row in changed:
        row.max, row.version = 0, row.version + 1
    if changed:
        Quota.objects.bulk_update(changed, ["max", "version"])
        emit(events.quota_changed(row, before=before[row.id], by=by, now=now) for row in changed)
