"""The fleet for operators. What shows reservations as well is in the pages of the app that has them (DESIGN §2)."""

from django.contrib import admin

from computeplatform.admin_tools import ReadOnlyAdmin, instant
from fleet.models import Allocation, Device, Node, Offer, Pool, Taint


@admin.register(Pool)
class PoolAdmin(ReadOnlyAdmin):
    list_display = [
        "name",
        "id",
        "tenant_id",
        "region",
        "gpu_model",
        "device_class",
        "sharing",
        instant("created_at"),
        instant("archived_at"),
    ]
    list_filter = ["device_class", "region", "gpu_model"]
    search_fields = ["name", "=id", "=tenant_id"]
    ordering = ["-created_at"]


@admin.register(Offer)
class OfferAdmin(ReadOnlyAdmin):
    list_display = ["pool", "tenant_id", "max_priority", "budget_check", instant("created_at"), instant("withdrawn_at")]
    list_select_related = ["pool"]
    list_filter = [("withdrawn_at", admin.EmptyFieldListFilter)]
    search_fields = ["=pool__id", "pool__name", "=tenant_id"]
    ordering = ["-created_at"]


@admin.register(Node)
class NodeAdmin(ReadOnlyAdmin):
    list_display = [
        "name",
        "id",
        "pool",
        "state",
        "cordoned",
        "positions",
        "session",
        instant("last_heartbeat_at", "last heartbeat"),
    ]
    list_select_related = ["pool"]
    list_filter = ["state", "cordoned"]
    search_fields = ["name", "=id", "=pool__id"]
    ordering = ["-created_at"]


@admin.register(Device)
class DeviceAdmin(ReadOnlyAdmin):
    list_display = [
        "node",
        "position",
        "uuid",
        "model",
        "memory_mib",
        "health",
        instant("first_seen_at"),
        instant("retired_at"),
    ]
    list_select_related = ["node"]
    list_filter = ["health", "model", ("retired_at", admin.EmptyFieldListFilter)]
    search_fields = ["=uuid", "=node__id", "node__name"]
    ordering = ["node", "position"]


@admin.register(Taint)
class TaintAdmin(ReadOnlyAdmin):
    list_display = ["node", "key", "effect", "reason", "subjects", instant("since"), instant("until")]
    list_select_related = ["node"]
    list_filter = ["key"]
    search_fields = ["=node__id", "node__name"]
    ordering = ["-since"]


@admin.register(Allocation)
class AllocationAdmin(ReadOnlyAdmin):
    list_display = [
        "reservation_id",
        "tenant_id",
        "node",
        "binding",
        "desired",
        "observed",
        "holders",
        instant("observed_at"),
        instant("told_at"),
        instant("until"),
    ]
    list_select_related = ["node"]
    list_filter = ["desired", "observed", "binding"]
    search_fields = ["=reservation_id", "=tenant_id", "=pool_id", "=node__id", "node__name"]
    ordering = ["-id"]
