"""``/api/iam/keys/…``."""

from typing import Any

from computeplatform.api.calls import Call, Resource
from computeplatform.api.fields import Creating, Input, Items, OneOf, Page, Shape, Text, Whole
from computeplatform.api.methods import Answer, Replay, method
from iam.api.shapes import (
    IamId,
    KeyShape,
    Label,
    about,
    about_principal,
    key_answer,
    page_answer,
    scopes_field,
)
from iam.contracts import KeyInfo, PrincipalInfo
from iam.operations import keys as operations
from iam.operations.decisions import refuse_wider
from iam.queries import keys as queries
from iam.queries.credentials import subject_of
from iam.queries.principals import get_principal

_YEAR = 31_536_000
_WEEK = 604_800


class CreateInput(Creating):
    principalId = IamId()
    name = Label(required=False)
    scopes = scopes_field(
        required=False, help_text="What the key is good for at most; without it, what the caller's is."
    )
    expiresInSeconds = Whole(min_value=1, max_value=_YEAR, default=operations.DEFAULT_LIFETIME_SECONDS)
    requestsPerMinute = Whole(min_value=1, max_value=600_000, required=False)


class OneInput(Input):
    keyId = IamId()


class ListInput(Page):
    principalId = IamId(required=False)
    status = OneOf(choices=["active", "revoked", "expired"], required=False)


class RevokeInput(OneInput):
    reason = Label(required=False)


class RotateInput(Creating):
    keyId = IamId()
    overlapSeconds = Whole(max_value=_WEEK, default=operations.DEFAULT_OVERLAP_SECONDS)
    expiresInSeconds = Whole(min_value=1, max_value=_YEAR, default=operations.DEFAULT_LIFETIME_SECONDS)


class OneOutput(Shape):
    key = KeyShape()


class CreateOutput(OneOutput):
    token = Text(required=False, help_text="The secret: in the first answer only, and nowhere else.")


class RotateOutput(CreateOutput):
    previous = KeyShape()


class ListOutput(Shape):
    keys = Items(child=KeyShape())
    nextCursor = Text(required=False)


def _key_resource(call: Call, key: KeyInfo) -> Resource:
    return about(call, subject_id=key.principal_id, sponsor_id=key.sponsor_id)


def _load(call: Call, data: dict[str, Any]) -> tuple[Resource, KeyInfo]:
    found = queries.get_key(call.tenant_id, data["keyId"], now=call.now)
    return _key_resource(call, found), found


def _load_for_create(call: Call, data: dict[str, Any]) -> tuple[Resource, tuple[PrincipalInfo, list[str]]]:
    owner = get_principal(call.tenant_id, data["principalId"])
    resource = about_principal(call, owner)
    # Left out, the scopes are those of the caller's own key: "*" unless that is scoped.
    scopes = data.get("scopes") or list(subject_of(call.caller).scopes)
    refuse_wider(call.caller, "iam:keys:create", resource, context=call.context, scopes=scopes)
    return resource, (owner, scopes)


def _load_for_rotate(call: Call, data: dict[str, Any]) -> tuple[Resource, KeyInfo]:
    resource, key = _load(call, data)
    refuse_wider(call.caller, "iam:keys:rotate", resource, context=call.context, scopes=key.scopes)
    return resource, key


def _load_for_list(call: Call, data: dict[str, Any]) -> tuple[Resource, None]:
    if "principalId" not in data:
        return about(call), None
    return about_principal(call, get_principal(call.tenant_id, data["principalId"])), None


def _created(call: Call, key_id: str) -> Answer:
    return {"key": key_answer(queries.get_key(call.tenant_id, key_id, now=call.now))}


def _rotated(call: Call, stored: str) -> Answer:
    # The old key is remembered too: rotated once more since, it names another one in its place. The release before
    # remembered the new one alone.
    key_id, _, old_id = stored.partition(" ")
    if old_id:
        previous = queries.get_key(call.tenant_id, old_id, now=call.now)
    else:
        previous = queries.replaced_key(call.tenant_id, key_id, now=call.now)
    return {**_created(call, key_id), "previous": key_answer(previous)}


