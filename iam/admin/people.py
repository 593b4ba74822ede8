"""Operators, tenants, principals, keys and policies."""

from collections.abc import Collection, Mapping
from typing import Any

from django.contrib import admin
from django.contrib.auth.models import Group
from django.http import HttpRequest
from django.utils.html import format_html_join

from computeplatform.admin_tools import (
    ReadOnlyAdmin,
    Table,
    instant,
    known,
    labelled,
    linked,
    list_of,
    lists,
    moment,
    named,
    own_page,
    preformatted,
    prettied,
    register_kind,
    some,
    table,
)
from iam.admin.lasting import BY_STATUS, LastingAdmin, with_now
from iam.admin.lasting import STATUS as STATUS_NOW
from iam.models import ApiKey, Delegation, Operator, Policy, PolicyVersion, Principal, Tenant

# Django's own groups grant nothing here: policies do.
admin.site.unregister(Group)


def _tenants(ids: Collection[str] | None) -> Mapping[str, str]:
    return some(Tenant.objects.order_by("id"), ids, "id")


def _principals(ids: Collection[str] | None) -> Mapping[str, str]:
    return some(Principal.objects.order_by("name"), ids, "name")


register_kind("tenant", "iam_tenant", _tenants)
register_kind("principal", "iam_principal", _principals)
register_kind("key", "iam_apikey")
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
            "Delegations": "iam_delegation",
            "Confirmations": "iam_confirmation",
            "Decisions": "iam_decision",
            "Decision batches": "iam_decisionbatch",
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
        ("Agent", {"fields": [linked("sponsor_id", "principal"), "boundary", "suspended_by", "end_reservations"]}),
        ("Node", {"fields": [linked("node_id", "node")]}),
        STATUS,
        ("Record", {"classes": ["collapse"], "fields": [*CREATED, "version"]}),
    ]

    def get_fieldsets(self, request: HttpRequest, obj: Principal | None = None) -> Any:
        """Without what this kind of principal does not have."""
        apart = {"Agent": obj is None or obj.kind == "agent", "Node": obj is None or bool(obj.node_id)}
        return [(title, shown) for title, shown in self.fieldsets if apart.get(title or "", True)]

    @admin.display(description="see also")
    def elsewhere(self, principal: Principal) -> Any:
        tenant = {"tenant_id": principal.tenant_id}
        found = [
            lists({"Decisions": "iam_decision"}, **tenant, principal_id=principal.id),
            lists({"Reservations": "reservations_reservation"}, **tenant, creator_id=principal.id),
        ]
        if principal.kind == "user":
            found.append(lists({"Confirmations": "iam_confirmation"}, **tenant, user_id=principal.id))
        if principal.kind == "agent":
            mine, asked = {"agent_id": principal.id}, {"Confirmations": "iam_confirmation"}
            found.append(lists({"Decisions in sessions": "iam_decision"} | asked, **tenant, **mine))
            made = {"Reservations in sessions": "reservations_reservation"}
            found.append(lists(made, **tenant, creator_agent_id=principal.id))
        return format_html_join(" · ", "{}", ((one,) for one in found))

    def tables(self, row: Principal) -> list[Table]:
        newest = ("-created_at", "-id")
        keys = with_now(row.keys.order_by(*newest))
        shown = [table("Keys", ApiKey, KEY, keys, list_of("iam_apikey", principal_id=row.id))]
        if row.kind == "user":
            agents, given = row.agents.order_by(*newest), with_now(row.delegations_given.order_by(*newest))
            shown += [
                table("Agents", Principal, AGENT, agents, list_of("iam_principal", sponsor_id=row.id)),
                table("Delegations given", Delegation, GIVEN, given, list_of("iam_delegation", user_id=row.id)),
            ]
        if row.kind == "agent":
            held = with_now(row.delegations_held.order_by(*newest))
            shown.append(table("Delegations held", Delegation, HELD, held, list_of("iam_delegation", agent_id=row.id)))
        return shown


AGENT = (own_page("principal", "name"), labelled("status"), "suspended_by", "boundary", instant("created_at"))
DELEGATION = (STATUS_NOW, "scopes", "confirm", instant("created_at"), instant("expires_at"))
GIVEN = (own_page("delegation", "id"), linked("agent_id", "principal", "agent"), *DELEGATION)
HELD = (own_page("delegation", "id"), linked("user_id", "principal", "user"), *DELEGATION)
KEY = (
    own_page("key", "prefix"),
    "name",
    STATUS_NOW,
    "scopes",
    instant("created_at"),
    instant("expires_at"),
    instant("last_used_at"),
)


@admin.register(ApiKey)
class ApiKeyAdmin(LastingAdmin):
    list_display = [
        "prefix",
        PRINCIPAL,
        TENANT,
        STATUS_NOW,
        "scopes",
        instant("created_at"),
        instant("expires_at"),
        instant("last_used_at"),
    ]
    list_filter = [BY_STATUS, named("tenant_id", "tenant")]
    search_fields = ["=id", "prefix", "name", "=tenant__id", "=principal__id"]
    ordering = ["-created_at", "-id"]
    fieldsets = [
        (None, {"fields": ["prefix", "id", "name", PRINCIPAL, TENANT, STATUS_NOW]}),
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
