"""Identity and access for operators: read-only, without secrets (OPS-1, OPS-2)."""

from django.contrib import admin
from django.contrib.auth.models import Group

from computeplatform.admin_tools import ReadOnlyAdmin, instant
from iam.models import ApiKey, Decision, Operator, Policy, PolicyVersion, Principal, Tenant

# Django's own groups grant nothing here: policies do.
admin.site.unregister(Group)


@admin.register(Operator)
class OperatorAdmin(ReadOnlyAdmin):
    list_display = ["username", "principal", "is_active", "last_login"]
    list_filter = ["is_active"]
    search_fields = ["username", "=principal__id"]
    fields = ["username", "principal", "is_active", "is_staff", "is_superuser", "last_login", "date_joined"]
    list_select_related = ["principal"]


@admin.register(Tenant)
class TenantAdmin(ReadOnlyAdmin):
    list_display = ["id", "name", "status", "policy_revision", instant("created_at"), instant("status_at"), "version"]
    list_filter = ["status"]
    search_fields = ["=id", "name"]
    ordering = ["-created_at", "-id"]


@admin.register(Principal)
class PrincipalAdmin(ReadOnlyAdmin):
    list_display = ["name", "id", "tenant_id", "kind", "roles", "groups", "status", instant("created_at"), "version"]
    list_filter = ["kind", "status"]
    search_fields = ["=id", "name", "=tenant__id", "=node_id"]
    ordering = ["-created_at", "-id"]


@admin.register(ApiKey)
class ApiKeyAdmin(ReadOnlyAdmin):
    list_display = [
        "prefix",
        "id",
        "principal",
        "tenant_id",
        "status",
        "scopes",
        instant("created_at"),
        instant("expires_at"),
        instant("last_used_at"),
    ]
    list_filter = ["status"]
    search_fields = ["=id", "prefix", "name", "=tenant__id", "=principal__id"]
    ordering = ["-created_at", "-id"]
    exclude = ["token_hash"]
    list_select_related = ["principal"]


@admin.register(Policy)
class PolicyAdmin(ReadOnlyAdmin):
    list_display = ["name", "tenant_id", "version", instant("updated_at"), "updated_by", instant("deleted_at")]
    search_fields = ["name", "=tenant__id"]
    ordering = ["tenant_id", "name"]


@admin.register(PolicyVersion)
class PolicyVersionAdmin(ReadOnlyAdmin):
    list_display = ["policy", "version", instant("created_at"), "created_by"]
    search_fields = ["policy__name", "=policy__tenant__id", "text"]
    ordering = ["-created_at", "-id"]
    list_select_related = ["policy"]


@admin.register(Decision)
class DecisionAdmin(ReadOnlyAdmin):
    list_display = [
        instant("at", "at"),
        "tenant_id",
        "outcome",
        "reason",
        "action",
        "principal_id",
        "agent_id",
        "resource_type",
        "resource_id",
        "request_id",
    ]
    list_filter = ["outcome", "reason", "action"]
    search_fields = ["=id", "=tenant_id", "=principal_id", "=agent_id", "=resource_id", "=request_id"]
    ordering = ["-at", "-id"]
