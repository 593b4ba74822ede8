"""``/api/iam/decisions/…``."""

from dataclasses import replace
from typing import Any

from rest_framework import serializers

from computeplatform.api.calls import Call, Resource
from computeplatform.api.fields import Anything, Id, Input, Instant, Items, Mapped, OneOf, Page, Shape, Text
from computeplatform.api.methods import Answer, method
from iam.api.shapes import (
    IamId,
    PrincipalReference,
    ResourceReference,
    StatementReference,
    about,
    about_tenant,
    page_answer,
    without_empty,
)
from iam.catalogue import actions_by_name, resources_by_name
from iam.contracts import DecisionInfo
from iam.domain.entities import Misfit, attribute_of_wire
from iam.queries.credentials import subject_of
from iam.queries.decisions import Wanted, decision_page, get_decision
from iam.queries.explaining import Asked, Explained, asked_before, check_parties, explain, parties, resource_of

_OUTCOMES = ["allow", "deny"]
_CEILING = ["permit", "refuse", "none"]


class ListInput(Page):
    outcome = OneOf(choices=_OUTCOMES, required=False)
    action = Text(max_length=96, required=False)
    principalId = IamId(required=False)
    agentId = IamId(required=False)
    resourceId = Text(max_length=300, required=False)
    requestId = Id(required=False)
    vars()["from"] = Instant(required=False, help_text="The earliest time, inclusive.")
    to = Instant(required=False, help_text="The latest time, exclusive.")

    def validate(self, data: dict[str, Any]) -> dict[str, Any]:
        if "from" in data and data.get("to", data["from"] + 1) <= data["from"]:
            raise serializers.ValidationError({"to": ["must be after from"]})
        return data


class ResourceQuestion(Shape):
    type = Text(max_length=64, help_text="A resource type of the contract, such as `compute-reservation`.")
    id = Text(max_length=300, required=False)


class QuestionShape(Shape):
    principalId = IamId(help_text="Whose rights: in a delegated session the user's.")
    delegationId = IamId(required=False, help_text="As in a session of this delegation, with all of its scopes.")
    keyId = IamId(required=False, help_text="With this key, or in a session that this key assumed.")
    action = Text(max_length=96)
    resource = ResourceQuestion()
    attributes = Mapped(child=Anything(), max_items=64, default=dict)

    def validate(self, data: dict[str, Any]) -> dict[str, Any]:
        kind = resources_by_name().get(data["resource"]["type"])
        action = actions_by_name().get(data["action"])
        wrong: dict[str, Any] = {}
        if action is None:
            wrong["action"] = ["is no action"]
        if kind is None:
            wrong["resource"] = {"type": ["is no resource type"]}
        elif action and kind.entity not in action.on:
            wrong["resource"] = {"type": [f"{action.name} is not asked of it"]}
        if kind is not None:
            data["attributes"], faults = _typed(kind.attributes, data["attributes"])
            wrong |= {"attributes": faults} if faults else {}
        if wrong:
            raise serializers.ValidationError(wrong)
        return data


class ExplainInput(Input):
    decisionId = IamId(required=False)
    question = QuestionShape(required=False)

    def validate(self, data: dict[str, Any]) -> dict[str, Any]:
        if ("decisionId" in data) == ("question" in data):
            raise serializers.ValidationError({"decisionId": ["give exactly one of decisionId and question"]})
        return data


class DecisionShape(Shape):
    """What was decided and why; without an id it was not recorded."""

    id = IamId(required=False)
    tenantId = IamId()
    at = Instant()
    principal = PrincipalReference()
    agentId = IamId(required=False)
    delegationId = IamId(required=False)
    keyId = IamId(required=False)
    action = Text()
    resource = ResourceReference()
    attributes = Mapped(child=Anything())
    # Assigned so because a serializer has members of these names itself.
    vars()["context"] = Mapped(child=Anything())
    outcome = OneOf(choices=_OUTCOMES)
    reason = Text(help_text="The first that applies, in the order of the method's page.")
    policies = Items(child=StatementReference())
    vars()["errors"] = Items(child=Text())
    requestId = Text(required=False)


class ListOutput(Shape):
    decisions = Items(child=DecisionShape())
    nextCursor = Text(required=False)


class CeilingsShape(Shape):
    keyScope = OneOf(choices=_CEILING)
    boundary = OneOf(choices=_CEILING)
    delegationScope = OneOf(choices=_CEILING)


class ExplainOutput(Shape):
    decision = DecisionShape()
    ceilings = CeilingsShape()
    confirmation = OneOf(choices=["needed", "not-needed"])


