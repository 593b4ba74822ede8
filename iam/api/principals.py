"""``/api/iam/principals/…``."""

from typing import Any

from computeplatform.api.calls import Call, Resource
from computeplatform.api.fields import Creating, Input, Items, OneOf, Page, Shape, Text, Whole
from computeplatform.api.methods import Answer, Replay, method
from iam.api.shapes import (
    IamId,
    Label,
    PrincipalShape,
    Slug,
    about_principal,
    about_tenant,
    groups_field,
    page_answer,
    principal_answer,
    refuse_foreign_roles,
    roles_field,
    scopes_field,
)
from iam.contracts import PLATFORM_ROLES, PrincipalInfo
from iam.operations import principals as operations
from iam.queries import principals as queries


class CreateInput(Creating):
    kind = OneOf(choices=["user", "service"], help_text="Agents are made by agents/create.")
    name = Label()
    roles = roles_field(default=list)
    groups = groups_field(default=list)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        return refuse_foreign_roles(attrs)


class OneInput(Input):
    principalId = IamId()


class ListInput(Page):
    kind = OneOf(choices=["user", "service", "agent"], required=False)
    status = OneOf(choices=["active", "suspended"], required=False)
    role = OneOf(choices=PLATFORM_ROLES, required=False)
    group = Slug(required=False)


class UpdateInput(OneInput):
    name = Label(required=False)
    roles = roles_field()
    groups = groups_field()
    boundary = scopes_field(required=False, help_text="What an agent may do at most; agents only.")
    version = Whole(min_value=1, required=False, help_text="The version that was read; a stale one is CONFLICT.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        return refuse_foreign_roles(attrs)


class StatusInput(OneInput):
    reason = Label(required=False)


class OneOutput(Shape):
    principal = PrincipalShape()


class ListOutput(Shape):
    principals = Items(child=PrincipalShape())
    nextCursor = Text(required=False)


def load(call: Call, data: dict[str, Any]) -> tuple[Resource, PrincipalInfo]:
    """The principal that a call is about."""
    found = queries.get_principal(call.tenant_id, data["principalId"])
    return about_principal(call, found), found


def _stored(call: Call, principal_id: str) -> Answer:
    return {"principal": principal_answer(queries.get_principal(call.tenant_id, principal_id))}


@method(
    "principals/create",
    kind="mutation",
    action="iam:principals:create",
    resource="iam-tenant",
    input=CreateInput,
    output=OneOutput,
    load=about_tenant,
    replay=Replay(stored_id=lambda answer: str(answer["principal"]["id"]), answer=_stored),
    service="iam",
    module="iam",
)
def create(call: Call, data: dict[str, Any], _loaded: None) -> Answer:
    """Make a user or a service of the tenant. It can do nothing before it has a key (`keys/create`).

    `roles`: up to 4 of `tenant-admin`, `reserver`, `viewer`, and in the platform tenant `fleet-admin` (elsewhere
    INVALID_INPUT). `groups`: up to 32 names; a group exists by being named, and grants nothing until a policy names it.
    Clauses IAM-1, IAM-4, API-11.
    """
    made = operations.create_principal(
        tenant_id=call.tenant_id,
        kind=data["kind"],
        name=data["name"],
        roles=data["roles"],
        groups=data["groups"],
        by=call.actor,
        now=call.now,
    )
    return {"principal": principal_answer(made)}


@method(
    "principals/get",
    kind="read",
    action="iam:principals:read",
    resource="iam-tenant",
    input=OneInput,
    output=OneOutput,
    load=load,
    service="iam",
    module="iam",
)
def get(_call: Call, _data: dict[str, Any], loaded: PrincipalInfo) -> Answer:
    """One principal. Every principal may read itself; NOT_FOUND for an id that the tenant does not have."""
    return {"principal": principal_answer(loaded)}


@method(
    "principals/list",
    kind="read",
    action="iam:principals:read",
    resource="iam-tenant",
    input=ListInput,
    output=ListOutput,
    load=about_tenant,
    service="iam",
    module="iam",
)
def list_(call: Call, data: dict[str, Any], _loaded: None) -> Answer:
    """The tenant's principals, newest first; every filter that is given must hold.

    `limit` 1-200 (50). `cursor` is the id of the last principal seen; an unknown one is INVALID_INPUT.
    """
    found, following = queries.principal_page(
        call.tenant_id,
        kind=data.get("kind"),
        status=data.get("status"),
        role=data.get("role"),
        group=data.get("group"),
        limit=data["limit"],
        cursor=data.get("cursor"),
    )
    return page_answer("principals", [principal_answer(one) for one in found], following)


@method(
    "principals/update",
    kind="mutation",
    action="iam:principals:update",
    resource="iam-tenant",
    input=UpdateInput,
    output=OneOutput,
    load=load,
    codes=("INVALID_STATE",),
    service="iam",
    module="iam",
)
def update(call: Call, data: dict[str, Any], loaded: PrincipalInfo) -> Answer:
    """Change name, roles, groups, or an agent's boundary; a list that is given replaces the old one.

    What is not given stays. `version` is the one that was read; a stale one is CONFLICT. The last active
    `tenant-admin` of a tenant keeps that role: INVALID_STATE with `details.reason: last-admin` (agents do not count:
    they depend on a sponsor). `boundary` of a principal that is no agent is INVALID_INPUT. The change bites at the
    principal's next call (IAM-1), and in sessions that are open: a narrower boundary narrows them too.
    """
    changed = operations.update_principal(
        tenant_id=call.tenant_id,
        principal_id=loaded.id,
        name=data.get("name"),
        roles=data.get("roles"),
        groups=data.get("groups"),
        boundary=data.get("boundary"),
        version=data.get("version"),
        by=call.actor,
        now=call.now,
    )
    return {"principal": principal_answer(changed)}


@method(
    "principals/suspend",
    kind="mutation",
    action="iam:principals:suspend",
    resource="iam-tenant",
    input=StatusInput,
    output=OneOutput,
    load=load,
    codes=("INVALID_STATE",),
    service="iam",
    module="iam",
)
def suspend(call: Call, data: dict[str, Any], loaded: PrincipalInfo) -> Answer:
    """Stop a user or a service: from its next call on its keys are UNAUTHENTICATED (API-2). Repeated: unchanged.

    So are delegated sessions in a user's name, for good, and the keys and sessions of agents whose sponsor the user is,
    until the user is resumed (IAM-5). The last active `tenant-admin` stays: INVALID_STATE `last-admin`. An agent:
    INVALID_STATE `use-agents`.
    """
    done = operations.suspend_principal(
        tenant_id=call.tenant_id,
        principal_id=loaded.id,
        reason=data.get("reason", ""),
        by=call.actor,
        now=call.now,
    )
    return {"principal": principal_answer(done)}


@method(
    "principals/resume",
    kind="mutation",
    action="iam:principals:resume",
    resource="iam-tenant",
    input=StatusInput,
    output=OneOutput,
    load=load,
    codes=("INVALID_STATE", "CONFLICT"),
    service="iam",
    module="iam",
)
def resume(call: Call, data: dict[str, Any], loaded: PrincipalInfo) -> Answer:
    """Let a suspended user or service work again, with the keys that it had. Repeated: unchanged.

    An agent: INVALID_STATE `use-agents`. The service of a node that has another one by now: CONFLICT.
    """
    done = operations.resume_principal(
        tenant_id=call.tenant_id,
        principal_id=loaded.id,
        reason=data.get("reason", ""),
        by=call.actor,
        now=call.now,
    )
    return {"principal": principal_answer(done)}
