"""Decisions: policies, then ceilings, and the entry in the audit log (IAM-1, IAM-7; IAM-API §4, §9)."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import structlog
from prometheus_client import Counter

from computeplatform.api.calls import CallContext, Caller, Resource, Verdict
from computeplatform.errors import AccessDenied
from computeplatform.ids import new_id
from iam.adapters import cedar
from iam.catalogue import actions_by_name, resources_by_name
from iam.contracts import PolicyInfo, Subject
from iam.domain import builtin, entities, patterns
from iam.models import Decision
from iam.queries.credentials import subject_of
from iam.queries.policies import current_policies

log = structlog.get_logger(__name__)

DECISIONS = Counter("iam_decisions", "Decisions on calls, recorded or only counted", ["action", "outcome"])

# Compiled tenants kept in one process. A tenant's policies are at most 16 MiB of text, usually a few KiB.
_KEPT_TENANTS = 256

Reference = Mapping[str, Any]


@dataclass(frozen=True)
class Question:
    """One decision to be made for a call. ``note`` stands in its entry beside the circumstances; it decides nothing."""

    caller: Caller
    action: str
    resource: Resource
    context: CallContext
    note: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Judgement:
    """The outcome with its reason (IAM-API §9), the determining statements, and what went wrong."""

    reason: str
    policies: tuple[Reference, ...] = ()
    errors: tuple[str, ...] = ()

    @property
    def allowed(self) -> bool:
        return self.reason == "permitted"


@dataclass(frozen=True)
class Compiled:
    """A set of policies, parsed, and which statement of which policy each of its parts is."""

    policies: Any
    references: tuple[Reference, ...] = field(repr=False)

    def named(self, places: Collection[int]) -> tuple[Reference, ...]:
        """The statements at these places, each once."""
        found: list[Reference] = []
        for place in places:
            if self.references[place] not in found:
                found.append(self.references[place])
        return tuple(found)


def compile_beside_builtin(policies: Sequence[PolicyInfo]) -> Compiled:
    """These policies together with the built-in ones. Raises ValueError for text that does not parse."""
    references: list[Reference] = [{"policy": "builtin", "statement": name} for name, _ in builtin.STATEMENTS]
    for policy in policies:
        version = {"version": policy.version} if policy.version else {}
        references += [{"policy": policy.name, **version, "statement": s["id"]} for s in policy.statements]
    texts = [text for _, text in builtin.STATEMENTS] + [policy.text for policy in policies]
    # A newline between them: the last line of a text may be a comment.
    compiled = cedar.compile_policies("\n".join(texts))
    if len(compiled) != len(references):
        raise ValueError(f"{len(compiled)} statements where {len(references)} were expected")
    return Compiled(compiled, tuple(references))


@lru_cache(maxsize=_KEPT_TENANTS)
def _compiled(tenant_id: str, revision: int) -> Compiled:
    return compile_beside_builtin(current_policies(tenant_id))


@lru_cache(maxsize=1)
def _builtin_only() -> Compiled:
    return compile_beside_builtin([])


def decide(
    caller: Caller,
    action: str,
    resource: Resource,
    *,
    context: CallContext,
    record: bool,
    minting: Collection[str] | None = None,
) -> Verdict:
    """Decide one action. A denial and a mutation are recorded at once, in a transaction of their own.

    ``minting``: the scopes of a credential that the call would hand out, which are never wider than those of the
    credential it comes with (IAM-1).
    """
    question = Question(caller, action, resource, context)
    judgement = _with_minting(subject_of(caller), _judge_live(question), minting)
    if not record:
        return Verdict(judgement.allowed)
    return record_decisions([(question, judgement)])[0]


def refuse_wider(
    caller: Caller, action: str, resource: Resource, *, context: CallContext, scopes: Collection[str]
) -> None:
    """Refuse a call that would hand out a credential with scopes which the caller's own does not cover.

    Nothing happens where they are covered: the call is then decided as any other. Raises AccessDenied.
    """
    if not patterns.covers(subject_of(caller).scopes, scopes, actions_by_name()):
        decide(caller, action, resource, context=context, record=True, minting=scopes)
        raise AccessDenied


def decide_many(questions: Sequence[Question]) -> list[Verdict]:
    """Decide a batch and record it in the caller's transaction, in one statement."""
    return record_decisions([(question, _judge_live(question)) for question in questions])