def _typed(kinds: Any, given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """The attributes by their kinds, and what is wrong with them by name."""
    typed, faults = {}, {}
    for name, value in given.items():
        if name not in kinds:
            faults[name] = ["this type has no such attribute"]
            continue
        try:
            typed[name] = attribute_of_wire(kinds[name], value)
        except Misfit as misfit:
            faults[name] = [str(misfit)]
    return typed, faults


@method(
    "decisions/list",
    kind="read",
    action="iam:decisions:read",
    resource="iam-tenant",
    input=ListInput,
    output=ListOutput,
    load=about_tenant,
    service="iam",
    module="iam",
)
def list_(call: Call, data: dict[str, Any], _loaded: None) -> Answer:
    """The audit log of the tenant, newest first: every denial and every mutation of its principals (IAM-3, IAM-7).

    Allowed reads are counted, not recorded. Each filter that is given must hold; `from` is inclusive, `to` exclusive,
    both are the time at which a call arrived. `requestId` finds what somebody was refused. `policies` are the
    statements that decided, built-in ones under `builtin`. `reason` is the first of these that applies: `session-rule`
    (what a delegated session never may), `policy-error`, `forbidden`, `no-permit`, `key-scope`, `boundary`,
    `delegation-scope`, `confirmation-required`, `confirmation-refused`, else `permitted`. Entries that were pruned are
    gone from here.
    """
    wanted = Wanted(
        outcome=data.get("outcome"),
        action=data.get("action"),
        principal_id=data.get("principalId"),
        agent_id=data.get("agentId"),
        resource_id=data.get("resourceId"),
        request_id=data.get("requestId"),
        since=data.get("from"),
        before=data.get("to"),
    )
    found, following = decision_page(call.tenant_id, wanted, limit=data["limit"], cursor=data.get("cursor"))
    return page_answer("decisions", [_decision(decision) for decision in found], following)


def _load(call: Call, data: dict[str, Any]) -> tuple[Resource, Asked]:
    if "decisionId" in data:
        return about(call), asked_before(call.tenant_id, get_decision(call.tenant_id, data["decisionId"]), now=call.now)
    question = data["question"]
    found = parties(
        call.tenant_id,
        principal_id=question["principalId"],
        key_id=question.get("keyId", ""),
        delegation_id=question.get("delegationId", ""),
        now=call.now,
    )
    target = question["resource"]
    resource = resource_of(call.tenant_id, target["type"], target.get("id", ""), question["attributes"])
    # The address of who asks is not that of who is asked about.
    return about(call), Asked(found, question["action"], resource, replace(call.context, source_ip=None))


@method(
    "decisions/explain",
    kind="read",
    action="iam:decisions:read",
    resource="iam-tenant",
    input=ExplainInput,
    output=ExplainOutput,
    load=_load,
    service="iam",
    module="iam",
)
def explain_(call: Call, data: dict[str, Any], loaded: Asked) -> Answer:
    """What would be decided now, and why. Nothing is recorded or counted, and `decision` has no `id` (IAM-3, IAM-7).

    Give exactly one of `decisionId` and `question`. The question of a recorded decision is put again as it was, with
    its attributes and context, to the policies, principal and ceilings of now. In a `question`, attributes left out
    are empty: `""`, 0, false, one node, and for `tenantId` the calling tenant (the platform for what exists there
    alone); decimals are text, such as `"17.60"`. An `id` left out is the tenant's for a tenant, else empty. The time is
    now, and the address unknown. `delegationId` asks as in a session with all of the delegation's scopes. `ceilings`
    says of each whether it permits, `none` where none stands; whether credentials are still active is not looked at.
    `confirmation` is `needed` where the user of the delegation wants to confirm such a call; if that is all that is
    missing, the outcome is `deny` with `confirmation-required`. `reason`: see `decisions/list`.

    INVALID_INPUT: no such action, type or attribute, another type of value, an action that is not asked of the type, a
    delegation or key of somebody else. NOT_FOUND: no such decision, principal, delegation or key in the tenant.
    """
    if "question" in data:
        check_parties(loaded.parties)
    revision = subject_of(call.caller).policy_revision
    return _explained(explain(call.tenant_id, loaded, policy_revision=revision, now=call.now))


def _explained(found: Explained) -> Answer:
    return {
        "decision": _decision(found.decision),
        "ceilings": dict(found.ceilings),
        "confirmation": "needed" if found.needs_confirmation else "not-needed",
    }


def _decision(decision: DecisionInfo) -> Answer:
    answer = {
        "id": decision.id,
        "tenantId": decision.tenant_id,
        "at": decision.at,
        "principal": {"id": decision.principal_id, "kind": decision.principal_kind},
        "agentId": decision.agent_id,
        "delegationId": decision.delegation_id,
        "keyId": decision.key_id,
        "action": decision.action,
        "resource": {"type": decision.resource_type, "id": decision.resource_id},
        "attributes": dict(decision.attributes),
        "context": dict(decision.context),
        "outcome": decision.outcome,
        "reason": decision.reason,
        "policies": [dict(reference) for reference in decision.policies],
        "errors": list(decision.errors),
        "requestId": decision.request_id,
    }
    return without_empty(answer, "id", "agentId", "delegationId", "keyId", "requestId")
