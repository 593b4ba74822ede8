"""``/api/iam/tenants/…``: for the platform's administrators alone (IAM-4)."""

from typing import Any

from computeplatform.api.calls import Call, Resource
from computeplatform.api.fields import Creating, Input, Items, OneOf, Page, Shape, Text
from computeplatform.api.methods import Answer, Replay, method
from iam.api.shapes import (
    IamId,
    KeyShape,
    Label,
    PrincipalShape,
    TenantShape,
    key_answer,
    page_answer,
    principal_answer,
    tenant_answer,
)
from iam.contracts import PLATFORM, UNSCOPED
from iam.operations import tenants as operations
from iam.operations.decisions import refuse_wider
from iam.queries.keys import get_key
from iam.queries.principals import get_principal, get_tenant, tenant_page


class AdminShape(Shape):
    name = Label()


class CreateInput(Creating):
    id = IamId()
    name = Label()
    admin = AdminShape(required=False, help_text="Also make a first administrator with an unscoped key.")


class OneInput(Input):
    id = IamId()
    reason = Label(required=False)


class ListInput(Page):
    status = OneOf(choices=["active", "suspended"], required=False)


class OneOutput(Shape):
    tenant = TenantShape()


class CreateOutput(OneOutput):
    admin = PrincipalShape(required=False)
    key = KeyShape(required=False)
    token = Text(required=False, help_text="The secret of the first key: in the first answer only, and nowhere else.")


class ListOutput(Shape):
    tenants = Items(child=TenantShape())
    nextCursor = Text(required=False)


def _platform(_call: Call, _data: dict[str, Any]) -> tuple[Resource, None]:
    # Decided in the platform tenant, whoever calls: isolation refuses everybody else.
    attributes = {"tenantId": PLATFORM, "subjectId": "", "sponsorId": ""}
    return Resource("iam-tenant", PLATFORM, PLATFORM, attributes), None


def _load_for_create(call: Call, data: dict[str, Any]) -> tuple[Resource, None]:
    resource, _ = _platform(call, data)
    if "admin" in data:
        refuse_wider(call.caller, "iam:tenants:create", resource, context=call.context, scopes=UNSCOPED)
    return resource, None


def _load(call: Call, data: dict[str, Any]) -> tuple[Resource, None]:
    # To others than the platform this must not tell which tenants there are: they are refused before any look-up.
    if call.tenant_id == PLATFORM:
        get_tenant(data["id"])
    return _platform(call, data)


def _stored_id(answer: Answer) -> str:
    parts = [answer["tenant"]["id"]] + [answer[part]["id"] for part in ("admin", "key") if part in answer]
    return "/".join(parts)


def _stored(call: Call, stored_id: str) -> Answer:
    tenant_id, *rest = stored_id.split("/")
    answer: Answer = {"tenant": tenant_answer(get_tenant(tenant_id))}
    if rest:
        principal_id, key_id = rest
        answer["admin"] = principal_answer(get_principal(tenant_id, principal_id))
        answer["key"] = key_answer(get_key(tenant_id, key_id, now=call.now))
    return answer


@method(
    "tenants/create",
    kind="mutation",
    action="iam:tenants:create",
    resource="iam-tenant",
    input=CreateInput,
    output=CreateOutput,
    load=_load_for_create,
    replay=Replay(stored_id=_stored_id, answer=_stored),
    service="iam",
    module="iam",
)
def create(call: Call, data: dict[str, Any], _loaded: None) -> Answer:
    """Make a tenant. Only the platform's administrators can; `tenantId` is `platform`, `id` the new tenant's.

    `admin {name}` also makes its first user, a `tenant-admin`, with an unscoped key of 90 days whose `token` is in this
    answer alone: nobody of the platform could make one later, since a tenant is administered from inside. That key
    being unscoped, a caller with a scoped one is ACCESS_DENIED (IAM-1), and so is a delegated session (IAM-5). An `id`
    that is taken: CONFLICT.
    """
    tenant = operations.create_tenant(tenant_id=data["id"], name=data["name"], by=call.actor, now=call.now)
    answer: Answer = {"tenant": tenant_answer(tenant)}
    if "admin" in data:
        admin, minted = operations.create_first_admin(
            tenant_id=tenant.id, name=data["admin"]["name"], by=call.actor, now=call.now
        )
        answer |= {"admin": principal_answer(admin), "key": key_answer(minted.key), "token": minted.token}
    return answer


@method(
    "tenants/list",
    kind="read",
    action="iam:tenants:read",
    resource="iam-tenant",
    input=ListInput,
    output=ListOutput,
    load=_platform,
    service="iam",
    module="iam",
)
def list_(_call: Call, data: dict[str, Any], _loaded: None) -> Answer:
    """All tenants, newest first, for the platform's administrators. `cursor` is the id of the last tenant seen."""
    found, following = tenant_page(status=data.get("status"), limit=data["limit"], cursor=data.get("cursor"))
    return page_answer("tenants", [tenant_answer(tenant) for tenant in found], following)


@method(
    "tenants/suspend",
    kind="mutation",
    action="iam:tenants:suspend",
    resource="iam-tenant",
    input=OneInput,
    output=OneOutput,
    load=_load,
    codes=("INVALID_STATE",),
    service="iam",
    module="iam",
)
def suspend(call: Call, data: dict[str, Any], _loaded: None) -> Answer:
    """Stop a tenant: every credential in it is UNAUTHENTICATED from its next call on. Repeated: unchanged.

    What the tenant has reserved runs on. The platform itself stays: INVALID_STATE `platform-tenant`.
    """
    done = operations.suspend_tenant(tenant_id=data["id"], reason=data.get("reason", ""), by=call.actor, now=call.now)
    return {"tenant": tenant_answer(done)}


@method(
    "tenants/resume",
    kind="mutation",
    action="iam:tenants:resume",
    resource="iam-tenant",
    input=OneInput,
    output=OneOutput,
    load=_load,
    service="iam",
    module="iam",
)
def resume(call: Call, data: dict[str, Any], _loaded: None) -> Answer:
    """Let a suspended tenant work again. Repeated: unchanged."""
    done = operations.resume_tenant(tenant_id=data["id"], reason=data.get("reason", ""), by=call.actor, now=call.now)
    return {"tenant": tenant_answer(done)}
