"""What people let agents do: delegations, their sessions, and what is to be confirmed (IAM-5, IAM-6)."""

from typing import Any

from django.contrib import admin
from django.db.models import F, QuerySet
from django.http import HttpRequest

from computeplatform.admin_tools import (
    ReadOnlyAdmin,
    Table,
    column,
    instant,
    link,
    linked,
    list_of,
    lists,
    named,
    names_on,
    own_page,
    prettied,
    register_kind,
    table,
)
from computeplatform.quantities import money
from iam.admin.audit import KIND_OF_RESOURCE
from iam.admin.lasting import BY_STATE, BY_STATUS, STATE, STATUS, LastingAdmin, with_now
from iam.admin.people import TENANT
from iam.models import Confirmation, DelegatedSession, Delegation

register_kind("delegation", "iam_delegation")
register_kind("session", "iam_delegatedsession")
register_kind("confirmation", "iam_confirmation")

USER, AGENT = linked("user_id", "principal", "user"), linked("agent_id", "principal", "agent")
DELEGATION = linked("delegation_id", "delegation", "delegation")
SESSION = ("scopes", instant("created_at"), instant("expires_at"), instant("ended_at"))


def _kind_of_resource(confirmation: Confirmation) -> str:
    return KIND_OF_RESOURCE.get(confirmation.resource_type, "")


RESOURCE = column(
    "resource",
    "resource",
    lambda asked: link(_kind_of_resource(asked), asked.resource_id, names_on(asked)),
    linked=("resource_id", _kind_of_resource),
)
COST = column(
    "cost",
    "estimated cost",
    lambda asked: f"{money(asked.estimated_cost)} {asked.currency}" if asked.currency else "-",
    ordering="estimated_cost",
)
ASKED = (STATE, "action", RESOURCE, COST, instant("created_at"), instant("expires_at"))


@admin.register(Delegation)
class DelegationAdmin(LastingAdmin):
    list_display = [
        "id",
        TENANT,
        USER,
        AGENT,
        STATUS,
        "scopes",
        "confirm",
        instant("created_at"),
        instant("expires_at"),
    ]
    list_filter = [BY_STATUS, named("tenant_id", "tenant")]
    search_fields = ["=id", "name", "=tenant__id", "=user__id", "=agent__id"]
    ordering = ["-created_at", "-id"]
    fieldsets = [
        (None, {"fields": ["id", "name", TENANT, USER, AGENT, STATUS, "elsewhere"]}),
        ("Limits", {"fields": ["scopes", "confirm", instant("created_at"), instant("expires_at")]}),
        (
            "Revocation",
            {"fields": [instant("revoked_at"), linked("revoked_by", "principal", "by"), "revoke_reason"]},
        ),
    ]

    @admin.display(description="see also")
    def elsewhere(self, delegation: Delegation) -> Any:
        return lists({"Decisions": "iam_decision"}, tenant_id=delegation.tenant_id, delegation_id=delegation.id)

    def tables(self, row: Delegation) -> list[Table]:
        newest = ("-created_at", "-id")
        sessions, asked = row.sessions.order_by(*newest), with_now(row.confirmations.order_by(*newest))
        return [
            table(
                "Sessions",
                DelegatedSession,
                (own_page("session", "id"), *SESSION),
                sessions,
                list_of("iam_delegatedsession", delegation_id=row.id),
            ),
            table(
                "Confirmations",
                Confirmation,
                (own_page("confirmation", "id"), *ASKED),
                asked.select_related("delegation"),
                list_of("iam_confirmation", delegation_id=row.id),
            ),
        ]


@admin.register(DelegatedSession)
class DelegatedSessionAdmin(ReadOnlyAdmin):
    list_display = ["prefix", TENANT, USER, AGENT, DELEGATION, *SESSION]
    list_filter = [named("tenant_id", "tenant"), ("ended_at", admin.EmptyFieldListFilter)]
    search_fields = [
        "=id",
        "prefix",
        "=tenant__id",
        "=delegation__id",
        "=delegation__user__id",
        "=delegation__agent__id",
        "=key__id",
    ]
    ordering = ["-created_at", "-id"]
    fieldsets = [
        (None, {"fields": ["prefix", "id", TENANT, USER, AGENT, DELEGATION, linked("key_id", "key", "assumed with")]}),
        ("Limits", {"fields": SESSION}),
    ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        of = {"user_id": F("delegation__user_id"), "agent_id": F("delegation__agent_id")}
        return super().get_queryset(request).annotate(**of)  # type: ignore[no-any-return]


@admin.register(Confirmation)
class ConfirmationAdmin(LastingAdmin):
    list_display = ["id", TENANT, USER, AGENT, *ASKED]
    list_filter = [BY_STATE, named("tenant_id", "tenant")]
    list_select_related = ["delegation"]
    search_fields = ["=id", "=tenant__id", "=user__id", "=agent__id", "=delegation__id", "=resource_id"]
    ordering = ["-created_at", "-id"]
    fieldsets = [
        (None, {"fields": ["id", TENANT, USER, AGENT, DELEGATION, STATE]}),
        ("What", {"fields": ["action", RESOURCE, COST, prettied("asked")]}),
        (
            "Answer",
            {
                "fields": [
                    *(instant(at) for at in ("created_at", "expires_at", "decided_at", "used_at")),
                    "decide_reason",
                    linked("decision_id", "decision", "used by"),
                ]
            },
        ),
    ]
