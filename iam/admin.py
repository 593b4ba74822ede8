"""Identity and access for operators: read-only, without secrets (OPS-1, OPS-2)."""

from collections.abc import Collection, Mapping
from typing import Any

from django.contrib import admin
from django.contrib.auth.models import Group
from django.utils.html import format_html

from computeplatform.admin_tools import (
    ReadOnlyAdmin,
    Table,
    column,
    decisions_of,
    instant,
    known,
    labelled,
    link,
    linked,
    list_of,
    lists,
    moment,
    named,
    names_on,
    own_page,
    preformatted,
    prettied,
    register_kind,
    some,
    table,
)
from iam.catalogue import actions_by_name, resources_by_name
from iam.models import ApiKey, Decision, Operator, Policy, PolicyVersion, Principal, Tenant

# Django's own groups grant nothing here: policies do.
admin.site.unregister(Group)


def _tenants(ids: Collection[str] | None) -> Mapping[str, str]:
    return some(Tenant.objects.order_by("id"), ids, "id")


def _principals(ids: Collection[str] | None) -> Mapping[str, str]:
    return some(Principal.objects.order_by("name"), ids, "name")


register_kind("tenant", "iam_tenant", _tenants)
register_kind("principal", "iam_principal", _principals)
register_kind("key", "iam_apikey")
register_kind("decision", "iam_decision")
register_kind("policy", "iam_policy")
register_kind("policy-version", "iam_policyversion")

TENANT = linked("tenant_id", "tenant")
PRINCIPAL = linked("principal_id", "principal")
CREATED = (instant("created_at"), linked("created_by", "principal"))
STATUS = (
    "Status",
    {"fields": [instant("status_at", "since"), linked("status_by", "principal", "by"), "status_reason"]},
)


@admin.register(Operator)
class OperatorAdmin(ReadOnlyAdmin):
    list_display = ["username", PRINCIPAL, "is_active", moment("last_login")]
    list_filter = ["is_active"]
    search_fields = ["username", "=principal__id"]
    ordering = ["username"]
    fieldsets = [
        (None, {"fields": ["username", PRINCIPAL, "is_active", "is_staff", "is_superuser"]}),
        ("Record", {"classes": ["collapse"], "fields": [moment("date_joined"), moment("last_login")]}),
    ]


@admin.register(Tenant)
class TenantAdmin(ReadOnlyAdmin):
    list_display = ["id", "name", labelled("status"), instant("created_at"), "version"]
    list_filter = [known("status", ["active", "suspended"])]
    search_fields = ["=id", "name"]
    ordering = ["-created_at", "-id"]
    fieldsets = [
        (None, {"fields": ["id", "name", labelled("status"), "elsewhere"]}),
        STATUS,
        ("Record", {"classes": ["collapse"], "fields": [*CREATED, "policy_revision", "version"]}),
    ]

    @admin.display(description="see also")
    def elsewhere(self, tenant: Tenant) -> Any:
        pages = {
            "Reservations": "reservations_reservation",
            "Pools": "fleet_pool",
            "Offers": "fleet_offer",
            "Quotas": "quotas_quota",
            "Events": "computeplatform_event",
            "Decisions": "iam_decision",
        }
        return lists(pages, tenant_id=tenant.id)

    def tables(self, row: Tenant) -> list[Table]:
        people = (linked("id", "principal", "principal"), "kind", "roles", "groups", labelled("status"))
        policies = row.policies.filter(deleted_at=None).order_by("name")
        return [
            table(
                "Principals",
                Principal,
                (*people, instant("created_at")),
                row.principals.order_by("-created_at", "-id"),
                list_of("iam_principal", tenant_id=row.id),
            ),
            table("Policies", Policy, POLICY, policies, list_of("iam_policy", tenant_id=row.id)),
        ]


@admin.register(Principal)
class PrincipalAdmin(ReadOnlyAdmin):
    list_display = ["name", TENANT, "kind", "roles", "groups", labelled("status"), instant("created_at"), "id"]
    list_filter = [
        known("kind", ["user", "service", "agent"]),
        known("status", ["active", "suspended"]),
        named("tenant_id", "tenant"),
    ]
    search_fields = ["=id", "name", "=tenant__id", "=node_id"]
    ordering = ["-created_at", "-id"]
    fieldsets = [
        (None, {"fields": ["name", "id", TENANT, "kind", "roles", "groups", labelled("status"), "elsewhere"]}),
        ("Agent", {"fields": [linked("sponsor_id", "principal"), "boundary", "suspended_by"]}),
        ("Node", {"fields": [linked("node_id", "node")]}),
        STATUS,
        ("Record", {"classes": ["collapse"], "fields": [*CREATED, "version"]}),
    ]

    @admin.display(description="see also")
    def elsewhere(self, principal: Principal) -> Any:
        return lists({"Decisions": "iam_decision"}, tenant_id=principal.tenant_id, principal_id=principal.id)

    def tables(self, row: Principal) -> list[Table]:
        keys = row.keys.order_by("-created_at", "-id")
        return [table("Keys", ApiKey, KEY, keys, list_of("iam_apikey", principal_id=row.id))]


