"""Decisions: asked, recorded in the audit log, and where a call is refused for what policies do not see, refused there
(IAM-1, IAM-6, IAM-7; IAM-API §4, §9)."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NoReturn

from prometheus_client import Counter

from computeplatform.api.calls import CallContext, Caller, ConfirmationAsked, Resource, Verdict
from computeplatform.errors import AccessDenied
from computeplatform.ids import new_id
from iam.catalogue import actions_by_name
from iam.contracts import Gate
from iam.domain import entities
from iam.domain.audit import digest_of
from iam.domain.ceilings import breaks_session_rule, is_gated
from iam.domain.patterns import covers
from iam.models import Decision
from iam.operations.confirmations import pass_gate
from iam.queries.credentials import subject_of
from iam.queries.judging import ISOLATION, Judgement, judge_live

DECISIONS = Counter("iam_decisions", "Decisions on calls, recorded or only counted", ["action", "outcome"])

# Why a call is refused that policies and ceilings would permit.
Bar = Literal["key-scope", "no-permit", "session-rule", "confirmation-refused"]


@dataclass(frozen=True)
class Question:
    """One decision to be made for a call. ``note`` stands in its entry beside the circumstances; it decides nothing.

    ``gate`` is what a person may want to confirm about it (IAM-6).
    """

    caller: Caller
    action: str
    resource: Resource
    context: CallContext
    note: Mapping[str, Any] = field(default_factory=dict)
    gate: Gate | None = None


@dataclass(frozen=True)
class Decided:
    """A question with what came of it, as its entry will say."""

    id: str
    question: Question
    judgement: Judgement
    confirmation: ConfirmationAsked | None = None

    @property
    def verdict(self) -> Verdict:
        recorded = _is_recorded(self.question, self.judgement)
        asked = self.confirmation if self.judgement.reason == "confirmation-required" else None
        return Verdict(self.judgement.allowed, self.id if recorded else "", asked)


def decide(
    caller: Caller,
    action: str,
    resource: Resource,
    *,
    context: CallContext,
    record: bool,
    barred: Bar | None = None,
) -> Verdict:
    """Decide one action. A denial and a mutation are recorded at once, in a transaction of their own.

    ``barred``: the call is refused whatever policies say, for this reason where they and the ceilings permit it and for
    their own otherwise.
    """
    question = Question(caller, action, resource, context)
    judgement = _judge(question)
    if barred and judgement.allowed:
        judgement = replace(judgement, reason=barred)
    if not record:
        return Verdict(judgement.allowed)
    return _record([Decided(new_id("dec"), question, judgement)])[0]


def refuse_barred(caller: Caller, action: str, resource: Resource, *, context: CallContext, reason: Bar) -> NoReturn:
    """Refuse a call for something that policies do not see, and record it. Raises AccessDenied."""
    decide(caller, action, resource, context=context, record=True, barred=reason)
    raise AccessDenied


def refuse_wider(
    caller: Caller, action: str, resource: Resource, *, context: CallContext, scopes: Collection[str]
) -> None:
    """Refuse a call that would hand out a credential with scopes which the caller's own does not cover (IAM-1).

    A delegated session hands out none at all: it would outlive the session (IAM-5). Otherwise nothing happens where
    they are covered: the call is then decided as any other. Raises AccessDenied.
    """
    if subject_of(caller).delegated:
        refuse_barred(caller, action, resource, context=context, reason="session-rule")
    if not covers(subject_of(caller).scopes, scopes, actions_by_name()):
        refuse_barred(caller, action, resource, context=context, reason="key-scope")


def screen(caller: Caller, action: str, *, resource_type: str, tenant_id: str, context: CallContext) -> None:
    """Refuse and record what needs no look at any object: a foreign tenant, and what a delegated session never may.

    Raises AccessDenied.
    """
    if tenant_id != caller.tenant_id:
        judgement = Judgement("forbidden", (ISOLATION,))
    elif breaks_session_rule(agent_id=caller.agent_id, action=action):
        judgement = Judgement("session-rule")
    else:
        return
    # Nothing was looked up, so no id is known but that of the tenant.
    identifier = tenant_id if resource_type in ("compute-tenant", "iam-tenant") else ""
    resource = Resource(resource_type, identifier, tenant_id, {"tenantId": tenant_id})
    _record([Decided(new_id("dec"), Question(caller, action, resource, context), judgement)])
    raise AccessDenied


def decide_many(questions: Sequence[Question], *, now: int) -> list[Verdict]:
    """Decide a batch and record it in the caller's transaction, in one statement.

    What is otherwise permitted passes the gate last, where its question has one and the user's delegation wants it.
    """
    return _record([_decide(question, now=now) for question in questions])


def _decide(question: Question, *, now: int) -> Decided:
    decided = Decided(new_id("dec"), question, _judge(question))
    subject, gate = subject_of(question.caller), question.gate
    if gate is None or not decided.judgement.allowed or not is_gated(subject.confirm, question.action):
        return decided
    passage = pass_gate(
        subject,
        question.action,
        question.resource,
        gate,
        decision_id=decided.id,
        now=now,
    )
    judgement = replace(decided.judgement, reason=passage.reason)
    return replace(decided, judgement=judgement, confirmation=passage.confirmation)


def _judge(question: Question) -> Judgement:
    return judge_live(subject_of(question.caller), question.action, question.resource, question.context)


def _is_recorded(question: Question, judgement: Judgement) -> bool:
    action = actions_by_name().get(question.action)
    return not judgement.allowed or action is None or action.recorded_when_allowed


def _record(decided: Sequence[Decided]) -> list[Verdict]:
    """Write the entries that IAM-7 asks for, count the others."""
    for one in decided:
        DECISIONS.labels(one.question.action, "allow" if one.judgement.allowed else "deny").inc()
    rows = [_row(one) for one in decided if _is_recorded(one.question, one.judgement)]
    for row in rows:
        row.digest = digest_of(row)
    if rows:
        Decision.objects.bulk_create(rows)
    return [one.verdict for one in decided]


def _row(decided: Decided) -> Decision:
    question, judgement = decided.question, decided.judgement
    subject, context = subject_of(question.caller), question.context
    circumstances = entities.context_json(time=context.time, source_ip=context.source_ip, agent_id=subject.agent_id)
    if decided.confirmation and decided.confirmation.id:
        circumstances["confirmationId"] = decided.confirmation.id
    circumstances |= question.note
    return Decision(
        id=decided.id,
        tenant_id=subject.tenant_id,
        at=context.time,
        principal_id=subject.principal_id,
        principal_kind=subject.kind,
        agent_id=subject.agent_id,
        delegation_id=subject.delegation_id,
        key_id=subject.key_id,
        subject=subject.as_json(),
        action=question.action,
        resource_type=question.resource.type,
        resource_id=question.resource.id,
        attributes=entities.attributes_json(question.resource.attributes),
        context=circumstances,
        outcome="allow" if judgement.allowed else "deny",
        reason=judgement.reason,
        policies=[dict(reference) for reference in judgement.policies],
        errors=list(judgement.errors),
        request_id=context.request_id,
    )
