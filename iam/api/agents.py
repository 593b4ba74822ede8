"""``/api/iam/agents/…``."""

from typing import Any

from computeplatform.api.calls import Call, Resource
from computeplatform.api.fields import Creating, Flag, Input, Items, OneOf, Page, Shape, Text, Whole
from computeplatform.api.methods import Answer, Replay, method
from iam.api.shapes import (
    IamId,
    Label,
    PrincipalShape,
    about,
    about_principal,
    page_answer,
    principal_answer,
    scopes_field,
)
from iam.contracts import TENANT_ADMIN, PrincipalInfo
from iam.operations import agents as operations
from iam.operations.decisions import refuse_barred
from iam.queries import agents as queries
from iam.queries.credentials import subject_of
from iam.queries.principals import get_principal

_END_HELP = "Also end what the agent has reserved: pending reservations are cancelled, others released (OPS-4)."


class CreateInput(Creating):
    name = Label()
    sponsorId = IamId(required=False, help_text="Who answers for the agent; without it the caller.")
    boundary = scopes_field(
        default=lambda: list(operations.DEFAULT_BOUNDARY), help_text="What the agent may do at most."
    )


class ListInput(Page):
    sponsorId = IamId(required=False)
    status = OneOf(choices=["active", "suspended"], required=False)


class OneInput(Input):
    agentId = IamId()


class SuspendInput(OneInput):
    reason = Label(required=False)
    endReservations = Flag(default=False, help_text=_END_HELP)


class SuspendAllInput(Input):
    sponsorId = IamId(required=False, help_text="Only this user's agents; without it all of the tenant.")
    reason = Label(required=False)
    endReservations = Flag(default=False, help_text=_END_HELP)


class OneOutput(Shape):
    agent = PrincipalShape()


class ListOutput(Shape):
    agents = Items(child=PrincipalShape())
    nextCursor = Text(required=False)


class CountOutput(Shape):
    suspended = Whole(help_text="How many agents were active until now.")


def _is_admin(call: Call) -> bool:
    return TENANT_ADMIN in subject_of(call.caller).roles


def _load(call: Call, data: dict[str, Any]) -> tuple[Resource, PrincipalInfo]:
    agent = get_principal(call.tenant_id, data["agentId"], kind="agent")
    return about_principal(call, agent), agent


def _load_for_create(call: Call, data: dict[str, Any]) -> tuple[Resource, PrincipalInfo]:
    sponsor = get_principal(call.tenant_id, data.get("sponsorId", call.caller.principal_id))
    return about(call, sponsor_id=sponsor.id), sponsor


def _load_for_resume(call: Call, data: dict[str, Any]) -> tuple[Resource, PrincipalInfo]:
    resource, agent = _load(call, data)
    if operations.bars_resume(agent, call.caller.principal_id, is_admin=_is_admin(call)):
        refuse_barred(call.caller, "iam:agents:resume", resource, context=call.context, reason="no-permit")
    return resource, agent


def _load_sponsor(call: Call, data: dict[str, Any]) -> tuple[Resource, None]:
    if "sponsorId" not in data:
        return about(call), None
    return about(call, sponsor_id=get_principal(call.tenant_id, data["sponsorId"], kind="user").id), None


def _created(call: Call, agent_id: str) -> Answer:
    return {"agent": principal_answer(get_principal(call.tenant_id, agent_id, kind="agent"))}


@method(
    "agents/create",
    kind="mutation",
    action="iam:agents:create",
    resource="iam-tenant",
    input=CreateInput,
    output=OneOutput,
    load=_load_for_create,
    codes=("INVALID_STATE",),
    replay=Replay(stored_id=lambda answer: str(answer["agent"]["id"]), answer=_created),
    service="iam",
    module="iam",
)
def create(call: Call, data: dict[str, Any], loaded: PrincipalInfo) -> Answer:
    """Make an agent: a principal that somebody answers for. It can do nothing before it has a key (`keys/create`).

    `sponsorId` is the calling user unless it is given; it must be an active user of the tenant, else INVALID_STATE
    `sponsor-not-active`. No credential of the agent works while its sponsor is not one (API-2). `boundary`: 1-64
    patterns that the agent never gets beyond, whatever policies permit it or its users (IAM-1); without it
    `compute:*` and `iam:delegations:assume`. Users make their own agents, administrators anybody's.
    """
    made = operations.create_agent(
        tenant_id=call.tenant_id,
        name=data["name"],
        sponsor_id=loaded.id,
        boundary=data["boundary"],
        by=call.actor,
        now=call.now,
    )
    return {"agent": principal_answer(made)}


