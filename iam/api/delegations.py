"""``/api/iam/delegations/…``."""

from typing import Any

from rest_framework import serializers

from computeplatform.api.calls import Call, Resource
from computeplatform.api.fields import Creating, Input, Instant, Items, OneOf, Page, Shape, Text, Whole
from computeplatform.api.methods import Answer, Replay, method
from iam.api.shapes import (
    Distinct,
    IamId,
    Label,
    Pattern,
    about,
    about_principal,
    page_answer,
    scopes_field,
    without_empty,
)
from iam.contracts import DelegationInfo, PrincipalInfo, SessionInfo
from iam.domain.ceilings import GATED
from iam.domain.patterns import matches
from iam.operations import delegations as operations
from iam.operations.decisions import refuse_barred, refuse_wider
from iam.queries import delegations as queries
from iam.queries.credentials import subject_of
from iam.queries.principals import get_principal

_YEAR = 31_536_000
_HOUR = 3_600


class GatedPattern(Pattern):
    """A pattern that matches one of the actions that can be gated."""

    def to_internal_value(self, data: Any) -> str:
        text = super().to_internal_value(data)
        if not any(matches(text, action) for action in GATED):
            raise serializers.ValidationError(f"matches neither {' nor '.join(GATED)}")
        return text


class GrantInput(Creating):
    agentId = IamId()
    scopes = scopes_field(help_text="What the agent may do in the caller's name at most.")
    confirm = Distinct(
        child=GatedPattern(),
        max_length=64,
        default=list,
        help_text="Which of it the caller wants to confirm each time.",
    )
    expiresInSeconds = Whole(min_value=1, max_value=_YEAR, default=operations.DEFAULT_LIFETIME_SECONDS)
    name = Label(required=False)


class ListInput(Page):
    userId = IamId(required=False)
    agentId = IamId(required=False)
    status = OneOf(choices=["active", "revoked", "expired"], required=False)


class AssumeInput(Creating):
    delegationId = IamId()
    scopes = scopes_field(required=False, help_text="What the session is good for; without it, what the delegation is.")
    expiresInSeconds = Whole(
        min_value=1,
        max_value=_HOUR,
        required=False,
        help_text=f"Without it {operations.DEFAULT_SESSION_SECONDS}, or what is left of delegation or key.",
    )


class RevokeInput(Input):
    delegationId = IamId()
    reason = Label(required=False)


class DelegationShape(Shape):
    """What a user lets an agent do in their name."""

    id = IamId()
    tenantId = IamId()
    userId = IamId()
    agentId = IamId()
    name = Label(required=False)
    scopes = Items(child=Text())
    confirm = Items(child=Text())
    status = OneOf(choices=["active", "revoked", "expired"])
    createdAt = Instant()
    expiresAt = Instant()
    revokedAt = Instant(required=False)


class SessionShape(Shape):
    """A delegated session without its secret."""

    id = IamId()
    tenantId = IamId()
    delegationId = IamId()
    userId = IamId()
    agentId = IamId()
    scopes = Items(child=Text())
    createdAt = Instant()
    expiresAt = Instant()


class OneOutput(Shape):
    delegation = DelegationShape()


class ListOutput(Shape):
    delegations = Items(child=DelegationShape())
    nextCursor = Text(required=False)


class AssumeOutput(Shape):
    session = SessionShape()
    token = Text(required=False, help_text="The secret: in the first answer only, and nowhere else.")


def delegation_answer(delegation: DelegationInfo) -> Answer:
    """A delegation on the wire."""
    answer = {
        "id": delegation.id,
        "tenantId": delegation.tenant_id,
        "userId": delegation.user_id,
        "agentId": delegation.agent_id,
        "name": delegation.name,
        "scopes": list(delegation.scopes),
        "confirm": list(delegation.confirm),
        "status": delegation.status,
        "createdAt": delegation.created_at,
        "expiresAt": delegation.expires_at,
        "revokedAt": delegation.revoked_at,
    }
    return without_empty(answer, "name", "revokedAt")


