"""Reading the ledger."""

from collections.abc import Collection

from quotas.contracts import ChargeLine, QuotaView
from quotas.models import Charge, Quota


def quota_view(row: Quota) -> QuotaView:
    """The row as other apps see it."""
    return QuotaView(row.id, row.tenant_id, row.pool_id, row.resource, row.max, row.used, row.version)


def quotas_of(*, tenant_id: str, pool_ids: Collection[str] | None = None) -> list[QuotaView]:
    """A tenant's rows, in all pools or in those given, ordered by pool and resource."""
    rows = Quota.objects.filter(tenant_id=tenant_id)
    if pool_ids is not None:
        rows = rows.filter(pool_id__in=list(pool_ids))
    return [quota_view(row) for row in rows.order_by("pool_id", "resource")]


def used_by_tenant(*, pool_id: str, resource: str) -> dict[str, int]:
    """How much of one resource of a pool each tenant uses: the order of fairness is read from it (QTA-4)."""
    return dict(Quota.objects.filter(pool_id=pool_id, resource=resource).values_list("tenant_id", "used"))


def live_lines(reservation_ids: Collection[str]) -> list[ChargeLine]:
    """What these reservations are charged at present, ordered by reservation and resource."""
    rows = Charge.objects.filter(reservation_id__in=list(reservation_ids), refunded_at=None)
    fields = ("reservation_id", "tenant_id", "pool_id", "resource", "amount")
    return [ChargeLine(*row) for row in rows.order_by("reservation_id", "resource").values_list(*fields)]


def quotas_of_pool(*, pool_id: str, limit: int) -> list[QuotaView]:
    """The first rows of a pool, whoever's, ordered by tenant and resource: what its page shows to operators."""
    return [quota_view(row) for row in Quota.objects.filter(pool_id=pool_id).order_by("tenant_id", "resource")[:limit]]