def record_decisions(decided: Sequence[tuple[Question, Judgement]]) -> list[Verdict]:
    """Write the entries that IAM-7 asks for, count the others."""
    rows: list[Decision] = []
    verdicts = []
    for question, judgement in decided:
        DECISIONS.labels(question.action, "allow" if judgement.allowed else "deny").inc()
        action = actions_by_name().get(question.action)
        decision_id = ""
        if not judgement.allowed or action is None or action.recorded_when_allowed:
            decision_id = new_id("dec")
            rows.append(_row(decision_id, question, judgement))
        verdicts.append(Verdict(judgement.allowed, decision_id))
    if rows:
        Decision.objects.bulk_create(rows)
    return verdicts


def judge(
    subject: Subject, action_name: str, resource: Resource, context: CallContext, compiled: Compiled
) -> Judgement:
    """Policies and ceilings on one question, without a record. A fault denies and is logged."""
    action = actions_by_name().get(action_name)
    kind = resources_by_name().get(resource.type)
    if action is None or kind is None:
        return _fault(action_name, resource, "the action or the resource type is not registered")
    circumstances = entities.call_context(time=context.time, source_ip=context.source_ip, agent_id=subject.agent_id)
    try:
        question = entities.question(
            subject,
            action,
            kind,
            identifier=resource.id,
            tenant_id=resource.tenant_id,
            attributes=resource.attributes,
            context=circumstances,
        )
    except entities.Misfit as misfit:
        return _fault(action_name, resource, str(misfit))
    answer = cedar.ask(compiled.policies, [question])[0]
    if not answer.decided:
        return _fault(action_name, resource, *(message for _, message in answer.errors))
    return Judgement(
        _reason(subject, action_name, answer),
        compiled.named(answer.determining),
        tuple(_words(compiled, place, message) for place, message in answer.errors),
    )


def _judge_live(question: Question) -> Judgement:
    subject, resource = subject_of(question.caller), question.resource
    try:
        # Another tenant's policies are none of this caller's business: isolation refuses, whatever they say.
        own = resource.tenant_id == subject.tenant_id
        compiled = _compiled(subject.tenant_id, subject.policy_revision) if own else _builtin_only()
    except ValueError as error:
        return _fault(question.action, resource, f"stored policies do not parse: {error}")
    return judge(subject, question.action, resource, question.context, compiled)


def _reason(subject: Subject, action: str, answer: cedar.Answer) -> str:
    if answer.errors:
        return "policy-error"
    if not answer.allowed:
        return "forbidden" if answer.determining else "no-permit"
    if not patterns.permits(subject.scopes, action):
        return "key-scope"
    if subject.kind == "agent" and not patterns.permits(subject.boundary, action):
        return "boundary"
    return "permitted"


def _with_minting(subject: Subject, judgement: Judgement, minting: Collection[str] | None) -> Judgement:
    if minting is None or not judgement.allowed or patterns.covers(subject.scopes, minting, actions_by_name()):
        return judgement
    return replace(judgement, reason="key-scope")


def _fault(action: str, resource: Resource, *messages: str) -> Judgement:
    log.error("decision_fault", action=action, resource_type=resource.type, resource_id=resource.id, errors=messages)
    return Judgement("policy-error", errors=messages)


def _words(compiled: Compiled, place: int | None, message: str) -> str:
    if place is None:
        return message
    reference = compiled.references[place]
    version = f" version {reference['version']}" if "version" in reference else ""
    return f"{reference['policy']}{version}, statement {reference['statement']}: {message}"


def _row(decision_id: str, question: Question, judgement: Judgement) -> Decision:
    subject, context = subject_of(question.caller), question.context
    circumstances: dict[str, Any] = {
        "delegated": bool(subject.agent_id),
        "agentId": subject.agent_id,
        "time": context.time,
    }
    if address := entities.readable_ip(context.source_ip):
        circumstances["sourceIp"] = address
    circumstances |= question.note
    return Decision(
        id=decision_id,
        tenant_id=subject.tenant_id,
        at=context.time,
        principal_id=subject.principal_id,
        principal_kind=subject.kind,
        agent_id=subject.agent_id,
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