def session_answer(session: SessionInfo) -> Answer:
    """A session on the wire."""
    return {
        "id": session.id,
        "tenantId": session.tenant_id,
        "delegationId": session.delegation_id,
        "userId": session.user_id,
        "agentId": session.agent_id,
        "scopes": list(session.scopes),
        "createdAt": session.created_at,
        "expiresAt": session.expires_at,
    }


def _load_for_grant(call: Call, data: dict[str, Any]) -> tuple[Resource, PrincipalInfo]:
    agent = get_principal(call.tenant_id, data["agentId"], kind="agent")
    resource = about(call, subject_id=call.caller.principal_id)
    if call.caller.kind != "user":
        refuse_barred(call.caller, "iam:delegations:grant", resource, context=call.context, reason="no-permit")
    refuse_wider(call.caller, "iam:delegations:grant", resource, context=call.context, scopes=data["scopes"])
    return resource, agent


def _load_for_list(call: Call, data: dict[str, Any]) -> tuple[Resource, dict[str, str | None]]:
    user = get_principal(call.tenant_id, data["userId"], kind="user") if "userId" in data else None
    agent = get_principal(call.tenant_id, data["agentId"], kind="agent") if "agentId" in data else None
    if user is None and agent is None:
        own = get_principal(call.tenant_id, call.caller.principal_id)
        user, agent = (None, own) if own.kind == "agent" else (own, None)
    # With both, either of the two may ask for what is between them.
    parties = [one for one in (user, agent) if one]
    whom = next((one for one in parties if one.id == call.caller.principal_id), parties[0])
    return about_principal(call, whom), {
        "user_id": user.id if user else None,
        "agent_id": agent.id if agent else None,
    }


def _load_for_assume(call: Call, data: dict[str, Any]) -> tuple[Resource, DelegationInfo]:
    found = queries.get_delegation(call.tenant_id, data["delegationId"], now=call.now)
    resource = about_principal(call, get_principal(call.tenant_id, found.agent_id))
    if call.caller.principal_id != found.agent_id:
        refuse_barred(call.caller, "iam:delegations:assume", resource, context=call.context, reason="no-permit")
    return resource, found


def _load(call: Call, data: dict[str, Any]) -> tuple[Resource, DelegationInfo]:
    found = queries.get_delegation(call.tenant_id, data["delegationId"], now=call.now)
    return about(call, subject_id=found.user_id), found


def _granted(call: Call, delegation_id: str) -> Answer:
    return {"delegation": delegation_answer(queries.get_delegation(call.tenant_id, delegation_id, now=call.now))}


def _assumed(call: Call, session_id: str) -> Answer:
    return {"session": session_answer(queries.get_session(call.tenant_id, session_id))}


@method(
    "delegations/grant",
    kind="mutation",
    action="iam:delegations:grant",
    resource="iam-tenant",
    input=GrantInput,
    output=OneOutput,
    load=_load_for_grant,
    codes=("INVALID_STATE",),
    replay=Replay(stored_id=lambda answer: str(answer["delegation"]["id"]), answer=_granted),
    service="iam",
    module="iam",
)
def grant(call: Call, data: dict[str, Any], loaded: PrincipalInfo) -> Answer:
    """Let an agent act in your name (IAM-5). It does so in sessions, which it gets with `delegations/assume`.

    Always in the caller's own name: a `user`, anybody else is ACCESS_DENIED. `scopes`: 1-64 patterns, what the agent
    may do in your name at most; policies, the agent's boundary and its key bound it further. Scopes that the caller's
    own key does not cover are ACCESS_DENIED (IAM-1). `confirm`: up to 64 patterns, which of
    `compute:reservations:create` and `compute:reservations:extend` you want to confirm each time; one that matches
    neither is INVALID_INPUT. `expiresInSeconds` 1-31536000 (2592000, that is 30 days). A suspended agent:
    INVALID_STATE.
    """
    granted = operations.grant_delegation(
        tenant_id=call.tenant_id,
        user_id=call.caller.principal_id,
        agent_id=loaded.id,
        name=data.get("name", ""),
        scopes=data["scopes"],
        confirm=data["confirm"],
        expires_in_seconds=data["expiresInSeconds"],
        now=call.now,
    )
    return {"delegation": delegation_answer(granted)}