@method(
    "agents/list",
    kind="read",
    action="iam:agents:read",
    resource="iam-tenant",
    input=ListInput,
    output=ListOutput,
    load=_load_sponsor,
    service="iam",
    module="iam",
)
def list_(call: Call, data: dict[str, Any], _loaded: None) -> Answer:
    """Agents, newest first: of the tenant, or with `sponsorId` of one user, who may list their own.

    `limit` 1-200 (50). `cursor` is the id of the last agent seen; an unknown one is INVALID_INPUT, an unknown
    `sponsorId` NOT_FOUND.
    """
    found, following = queries.agent_page(
        call.tenant_id,
        sponsor_id=data.get("sponsorId"),
        status=data.get("status"),
        limit=data["limit"],
        cursor=data.get("cursor"),
    )
    return page_answer("agents", [principal_answer(agent) for agent in found], following)


@method(
    "agents/suspend",
    kind="mutation",
    action="iam:agents:suspend",
    resource="iam-tenant",
    input=SuspendInput,
    output=OneOutput,
    load=_load,
    service="iam",
    module="iam",
)
def suspend(call: Call, data: dict[str, Any], loaded: PrincipalInfo) -> Answer:
    """Stop an agent: from the next call on its keys and its delegated sessions are UNAUTHENTICATED (IAM-5).

    `suspendedBy` says who did: its `sponsor`, or an `administrator`, whose suspension a sponsor cannot undo. Repeated:
    unchanged, except that an administrator's suspension takes the place of a sponsor's. With `endReservations` what the
    agent has reserved ends too, in delegated sessions as well: pending reservations are cancelled, others released,
    reason `agent-suspended` (OPS-4); it counts also when it comes with a repetition.
    """
    done = operations.suspend_agent(
        tenant_id=call.tenant_id,
        agent_id=loaded.id,
        reason=data.get("reason", ""),
        end_reservations=data["endReservations"],
        is_admin=_is_admin(call),
        by=call.actor,
        now=call.now,
    )
    return {"agent": principal_answer(done)}


@method(
    "agents/resume",
    kind="mutation",
    action="iam:agents:resume",
    resource="iam-tenant",
    input=OneInput,
    output=OneOutput,
    load=_load_for_resume,
    service="iam",
    module="iam",
)
def resume(call: Call, _data: dict[str, Any], loaded: PrincipalInfo) -> Answer:
    """Let a suspended agent work again, with the keys that it had. Its sessions from before stay dead.

    One that an administrator has suspended is ACCESS_DENIED to its sponsor. Repeated: unchanged. Reservations that end
    because of `endReservations` and have not ended yet go on.
    """
    done = operations.resume_agent(
        tenant_id=call.tenant_id, agent_id=loaded.id, is_admin=_is_admin(call), by=call.actor, now=call.now
    )
    return {"agent": principal_answer(done)}


@method(
    "agents/suspendAll",
    kind="mutation",
    action="iam:agents:suspendAll",
    resource="iam-tenant",
    input=SuspendAllInput,
    output=CountOutput,
    load=_load_sponsor,
    service="iam",
    module="iam",
)
def suspend_all(call: Call, data: dict[str, Any], _loaded: None) -> Answer:
    """Stop every agent of the tenant, or with `sponsorId` every agent of one user, who may stop their own (IAM-5).

    Each is suspended as by `agents/suspend`, all in one step. `suspended` counts those that were active until now.
    """
    count = operations.suspend_agents(
        tenant_id=call.tenant_id,
        sponsor_id=data.get("sponsorId"),
        reason=data.get("reason", ""),
        end_reservations=data["endReservations"],
        is_admin=_is_admin(call),
        by=call.actor,
        now=call.now,
    )
    return {"suspended": count}