KEY_LINK = linked("key_id", "key")
KEY = (
    own_page("key", "prefix"),
    "name",
    labelled("status"),
    "scopes",
    instant("created_at"),
    instant("expires_at"),
    instant("last_used_at"),
)


@admin.register(ApiKey)
class ApiKeyAdmin(ReadOnlyAdmin):
    list_display = [
        "prefix",
        PRINCIPAL,
        TENANT,
        labelled("status"),
        "scopes",
        instant("created_at"),
        instant("expires_at"),
        instant("last_used_at"),
    ]
    list_filter = [known("status", ["active", "revoked"]), named("tenant_id", "tenant")]
    search_fields = ["=id", "prefix", "name", "=tenant__id", "=principal__id"]
    ordering = ["-created_at", "-id"]
    fieldsets = [
        (None, {"fields": ["prefix", "id", "name", PRINCIPAL, TENANT, labelled("status")]}),
        ("Limits", {"fields": ["scopes", "requests_per_minute", instant("expires_at"), instant("last_used_at")]}),
        ("Record", {"classes": ["collapse"], "fields": [*CREATED, linked("replaced_by", "key")]}),
        (
            "Revocation",
            {"fields": [instant("revoked_at"), linked("revoked_by", "principal", "by"), "revoke_reason"]},
        ),
    ]


POLICY = (
    own_page("policy", "name"),
    "version",
    instant("updated_at"),
    linked("updated_by", "principal", "by"),
)


@admin.register(Policy)
class PolicyAdmin(ReadOnlyAdmin):
    list_display = [
        "name",
        TENANT,
        "version",
        instant("updated_at"),
        linked("updated_by", "principal", "by"),
        instant("deleted_at"),
    ]
    list_filter = [named("tenant_id", "tenant"), ("deleted_at", admin.EmptyFieldListFilter)]
    search_fields = ["name", "=tenant__id"]
    ordering = ["tenant_id", "name"]
    fieldsets = [
        (None, {"fields": ["name", TENANT, "version", "text"]}),
        (
            "Record",
            {"fields": [*CREATED, instant("updated_at"), linked("updated_by", "principal"), instant("deleted_at")]},
        ),
    ]

    @admin.display(description="text")
    def text(self, policy: Policy) -> Any:
        return preformatted(policy.versions.get(version=policy.version).text)

    def tables(self, row: Policy) -> list[Table]:
        versions = row.versions.order_by("-version")
        return [
            table("Versions", PolicyVersion, VERSION, versions, list_of("iam_policyversion", policy_id=str(row.id)))
        ]


VERSION = (own_page("policy-version", "version"), *CREATED)


@admin.register(PolicyVersion)
class PolicyVersionAdmin(ReadOnlyAdmin):
    list_display = ["policy", "version", *CREATED]
    list_select_related = ["policy"]
    search_fields = ["policy__name", "=policy__tenant__id", "text"]
    list_filter = [named("policy__tenant_id", "tenant", "tenant")]
    ordering = ["-created_at", "-id"]
    fieldsets = [
        (None, {"fields": ["policy", "version", "shown_text"]}),
        ("Record", {"classes": ["collapse"], "fields": [*CREATED, prettied("statements")]}),
    ]

    @admin.display(description="text")
    def shown_text(self, version: PolicyVersion) -> Any:
        return preformatted(version.text)


# --- Audit ------------------------------------------------------------------------------------------------------------

# The kinds of object that decisions are about, by the contract's names of resources.
KIND_OF_RESOURCE = {
    "compute-reservation": "reservation",
    "compute-pool": "pool",
    "compute-node": "node",
    "compute-tenant": "tenant",
    "iam-tenant": "tenant",
}
OUTCOMES = ["allow", "deny"]
REASONS = ["permitted", "no-permit", "forbidden", "policy-error", "key-scope", "boundary"]


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
        ("Who", {"fields": [PRINCIPAL, "principal_kind", linked("agent_id", "principal", "agent"), KEY_LINK, REQUEST]}),
        ("What", {"fields": ["resource_type", RESOURCE, column("why", "operator", _why)]}),
        ("Why", {"fields": [column("statements", "determining statements", _policies), prettied("errors")]}),
        (
            "As it was",
            {"classes": ["collapse"], "fields": [prettied("subject"), prettied("attributes"), prettied("context")]},
        ),
    ]
