"""The ledger for operators."""

from django.contrib import admin

from computeplatform.admin_tools import ReadOnlyAdmin, instant
from quotas.models import Charge, Quota


@admin.register(Quota)
class QuotaAdmin(ReadOnlyAdmin):
    list_display = ["tenant_id", "pool_id", "resource", "max", "used", "version"]
    list_filter = ["resource"]
    search_fields = ["=tenant_id", "=pool_id", "=id"]
    ordering = ["tenant_id", "pool_id", "resource"]


@admin.register(Charge)
class ChargeAdmin(ReadOnlyAdmin):
    list_display = [
        "reservation_id",
        "tenant_id",
        "pool_id",
        "resource",
        "amount",
        instant("charged_at"),
        instant("refunded_at"),
    ]
    list_filter = ["resource", ("refunded_at", admin.EmptyFieldListFilter)]
    search_fields = ["=reservation_id", "=tenant_id", "=pool_id"]
    ordering = ["-id"]