@method(
    "delegations/list",
    kind="read",
    action="iam:delegations:read",
    resource="iam-tenant",
    input=ListInput,
    output=ListOutput,
    load=_load_for_list,
    service="iam",
    module="iam",
)
def list_(call: Call, data: dict[str, Any], loaded: dict[str, str | None]) -> Answer:
    """Delegations, newest first: those that the user `userId` gave, those that the agent `agentId` holds, or both.

    With neither the caller's own: given by a user, held by an agent. Users and agents may list their own,
    administrators anybody's. `status: expired` are those that ended by time. `limit` 1-200 (50). `cursor` is the id of
    the last delegation seen; an unknown one is INVALID_INPUT, an unknown `userId` or `agentId` NOT_FOUND.
    """
    found, following = queries.delegation_page(
        call.tenant_id,
        **loaded,
        status=data.get("status"),
        limit=data["limit"],
        cursor=data.get("cursor"),
        now=call.now,
    )
    return page_answer("delegations", [delegation_answer(one) for one in found], following)


@method(
    "delegations/assume",
    kind="mutation",
    action="iam:delegations:assume",
    resource="iam-tenant",
    input=AssumeInput,
    output=AssumeOutput,
    load=_load_for_assume,
    codes=("INVALID_STATE",),
    replay=Replay(stored_id=lambda answer: str(answer["session"]["id"]), answer=_assumed),
    service="iam",
    module="iam",
)
def assume(call: Call, data: dict[str, Any], loaded: DelegationInfo) -> Answer:
    """Get a session in the name of the delegation's user (IAM-5). `token` is shown now and never again.

    By a key of the delegation's agent only; anybody else is ACCESS_DENIED. Calls with the token are the user's calls,
    with the agent beside: what policies permit the user, within `scopes`, the agent's boundary and its key's scopes.
    Every one of them checks that delegation, user, agent, the agent's sponsor and the key that assumed are good; if one
    is not, it is UNAUTHENTICATED. `scopes`: 1-64 patterns within the delegation's, which they are if left out; others
    are INVALID_INPUT. `expiresInSeconds` 1-3600: longer than what is left of the delegation or the key is
    INVALID_INPUT; left out it is 900, or what is left. A delegation that is revoked or expired, or whose user is
    suspended: INVALID_STATE. The same idempotency key answers the session without its token (API-11).
    """
    assumed = operations.assume_delegation(
        tenant_id=call.tenant_id,
        delegation_id=loaded.id,
        key_id=subject_of(call.caller).key_id,
        scopes=data.get("scopes"),
        expires_in_seconds=data.get("expiresInSeconds"),
        now=call.now,
    )
    return {"session": session_answer(assumed.session), "token": assumed.token}


@method(
    "delegations/revoke",
    kind="mutation",
    action="iam:delegations:revoke",
    resource="iam-tenant",
    input=RevokeInput,
    output=OneOutput,
    load=_load,
    service="iam",
    module="iam",
)
def revoke(call: Call, data: dict[str, Any], loaded: DelegationInfo) -> Answer:
    """End a delegation: from the next call on its sessions are UNAUTHENTICATED, its pending confirmations void (IAM-5).

    By its user, or an administrator. Repeated: unchanged.
    """
    revoked = operations.revoke_delegation(
        tenant_id=call.tenant_id,
        delegation_id=loaded.id,
        reason=data.get("reason", ""),
        by=call.actor,
        now=call.now,
    )
    return {"delegation": delegation_answer(revoked)}
