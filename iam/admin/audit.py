"""The audit log: decisions, and the batches that they are sealed in (IAM-7)."""

from typing import Any

from django.contrib import admin
from django.utils.html import format_html

from computeplatform.admin_tools import (
    ReadOnlyAdmin,
    column,
    decisions_of,
    instant,
    known,
    labelled,
    link,
    linked,
    lists,
    named,
    names_on,
    prettied,
    register_kind,
)
from iam.admin.people import PRINCIPAL, TENANT
from iam.catalogue import actions_by_name, resources_by_name
from iam.models import Decision, DecisionBatch, UnsealedDecision

register_kind("decision", "iam_decision")

# The kinds of object that decisions are about, by the contract's names of resources.
KIND_OF_RESOURCE = {
    "compute-reservation": "reservation",
    "compute-pool": "pool",
    "compute-node": "node",
    "compute-tenant": "tenant",
    "iam-tenant": "tenant",
}
OUTCOMES = ["allow", "deny"]
REASONS = [
    "permitted",
    "session-rule",
    "policy-error",
    "forbidden",
    "no-permit",
    "key-scope",
    "boundary",
    "delegation-scope",
    "confirmation-required",
    "confirmation-refused",
]


def _kind_of_resource(decision: Decision) -> str:
    return KIND_OF_RESOURCE.get(decision.resource_type, "")


def _policies(decision: Decision) -> Any:
    shown = [
        f"{one['policy']}{' v' + str(one['version']) if 'version' in one else ''}: {one['statement']}"
        for one in decision.policies
    ]
    return "\n".join(shown) or "-"


def _act(decision: Decision) -> dict[str, Any] | None:
    """What an operator did in the admin, where that is what was decided."""
    return decision.context.get("operator")  # type: ignore[no-any-return]


def _resource(decision: Decision) -> Any:
    """What was decided on; of an operator's act what it was done to, for all of them are decided on the fleet."""
    act = _act(decision)
    if act is None:
        return link(_kind_of_resource(decision), decision.resource_id, names_on(decision))
    subject = act["subject"]
    kind = KIND_OF_RESOURCE.get(subject["type"], "")
    what = link(kind, subject["id"], {(kind, subject["id"]): subject["id"]})
    return format_html("{} {} of {}", act["method"], what, subject["tenantId"])


def _why(decision: Decision) -> str:
    act = _act(decision)
    return f"{act['username']}: {act['reason']}" if act else "-"


RESOURCE = column("resource", "resource", _resource, linked=("resource_id", _kind_of_resource))
IN_SESSION = (linked("agent_id", "principal", "agent"), linked("delegation_id", "delegation"))
CONFIRMATION = column(
    "confirmation",
    "confirmation",
    lambda decision: link("confirmation", decision.context.get("confirmationId", ""), {}),
)
REQUEST = column("request", "request", lambda decision: decisions_of(decision.request_id), ordering="request_id")


@admin.register(Decision)
class DecisionAdmin(ReadOnlyAdmin):
    list_display = [
        instant("at", "at"),
        labelled("outcome"),
        "reason",
        TENANT,
        PRINCIPAL,
        linked("agent_id", "principal", "agent"),
        "action",
        RESOURCE,
    ]
    list_filter = [
        known("outcome", OUTCOMES),
        known("reason", REASONS),
        known("action", lambda: sorted(actions_by_name())),
        known("resource_type", lambda: sorted(resources_by_name())),
        named("tenant_id", "tenant"),
    ]
    search_fields = [
        "=id",
        "=tenant_id",
        "=principal_id",
        "=agent_id",
        "=resource_id",
        "=request_id",
        "=context__operator__subject__id",
    ]
    ordering = ["-at", "-id"]
    fieldsets = [
        (None, {"fields": ["id", instant("at", "at"), labelled("outcome"), "reason", "action", TENANT]}),
        ("Who", {"fields": [PRINCIPAL, "principal_kind", *IN_SESSION, linked("key_id", "key"), REQUEST]}),
        ("What", {"fields": ["resource_type", RESOURCE, CONFIRMATION, column("why", "operator", _why)]}),
        ("Why", {"fields": [column("statements", "determining statements", _policies), prettied("errors")]}),
        (
            "As it was",
            {
                "classes": ["collapse"],
                "fields": [prettied("subject"), prettied("attributes"), prettied("context"), "digest"],
            },
        ),
    ]


def _entries(batch: DecisionBatch) -> Any:
    """Those of its tenant and its time: its own, and any that came late and are in a later one."""
    filters = {"tenant_id": batch.tenant_id, "at__gte": str(batch.first_at), "at__lte": str(batch.last_at)}
    return lists({"Decisions of that time": "iam_decision"}, **filters)


SIZE = column("size", "entries", lambda batch: len(batch.entries))


@admin.register(DecisionBatch)
class DecisionBatchAdmin(ReadOnlyAdmin):
    list_display = [
        "number",
        TENANT,
        SIZE,
        instant("first_at"),
        instant("last_at"),
        instant("sealed_at"),
        instant("pruned_at"),
    ]
    list_filter = [named("tenant_id", "tenant"), ("pruned_at", admin.EmptyFieldListFilter)]
    search_fields = ["=tenant_id", "=number", "=hash", "=exported_to"]
    ordering = ["-sealed_at", "-pk"]
    fieldsets = [
        (
            None,
            {
                "fields": [
                    "number",
                    TENANT,
                    SIZE,
                    instant("first_at"),
                    instant("last_at"),
                    instant("sealed_at"),
                    column("decisions", "see also", _entries),
                ]
            },
        ),
        ("Chain", {"fields": ["previous", "hash"]}),
        ("Export", {"fields": ["exported_to", "export_hash", instant("pruned_at")]}),
        ("Entries", {"classes": ["collapse"], "fields": [prettied("entries", "id and digest")]}),
    ]


@admin.register(UnsealedDecision)
class UnsealedDecisionAdmin(ReadOnlyAdmin):
    list_display = [linked("decision_id", "decision"), TENANT, instant("at", "at")]
    list_filter = [named("tenant_id", "tenant")]
    search_fields = ["=decision_id", "=tenant_id"]
    ordering = ["at", "decision_id"]
    fieldsets = [(None, {"fields": [linked("decision_id", "decision"), TENANT, instant("at", "at"), "digest"]})]