@method(
    "keys/create",
    kind="mutation",
    action="iam:keys:create",
    resource="iam-tenant",
    input=CreateInput,
    output=CreateOutput,
    load=_load_for_create,
    codes=("INVALID_STATE",),
    replay=Replay(stored_id=lambda answer: str(answer["key"]["id"]), answer=_created),
    service="iam",
    module="iam",
)
def create(call: Call, data: dict[str, Any], loaded: tuple[PrincipalInfo, list[str]]) -> Answer:
    """Make an API key for a principal of the tenant. `token` is shown now and never again; only its hash is stored.

    `scopes`: 1-64 patterns that bound what the key may do, whatever policies permit its owner: an action,
    `*`, `<service>:*`, `<service>:<group>:*` or `<service>:*:read`; one that matches no action is INVALID_INPUT. Left
    out they are those of the caller's key; scopes that the caller's key does not cover are ACCESS_DENIED (IAM-1).
    `expiresInSeconds` 1-31536000 (7776000, that is 90 days). `requestsPerMinute` 1-600000. A suspended principal:
    INVALID_STATE. The same idempotency key answers the key without its token (API-11).
    """
    owner, scopes = loaded
    minted = operations.create_key(
        tenant_id=call.tenant_id,
        principal_id=owner.id,
        name=data.get("name", ""),
        scopes=scopes,
        expires_in_seconds=data["expiresInSeconds"],
        requests_per_minute=data.get("requestsPerMinute"),
        by=call.actor,
        now=call.now,
    )
    return {"key": key_answer(minted.key), "token": minted.token}


@method(
    "keys/get",
    kind="read",
    action="iam:keys:read",
    resource="iam-tenant",
    input=OneInput,
    output=OneOutput,
    load=_load,
    service="iam",
    module="iam",
)
def get(_call: Call, _data: dict[str, Any], loaded: KeyInfo) -> Answer:
    """One key, without its secret. Owners may read their own, sponsors those of their agents.

    `lastUsedAt` is to the minute; what a session does that the key assumed does not count.
    """
    return {"key": key_answer(loaded)}


@method(
    "keys/list",
    kind="read",
    action="iam:keys:read",
    resource="iam-tenant",
    input=ListInput,
    output=ListOutput,
    load=_load_for_list,
    service="iam",
    module="iam",
)
def list_(call: Call, data: dict[str, Any], _loaded: None) -> Answer:
    """Keys, newest first: of the tenant, or with `principalId` of one principal, which may list its own, as may the
    sponsor of an agent.

    `status: expired` are those that ended by time. `cursor` is the id of the last key seen; an unknown one is
    INVALID_INPUT, an unknown `principalId` NOT_FOUND.
    """
    found, following = queries.key_page(
        call.tenant_id,
        principal_id=data.get("principalId"),
        status=data.get("status"),
        limit=data["limit"],
        cursor=data.get("cursor"),
        now=call.now,
    )
    return page_answer("keys", [key_answer(key) for key in found], following)


@method(
    "keys/revoke",
    kind="mutation",
    action="iam:keys:revoke",
    resource="iam-tenant",
    input=RevokeInput,
    output=OneOutput,
    load=_load,
    service="iam",
    module="iam",
)
def revoke(call: Call, data: dict[str, Any], loaded: KeyInfo) -> Answer:
    """End a key: its next call is UNAUTHENTICATED, in every process (IAM-1). Repeated: unchanged.

    So is the next call of every delegated session that the key assumed (IAM-5).
    """
    revoked = operations.revoke_key(
        tenant_id=call.tenant_id,
        key_id=loaded.id,
        reason=data.get("reason", ""),
        by=call.actor,
        now=call.now,
    )
    return {"key": key_answer(revoked)}


@method(
    "keys/rotate",
    kind="mutation",
    action="iam:keys:rotate",
    resource="iam-tenant",
    input=RotateInput,
    output=RotateOutput,
    load=_load_for_rotate,
    codes=("INVALID_STATE",),
    replay=Replay(lambda answer: f"{answer['key']['id']} {answer['previous']['id']}", _rotated),
    service="iam",
    module="iam",
)
def rotate(call: Call, data: dict[str, Any], loaded: KeyInfo) -> Answer:
    """Replace a key without a gap: a new one with the same principal, name, scopes and limit (IAM-8).

    The old one (`previous`) ends at the earlier of its own end and now + `overlapSeconds`, 0-604800 (3600). The new one
    lives for `expiresInSeconds`, 1-31536000 (7776000), whatever the old one had. Delegated sessions that the old one
    assumed end with it. A key that is revoked or expired, or of a suspended principal: INVALID_STATE. A key wider than
    the caller's own: ACCESS_DENIED (IAM-1).
    """
    minted, previous = operations.rotate_key(
        tenant_id=call.tenant_id,
        key_id=loaded.id,
        overlap_seconds=data["overlapSeconds"],
        expires_in_seconds=data["expiresInSeconds"],
        by=call.actor,
        now=call.now,
    )
    return {"key": key_answer(minted.key), "token": minted.token, "previous": key_answer(previous)}
