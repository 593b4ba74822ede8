"""The fleet for operators. What shows reservations as well is in the pages of the app that has them (DESIGN §2)."""

from collections.abc import Collection, Mapping
from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html_join

from computeplatform.admin_tools import (
    TABLE_ROWS,
    OperatedAdmin,
    ReadOnlyAdmin,
    Table,
    column,
    instant,
    known,
    labelled,
    link,
    linked,
    list_of,
    lists,
    named,
    offered,
    own_page,
    prettied,
    register_kind,
    some,
    state,
    states,
    table,
)
from fleet.acts import ADOPT, CANCEL, CLEAR_TAINTS, CORDON, DRAIN, END_SILENCE, REMOVE, UNCORDON
from fleet.domain.nodes import STATES
from fleet.domain.pools import DEVICE_CLASSES
from fleet.models import Allocation, Device, Maintenance, Node, Offer, Pool, Taint
from quotas.contracts import maximum
from quotas.queries import quotas_of_pool


def _pool_names(ids: Collection[str] | None) -> Mapping[str, str]:
    return some(Pool.objects.order_by("name"), ids, "name")


def _node_names(ids: Collection[str] | None) -> Mapping[str, str]:
    return some(Node.objects.order_by("name"), ids, "name")


register_kind("pool", "fleet_pool", _pool_names)
register_kind("node", "fleet_node", _node_names)
register_kind("offer", "fleet_offer")
register_kind("device", "fleet_device")
register_kind("taint", "fleet_taint")
register_kind("maintenance", "fleet_maintenance")
register_kind("allocation", "fleet_allocation")

TENANT = linked("tenant_id", "tenant")
POOL = linked("pool_id", "pool")
NODE = linked("node_id", "node")


def _node_state(node: Node) -> Any:
    beside = ["removed"] if node.removed_at is not None else []
    beside += ["draining"] if node.draining else ["cordoned"] if node.cordoned else []
    return states(node.state, *beside) if beside else state(node.state)


NODE_STATE = column("node_state", "state", _node_state, ordering="state")
SILENT = instant("mass_silence_since", "many nodes silent since")
LOST = instant("lost_at", "lost since")
HEARTBEAT = instant("last_heartbeat_at", "last heartbeat")


def _positions(row: Allocation) -> str:
    return ", ".join(str(device["position"]) for device in row.devices)


def _devices(row: Allocation) -> str:
    return "\n".join(f"{device['position']}: {device['uuid']} ({device['class']})" for device in row.devices)


def _subjects(taint: Taint) -> Any:
    return format_html_join(", ", "{}", ((link("reservation", one, {}),) for one in taint.subjects)) or "-"


POSITIONS = column("positions", "positions", _positions)
SUBJECTS = column("subjects", "on account of", _subjects)
ALLOCATION = (
    linked("reservation_id", "reservation"),
    TENANT,
    NODE,
    POSITIONS,
    "binding",
    labelled("desired"),
    labelled("observed"),
    "holders",
    instant("until"),
)


@admin.register(Pool)
class PoolAdmin(OperatedAdmin):
    subject_type = "pool"
    act_columns = (linked("id", "pool", "pool"), instant("mass_silence_since", "many are silent since"))
    actions_detail = ["end_silence"]
    list_display = ["name", TENANT, "region", "gpu_model", "device_class", "sharing", instant("created_at"), "is_open"]
    list_filter = [
        known("device_class", DEVICE_CLASSES),
        "region",
        "gpu_model",
        named("tenant_id", "tenant", "owner"),
        ("archived_at", admin.EmptyFieldListFilter),
        ("mass_silence_since", admin.EmptyFieldListFilter),
    ]
    search_fields = ["name", "=id", "=tenant_id"]
    ordering = ["-created_at"]
    fieldsets = [
        (None, {"fields": ["name", "id", linked("tenant_id", "tenant", "owner"), "is_open", SILENT, "elsewhere"]}),
        ("Devices", {"fields": ["region", "gpu_model", "device_class", "sharing", "profile"]}),
        ("Terms", {"fields": [prettied("policy")]}),
        (
            "Record",
            {"fields": [instant("created_at"), linked("created_by", "principal"), instant("archived_at"), "version"]},
        ),
    ]

    @admin.display(description="open", ordering="archived_at", boolean=True)
    def is_open(self, pool: Pool) -> bool:
        return pool.archived_at is None

    @admin.display(description="see also")
    def elsewhere(self, pool: Pool) -> Any:
        wanted = {"Reservations": "reservations_reservation", "Bookings": "reservations_booking"}
        return lists(wanted | {"Charges": "quotas_charge"}, pool_id=pool.id)

    def tables(self, row: Pool) -> list[Table]:
        offers = row.offers.filter(withdrawn_at=None).order_by("tenant_id")
        quotas = []
        for one in quotas_of_pool(pool_id=row.id, limit=TABLE_ROWS + 1):
            resource = link("quota", one.id, {("quota", one.id): one.resource})
            quotas.append([link("tenant", one.tenant_id, {}), resource, one.used, maximum(one.max)])
        return [
            table(
                "Nodes",
                Node,
                (linked("id", "node", "node"), NODE_STATE, "positions", HEARTBEAT),
                row.nodes.order_by("name"),
                list_of("fleet_node", pool_id=row.id),
            ),
            table(
                "Offers",
                Offer,
                (linked("id", "offer", "offer"), TENANT, "max_priority", instant("created_at")),
                offers,
                list_of("fleet_offer", pool_id=row.id),
            ),
            Table("Quotas", ["tenant", "resource", "used", "max"], quotas, list_of("quotas_quota", pool_id=row.id)),
        ]

    @offered("Give up what is silent…", address="end-silence", icon="signal_disconnected", danger=True)
    def end_silence(self, request: HttpRequest, object_id: str) -> HttpResponse:
        return self.act_on_one(request, END_SILENCE, object_id)


