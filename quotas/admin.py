"""The ledger for operators."""

from django.contrib import admin

from computeplatform.admin_tools import (
    ReadOnlyAdmin,
    Table,
    column,
    instant,
    known,
    linked,
    list_of,
    named,
    register_kind,
    table,
)
from quotas.contracts import maximum
from quotas.models import Charge, Quota

register_kind("quota", "quotas_quota")
register_kind("charge", "quotas_charge")

TENANT = linked("tenant_id", "tenant")
POOL = linked("pool_id", "pool")
RESERVATION = linked("reservation_id", "reservation")
MAX = column("max_text", "max", lambda quota: maximum(quota.max), ordering="max")
RESOURCES = ["gpu", "slot", "vcpu", "memoryGiB"]  # and mig:<profile>, which the search finds


@admin.register(Quota)
class QuotaAdmin(ReadOnlyAdmin):
    subject_type = "quota"
    list_display = ["id", TENANT, POOL, "resource", "used", MAX, "version"]
    list_filter = [known("resource", RESOURCES), named("tenant_id", "tenant"), named("pool_id", "pool")]
    search_fields = ["=tenant_id", "=pool_id", "=id", "=resource"]
    ordering = ["tenant_id", "pool_id", "resource"]
    fieldsets = [(None, {"fields": ["id", TENANT, POOL, "resource", "used", MAX, "version"]})]

    def tables(self, row: Quota) -> list[Table]:
        of_this = {"tenant_id": row.tenant_id, "pool_id": row.pool_id, "resource": row.resource}
        live = Charge.objects.filter(refunded_at=None, **of_this).order_by("-id")
        columns = (linked("id", "charge", "charge"), RESERVATION, "amount", instant("charged_at", "charged"))
        return [
            table("Live charges", Charge, columns, live, list_of("quotas_charge", refunded_at__isempty="1", **of_this))
        ]


@admin.register(Charge)
class ChargeAdmin(ReadOnlyAdmin):
    list_display = [
        "id",
        RESERVATION,
        TENANT,
        POOL,
        "resource",
        "amount",
        instant("charged_at", "charged"),
        instant("refunded_at", "refunded"),
    ]
    list_filter = [
        known("resource", RESOURCES),
        ("refunded_at", admin.EmptyFieldListFilter),
        named("tenant_id", "tenant"),
        named("pool_id", "pool"),
    ]
    search_fields = ["=reservation_id", "=tenant_id", "=pool_id", "=resource"]
    ordering = ["-id"]
    fieldsets = [
        (None, {"fields": [RESERVATION, TENANT, POOL, "resource", "amount"]}),
        ("Record", {"fields": [instant("charged_at", "charged"), instant("refunded_at", "refunded")]}),
    ]
