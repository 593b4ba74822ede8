"""The ledger's locks: quota rows by key, after reservations and before nodes in the published order."""

from collections.abc import Collection

from django.db.models import Q

from computeplatform.db.locks import lock_rows
from quotas.models import Charge, Quota

Key = tuple[str, str, str]  # tenant, pool, resource

_ORDER = ("tenant_id", "pool_id", "resource")


def lock_quotas(keys: Collection[Key]) -> dict[Key, Quota]:
    """Lock the rows of these keys in key order; those that do not exist are absent from the answer."""
    if not keys:
        return {}
    wanted = Q()
    by_owner: dict[tuple[str, str], set[str]] = {}
    for tenant_id, pool_id, resource in keys:
        by_owner.setdefault((tenant_id, pool_id), set()).add(resource)
    for (tenant_id, pool_id), resources in by_owner.items():
        wanted |= Q(tenant_id=tenant_id, pool_id=pool_id, resource__in=sorted(resources))
    rows = lock_rows(Quota.objects.filter(wanted), order=_ORDER)
    return {(row.tenant_id, row.pool_id, row.resource): row for row in rows}


def live_keys(reservation_ids: Collection[str]) -> set[Key]:
    """The keys under which these reservations are charged at present."""
    lines = Charge.objects.filter(reservation_id__in=list(reservation_ids), refunded_at=None)
    return set(lines.values_list("tenant_id", "pool_id", "resource").distinct())
