"""``/api/iam/confirmations/…``."""

from typing import Any

from computeplatform.api.calls import Call, Resource
from computeplatform.api.fields import Anything, Flag, Input, Instant, Items, Mapped, OneOf, Page, Shape, Text
from computeplatform.api.methods import Answer, method
from computeplatform.quantities import money
from iam.api.shapes import IamId, Label, ResourceReference, about, page_answer, without_empty
from iam.contracts import ConfirmationInfo
from iam.domain.confirming import STATES
from iam.operations import confirmations as operations
from iam.operations.decisions import refuse_barred
from iam.queries import confirmations as queries

DECIDE = "iam:confirmations:decide"


class ListInput(Page):
    state = OneOf(choices=STATES, required=False)
    agentId = IamId(required=False)
    scope = OneOf(choices=["mine", "all"], default="mine")


class DecideInput(Input):
    confirmationId = IamId()
    approve = Flag()
    reason = Label(required=False)


class ConfirmationShape(Shape):
    """A question to a user, and what became of it."""

    id = IamId()
    tenantId = IamId()
    userId = IamId()
    agentId = IamId()
    delegationId = IamId()
    action = Text()
    resource = ResourceReference()
    asked = Mapped(child=Anything(), help_text="What is approved: nothing else, and nothing more.")
    estimatedCost = Text(help_text="Decimal text; the approval is void if it has risen.")
    currency = Text(min_length=0, help_text="Empty where the pool has no price.")
    state = OneOf(choices=STATES)
    createdAt = Instant()
    expiresAt = Instant(help_text="Until when it can be decided; once approved, until when it can be used.")
    decidedAt = Instant(required=False)
    usedAt = Instant(required=False)


class OneOutput(Shape):
    confirmation = ConfirmationShape()


class ListOutput(Shape):
    confirmations = Items(child=ConfirmationShape())
    nextCursor = Text(required=False)


def confirmation_answer(found: ConfirmationInfo) -> Answer:
    """A confirmation on the wire."""
    answer = {
        "id": found.id,
        "tenantId": found.tenant_id,
        "userId": found.user_id,
        "agentId": found.agent_id,
        "delegationId": found.delegation_id,
        "action": found.action,
        "resource": {"type": found.resource_type, "id": found.resource_id},
        "asked": dict(found.asked),
        "estimatedCost": money(found.estimated_cost),
        "currency": found.currency,
        "state": found.state,
        "createdAt": found.created_at,
        "expiresAt": found.expires_at,
        "decidedAt": found.decided_at,
        "usedAt": found.used_at,
    }
    return without_empty(answer, "decidedAt", "usedAt")


def _of_whom(call: Call, data: dict[str, Any]) -> str | None:
    """The user whose confirmations are listed; None: everybody's. In a delegated session the caller is its user."""
    return call.caller.principal_id if data["scope"] == "mine" else None


def _load_for_list(call: Call, data: dict[str, Any]) -> tuple[Resource, None]:
    return about(call, subject_id=_of_whom(call, data) or ""), None


def _load_for_decide(call: Call, data: dict[str, Any]) -> tuple[Resource, ConfirmationInfo]:
    found = queries.get_confirmation(call.tenant_id, data["confirmationId"], now=call.now)
    resource = about(call, subject_id=found.user_id)
    if found.user_id != call.caller.principal_id:
        refuse_barred(call.caller, DECIDE, resource, context=call.context, reason="no-permit")
    return resource, found


@method(
    "confirmations/list",
    kind="read",
    action="iam:confirmations:read",
    resource="iam-tenant",
    input=ListInput,
    output=ListOutput,
    load=_load_for_list,
    service="iam",
    module="iam",
)
def list_(call: Call, data: dict[str, Any], _loaded: None) -> Answer:
    """What agents ask to do in a person's name, newest first; what it has come to, and until when it can be answered.

    `scope: mine` (the default) are the caller's own, in a delegated session those of its user; `all` are those of the
    tenant. `state` and `agentId` filter. `state` is what the confirmation is now:

    - `pending`: open for an answer until `expiresAt`, 30 minutes after it was asked.
    - `approved`: the agent can use it once, until `expiresAt`, 30 minutes after it was given.
    - `refused`: answered no.
    - `lapsed`: not answered, or not used, in time.
    - `used`: a decision has let the request through with it, at `usedAt`.
    - `void`: the delegation ended before an answer, or another question has taken its place (the cost had risen).

    `asked` is what an approval is good for, and nothing else: of reservations/create the stored request, of
    reservations/extend `{reservationId, endsAt}`, the new end in epoch milliseconds. `estimatedCost` is that of the
    whole window, of an extension that of the total. `cursor` is the id of the last confirmation seen; an unknown one
    is INVALID_INPUT. Clause IAM-6.
    """
    found, following = queries.confirmation_page(
        call.tenant_id,
        user_id=_of_whom(call, data),
        agent_id=data.get("agentId"),
        state=data.get("state"),
        limit=data["limit"],
        cursor=data.get("cursor"),
        now=call.now,
    )
    return page_answer("confirmations", [confirmation_answer(one) for one in found], following)


@method(
    "confirmations/decide",
    kind="mutation",
    action=DECIDE,
    resource="iam-tenant",
    input=DecideInput,
    output=OneOutput,
    load=_load_for_decide,
    codes=("INVALID_STATE",),
    service="iam",
    module="iam",
)
def decide(call: Call, data: dict[str, Any], loaded: ConfirmationInfo) -> Answer:
    """Answer what an agent asks to do in your name: `approve` true or false. Only its user can.

    Everybody else is ACCESS_DENIED, the tenant's administrators and the agent itself included, and so is every
    delegated session, whatever permits say. It can be answered for 30 minutes after it was asked.

    An approval does nothing by itself: the agent sends the same request again, within 30 minutes, and only that request
    (of create with the same idempotency key; of extend to the same end of the same reservation, however the end is
    spelled) is let through, once, in a session of the same delegation. It does not serve if the estimated cost has
    risen, or its currency changed, since it was asked: the next request then asks anew. Policies and ceilings are
    decided again too.

    A refusal ends a create for good: its key answers ACCESS_DENIED. A refused extension stays refused for the same new
    end under the same delegation; another end can be asked for.

    INVALID_STATE with `details.state` and `details.reason`: `decided` (answered already, used or not), `lapsed` (too
    late, to answer or to use) or `void` (the delegation has ended, or another question has taken its place).
    Clauses IAM-6, CRE-8, EXT-7.
    """
    decided = operations.decide_confirmation(
        tenant_id=call.tenant_id,
        confirmation_id=loaded.id,
        approve=data["approve"],
        reason=data.get("reason", ""),
        by=call.actor,
        now=call.now,
    )
    return {"confirmation": confirmation_answer(decided)}