@admin.register(Offer)
class OfferAdmin(ReadOnlyAdmin):
    subject_type = "offer"
    list_display = ["id", POOL, TENANT, "max_priority", "budget_check", instant("created_at"), instant("withdrawn_at")]
    list_filter = [
        named("pool_id", "pool"),
        named("tenant_id", "tenant"),
        ("withdrawn_at", admin.EmptyFieldListFilter),
    ]
    search_fields = ["=id", "=pool__id", "pool__name", "=tenant_id"]
    ordering = ["-created_at"]
    fieldsets = [
        (None, {"fields": ["id", POOL, linked("tenant_id", "tenant", "borrower"), "max_priority", "budget_check"]}),
        (
            "Record",
            {"fields": [instant("created_at"), linked("created_by", "principal"), instant("withdrawn_at"), "version"]},
        ),
    ]


# --- Nodes ------------------------------------------------------------------------------------------------------------


@admin.register(Node)
class NodeAdmin(OperatedAdmin):
    subject_type = "node"
    act_columns = (linked("id", "node", "node"), POOL, NODE_STATE)
    list_display = ["name", POOL, NODE_STATE, "cordon_reason", "positions", HEARTBEAT, "session", instant("created_at")]
    list_filter = [
        known("state", STATES),
        "cordoned",
        "draining",
        named("pool_id", "pool"),
        ("removed_at", admin.EmptyFieldListFilter),
    ]
    search_fields = ["name", "=id", "=pool__id"]
    ordering = ["-created_at"]
    actions = ["cordon_selected", "uncordon_selected", "drain_selected", "clear_taints_selected"]
    actions_detail = ["cordon", "uncordon", "drain", "clear_taints", "adopt", "remove"]
    fieldsets = [
        (None, {"fields": ["name", "id", POOL, NODE_STATE, "cordon_reason", HEARTBEAT, LOST, "elsewhere"]}),
        ("Adopting", {"fields": [prettied("unknown_allocations", "unknown here")], "classes": ["collapse"]}),
        (
            "Hardware",
            {"fields": ["positions", "host_vcpu", "host_memory_mib", "host_hugepages_1gi", prettied("labels")]},
        ),
        ("Software", {"fields": [prettied("software"), "boot_id", "session", "sequence"]}),
        (
            "Record",
            {
                "fields": [
                    instant("created_at"),
                    linked("created_by", "principal"),
                    instant("removed_at"),
                    "unit_base",
                    "version",
                ]
            },
        ),
    ]

    @admin.display(description="see also")
    def elsewhere(self, node: Node) -> Any:
        return lists(
            {"Bookings": "reservations_booking", "Devices that were replaced": "fleet_device"}, node_id=node.id
        )

    def tables(self, row: Node) -> list[Table]:
        devices = ("position", own_page("device", "uuid"), "model", labelled("health"))
        tainted = (own_page("taint", "key"), "reason", SUBJECTS, instant("since"), instant("until"))
        return [
            table(
                "Devices",
                Device,
                (*devices, instant("first_seen_at", "first seen")),
                row.devices.filter(retired_at=None).order_by("position"),
                list_of("fleet_device", node_id=row.id),
            ),
            table("Taints", Taint, tainted, row.taints.order_by("key"), list_of("fleet_taint", node_id=row.id)),
            table(
                "Maintenance",
                Maintenance,
                (own_page("maintenance", "id"), instant("starts_at"), instant("ends_at"), "reason"),
                row.maintenances.order_by("-ends_at"),
                list_of("fleet_maintenance", node_id=row.id),
            ),
            table(
                "Allocations",
                Allocation,
                ALLOCATION,
                row.allocations.order_by("-id"),
                list_of("fleet_allocation", node_id=row.id),
            ),
        ]

    @offered("Cordon…", address="cordon", icon="block")
    def cordon(self, request: HttpRequest, object_id: str) -> HttpResponse:
        return self.act_on_one(request, CORDON, object_id)

    @offered("Uncordon…", address="uncordon", icon="check_circle")
    def uncordon(self, request: HttpRequest, object_id: str) -> HttpResponse:
        return self.act_on_one(request, UNCORDON, object_id)

    @offered("Clear taints…", address="clear-taints", icon="cleaning_services")
    def clear_taints(self, request: HttpRequest, object_id: str) -> HttpResponse:
        return self.act_on_one(request, CLEAR_TAINTS, object_id)

    @offered("Clear taints…")
    def clear_taints_selected(self, request: HttpRequest, _rows: object) -> HttpResponse:
        return self.act_on_selected(request, CLEAR_TAINTS)

    @offered("Drain…", address="drain", icon="move_up", danger=True)
    def drain(self, request: HttpRequest, object_id: str) -> HttpResponse:
        return self.act_on_one(request, DRAIN, object_id)

    @offered("Adopt…", address="adopt", icon="how_to_reg", danger=True)
    def adopt(self, request: HttpRequest, object_id: str) -> HttpResponse:
        return self.act_on_one(request, ADOPT, object_id)

    @offered("Remove…", address="remove", icon="delete", danger=True)
    def remove(self, request: HttpRequest, object_id: str) -> HttpResponse:
        return self.act_on_one(request, REMOVE, object_id)

    @offered("Drain…")
    def drain_selected(self, request: HttpRequest, _rows: object) -> HttpResponse:
        return self.act_on_selected(request, DRAIN)

    @offered("Cordon…")
    def cordon_selected(self, request: HttpRequest, _rows: object) -> HttpResponse:
        return self.act_on_selected(request, CORDON)

    @offered("Uncordon…")
    def uncordon_selected(self, request: HttpRequest, _rows: object) -> HttpResponse:
        return self.act_on_selected(request, UNCORDON)


