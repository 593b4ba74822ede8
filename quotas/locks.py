"""The ledger's locks: quota rows by key, after reservations and before nodes in the published order."""

from collections.abc import Collection

from django.db.models import Q, QuerySet

from computeplatform.db.locks import claim_rows, lock_rows
from quotas.models import Charge, Quota

Key = tuple[str, str, str]  # tenant, pool, resource

_ORDER = ("tenant_id", "pool_id", "resource")


def lock_quotas(keys: Collection[Key]) -> dict[Key, Quota]:
    """Lock the rows of these keys in key order; those that do not exist are absent from the answer."""
    if not keys:
        return {}
    rows = lock_rows(_rows(keys), order=_ORDER)
    return {(row.tenant_id, row.pool_id, row.resource): row for row in rows}


def try_lock_quotas(keys: Collection[Key]) -> bool:
    """Lock the rows of these keys if nobody else holds one of them: for whoever holds others and must not wait.

    False if somebody does; those that were free are locked all the same.
    """
    if not keys:
        return True
    rows = _rows(keys)
    return len(claim_rows(rows, limit=len(keys), order=_ORDER)) == rows.count()


def _rows(keys: Collection[Key]) -> QuerySet[Quota]:
    wanted = Q()
    by_owner: dict[tuple[str, str], set[str]] = {}
    for tenant_id, pool_id, resource in keys:
        by_owner.setdefault((tenant_id, pool_id), set()).add(resource)
    for (tenant_id, pool_id), resources in by_owner.items():
        wanted |= Q(tenant_id=tenant_id, pool_id=pool_id, resource__in=sorted(resources))
    return Quota.objects.filter(wanted)


def live_keys(reservation_ids: Collection[str]) -> set[Key]:
    """The keys under which these reservations are charged at present."""
    lines = Charge.objects.filter(reservation_id__in=list(reservation_ids), refunded_at=None)
    return set(lines.values_list("tenant_id", "pool_id", "resource").distinct())
