"""Fields, answers and resources that several groups of methods share (IAM-API §1, §2, §5)."""

from typing import Any

from rest_framework import serializers

from computeplatform.api.calls import Call, Resource
from computeplatform.api.fields import Instant, Items, Name, OneOf, Shape, Text, Whole
from computeplatform.api.methods import Answer
from iam.catalogue import actions_by_name
from iam.contracts import PLATFORM, PLATFORM_ROLES, ROLES, KeyInfo, PrincipalInfo, TenantInfo
from iam.domain.patterns import expand

ID = r"^[A-Za-z0-9._:-]{1,64}\Z"
NAME = r"^[a-z0-9][a-z0-9-]{0,62}\Z"


class IamId(Text):
    """The opaque id of an object: at most 64 characters."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(pattern=ID, max_length=64, **kwargs)


class Slug(Text):
    """The name of a policy or a group: small letters, digits and hyphens, at most 63 characters."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(pattern=NAME, max_length=63, **kwargs)


class Label(Name):
    """What people call a thing, and why they did one: 1-128 characters, no controls."""


class Pattern(Text):
    """An action, or ``*``, ``<service>:*``, ``<service>:<group>:*``, ``<service>:*:read``. It must match an action."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(max_length=96, **kwargs)

    def to_internal_value(self, data: Any) -> str:
        text = super().to_internal_value(data)
        if not expand([text], actions_by_name()):
            raise serializers.ValidationError("matches no action")
        return text


class Distinct(Items):
    """A list in which nothing appears twice."""

    def to_internal_value(self, data: Any) -> list[Any]:
        found = super().to_internal_value(data)
        if len(set(found)) != len(found):
            raise serializers.ValidationError("nothing may appear twice")
        return found


def scopes_field(**kwargs: Any) -> Distinct:
    """1-64 patterns."""
    return Distinct(child=Pattern(), min_length=1, max_length=64, **kwargs)


def roles_field(**kwargs: Any) -> Distinct:
    """0-4 roles; ``refuse_foreign_roles`` does the rest."""
    return Distinct(child=OneOf(choices=PLATFORM_ROLES), max_length=4, required=False, **kwargs)


def groups_field(**kwargs: Any) -> Distinct:
    """At most 32 names of groups."""
    return Distinct(child=Slug(), max_length=32, required=False, **kwargs)


def refuse_foreign_roles(data: dict[str, Any]) -> dict[str, Any]:
    """``fleet-admin`` is a role of the platform tenant alone (IAM-4)."""
    if data["tenantId"] != PLATFORM:
        wrong = {
            str(n): ["not a role of this tenant"] for n, role in enumerate(data.get("roles", ())) if role not in ROLES
        }
        if wrong:
            raise serializers.ValidationError({"roles": wrong})
    return data


class TenantShape(Shape):
    """A tenant."""

    id = IamId()
    name = Label()
    status = OneOf(choices=["active", "suspended"])
    createdAt = Instant()
    version = Whole()


class PrincipalShape(Shape):
    """A principal; ``nodeId`` on the service of a node, ``sponsorId`` and what follows on agents."""

    id = IamId()
    tenantId = IamId()
    kind = OneOf(choices=["user", "service", "agent"])
    name = Label()
    roles = Items(child=OneOf(choices=PLATFORM_ROLES))
    groups = Items(child=Slug())
    status = OneOf(choices=["active", "suspended"])
    createdAt = Instant()
    version = Whole()
    nodeId = Text(required=False)
    sponsorId = IamId(required=False)
    boundary = Items(child=Text(), required=False)
    suspendedBy = OneOf(choices=["sponsor", "administrator"], required=False)


class KeyShape(Shape):
    """An API key without its secret; ``lastUsedAt`` is to the minute."""

    id = IamId()
    tenantId = IamId()
    principalId = IamId()
    name = Label(required=False)
    prefix = Text(help_text="The first 12 characters of the token.")
    scopes = Items(child=Text())
    requestsPerMinute = Whole(required=False)
    status = OneOf(choices=["active", "revoked", "expired"])
    createdAt = Instant()
    createdBy = Text()
    expiresAt = Instant()
    lastUsedAt = Instant(required=False)
    replacedBy = IamId(required=False)


class PrincipalReference(Shape):
    """Who it was, in a decision."""

    id = IamId()
    kind = OneOf(choices=["user", "service", "agent"])


class ResourceReference(Shape):
    """What it is about, as decisions name it; without an id where none was looked up."""

    type = Text()
    id = Text(min_length=0)


class StatementReference(Shape):
    """A statement of a policy that decided."""

    policy = Text(help_text="`builtin` for the built-in ones, `(text)` for a tried text that was given without a name.")
    version = Whole(required=False)
    statement = Text()


def without_empty(answer: Answer, *names: str) -> Answer:
    """The answer without those of the named members that have no value: absent, not null."""
    return {k: v for k, v in answer.items() if k not in names or (v is not None and v != "")}


def tenant_answer(tenant: TenantInfo) -> Answer:
    """A tenant on the wire."""
    return {
        "id": tenant.id,
        "name": tenant.name,
        "status": tenant.status,
        "createdAt": tenant.created_at,
        "version": tenant.version,
    }


def principal_answer(principal: PrincipalInfo) -> Answer:
    """A principal on the wire."""
    answer = {
        "id": principal.id,
        "tenantId": principal.tenant_id,
        "kind": principal.kind,
        "name": principal.name,
        "roles": list(principal.roles),
        "groups": list(principal.groups),
        "status": principal.status,
        "createdAt": principal.created_at,
        "version": principal.version,
        "nodeId": principal.node_id,
        "sponsorId": principal.sponsor_id,
        "boundary": list(principal.boundary) if principal.kind == "agent" else None,
        "suspendedBy": principal.suspended_by,
    }
    return without_empty(answer, "nodeId", "sponsorId", "boundary", "suspendedBy")


def key_answer(key: KeyInfo) -> Answer:
    """A key on the wire."""
    answer = {
        "id": key.id,
        "tenantId": key.tenant_id,
        "principalId": key.principal_id,
        "name": key.name,
        "prefix": key.prefix,
        "scopes": list(key.scopes),
        "requestsPerMinute": key.requests_per_minute,
        "status": key.status,
        "createdAt": key.created_at,
        "createdBy": key.created_by,
        "expiresAt": key.expires_at,
        "lastUsedAt": key.last_used_at,
        "replacedBy": key.replaced_by,
    }
    return without_empty(answer, "name", "requestsPerMinute", "lastUsedAt", "replacedBy")


def page_answer(plural: str, items: list[Answer], following: str | None) -> Answer:
    """A page on the wire."""
    return {plural: items} | ({"nextCursor": following} if following else {})


def about(call: Call, *, subject_id: str = "", sponsor_id: str = "") -> Resource:
    """The resource of a call on identities: the tenant, and whom the call is about (IAM-API §5)."""
    attributes = {"tenantId": call.tenant_id, "subjectId": subject_id, "sponsorId": sponsor_id}
    return Resource("iam-tenant", call.tenant_id, call.tenant_id, attributes)


def about_tenant(call: Call, _data: dict[str, Any]) -> tuple[Resource, None]:
    """For calls about the whole tenant."""
    return about(call), None


def about_principal(call: Call, principal: PrincipalInfo) -> Resource:
    """For calls about one principal, or its keys."""
    return about(call, subject_id=principal.id, sponsor_id=principal.sponsor_id)