@admin.register(Device)
class DeviceAdmin(ReadOnlyAdmin):
    list_display = [
        "uuid",
        NODE,
        "position",
        "model",
        "memory_mib",
        labelled("health"),
        instant("first_seen_at", "first seen"),
        instant("retired_at", "retired"),
    ]
    list_filter = [
        known("health", ["ok", "unhealthy", "missing"]),
        "model",
        ("retired_at", admin.EmptyFieldListFilter),
    ]
    search_fields = ["=uuid", "=node__id", "node__name"]
    ordering = ["node", "position", "id"]
    fieldsets = [
        (None, {"fields": ["uuid", NODE, "position", "model", "memory_mib", labelled("health")]}),
        ("Parts", {"fields": [prettied("mig"), "slots"]}),
        (
            "Record",
            {
                "fields": [
                    instant("first_seen_at", "first seen"),
                    instant("health_since", "health since"),
                    instant("retired_at", "retired"),
                ]
            },
        ),
    ]


@admin.register(Taint)
class TaintAdmin(ReadOnlyAdmin):
    list_display = ["key", NODE, "effect", "reason", SUBJECTS, instant("since"), instant("until")]
    list_filter = ["key"]
    search_fields = ["=node__id", "node__name", "key"]
    ordering = ["-since"]
    fieldsets = [(None, {"fields": ["key", NODE, "effect", "reason", SUBJECTS, instant("since"), instant("until")]})]


@admin.register(Maintenance)
class MaintenanceAdmin(OperatedAdmin):
    act_columns = (own_page("maintenance", "id"), NODE, instant("starts_at"), instant("ends_at"))
    list_display = ["id", NODE, instant("starts_at"), instant("ends_at"), "reason", instant("created_at")]
    list_filter = [named("node__pool_id", "pool")]
    search_fields = ["=id", "=node__id", "node__name"]
    ordering = ["-starts_at"]
    actions_detail = ["cancel"]
    fieldsets = [
        (None, {"fields": ["id", NODE, instant("starts_at"), instant("ends_at"), "reason"]}),
        ("Record", {"fields": [instant("created_at"), linked("created_by", "principal")]}),
    ]

    @offered("Cancel…", address="cancel", icon="event_busy", danger=True)
    def cancel(self, request: HttpRequest, object_id: str) -> HttpResponse:
        return self.act_on_one(request, CANCEL, object_id)


@admin.register(Allocation)
class AllocationAdmin(ReadOnlyAdmin):
    list_display = ["id", *ALLOCATION, instant("observed_at", "observed since")]
    list_filter = [
        known("desired", ["planned", "bound", "withdrawn"]),
        known("observed", ["bound", "withdrawing", "withdrawn"]),
        known("binding", ["hold", "node", "kubernetes"]),
        named("pool_id", "pool"),
    ]
    search_fields = ["=reservation_id", "=tenant_id", "=pool_id", "=node__id", "node__name"]
    ordering = ["-id"]
    fieldsets = [
        (None, {"fields": [linked("reservation_id", "reservation"), TENANT, POOL, NODE, "binding", instant("until")]}),
        (
            "Desired",
            {"fields": [labelled("desired"), column("device_list", "devices", _devices), prettied("resources")]},
        ),
        (
            "Observed",
            {
                "fields": [
                    labelled("observed"),
                    instant("observed_at", "since"),
                    "holders",
                    instant("told_at", "first told to bind"),
                ]
            },
        ),
    ]
