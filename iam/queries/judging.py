"""What policies and ceilings say of one question; nothing is written (IAM-1; IAM-API §4, §9)."""

from dataclasses import dataclass, replace

import structlog

from computeplatform.api.calls import CallContext, Resource
from iam.adapters import cedar
from iam.catalogue import Action, ResourceType, actions_by_name, resources_by_name
from iam.contracts import Subject
from iam.domain import ceilings, entities
from iam.queries.compiled import Compiled, Reference, compiled_of

log = structlog.get_logger(__name__)

ISOLATION: Reference = {"policy": "builtin", "statement": "isolation"}

# The attribute of a thing that says which agent made it: the draft of a session has its agent there.
_MAKER = "creatorAgentId"


@dataclass(frozen=True)
class Judgement:
    """The outcome with its reason (IAM-API §9), the determining statements, and what went wrong."""

    reason: str
    policies: tuple[Reference, ...] = ()
    errors: tuple[str, ...] = ()

    @property
    def allowed(self) -> bool:
        return self.reason == "permitted"


def judge_live(subject: Subject, action: str, resource: Resource, context: CallContext) -> Judgement:
    """With the policies in force at the subject's revision."""
    try:
        compiled = compiled_of(subject.tenant_id, subject.policy_revision)
    except ValueError as error:
        return _fault(action, resource, f"stored policies do not parse: {error}")
    return judge(subject, action, resource, context, compiled)


def judge(
    subject: Subject, action_name: str, resource: Resource, context: CallContext, compiled: Compiled
) -> Judgement:
    """The rule for sessions, policies, ceilings, in this order. A fault denies and is logged.

    A delegated session is asked about twice, as it is and as if its user had called alone: no policy can let it do
    what its user may not.
    """
    if ceilings.breaks_session_rule(agent_id=subject.agent_id, action=action_name):
        return Judgement("session-rule")
    action = actions_by_name().get(action_name)
    kind = resources_by_name().get(resource.type)
    if action is None or kind is None:
        return _fault(action_name, resource, "the action or the resource type is not registered")
    if resource.tenant_id != subject.tenant_id:
        # Isolation, whatever policies say: another tenant's are none of this caller's business.
        return Judgement("forbidden", (ISOLATION,))
    asked = _Asked(action, kind, resource, context)
    found = _by_policies(subject, asked, compiled)
    if found.allowed and subject.delegated and compiled.mentions_agents:
        alone = _by_policies(replace(subject, agent_id=""), asked.alone(), compiled)
        found = found if alone.allowed else alone
    refusal = ceilings.first_refusal(subject, action_name) if found.allowed else None
    return replace(found, reason=refusal) if refusal else found


@dataclass(frozen=True)
class _Asked:
    """What is asked of the policies, whoever asks."""

    action: Action
    kind: ResourceType
    resource: Resource
    context: CallContext

    def alone(self) -> "_Asked":
        """What the user alone would ask: a thing that is only being made would not have an agent for its maker."""
        attributes = self.resource.attributes
        if not self.action.name.endswith(":create") or not attributes.get(_MAKER):
            return self
        return replace(self, resource=replace(self.resource, attributes={**attributes, _MAKER: ""}))


def _by_policies(subject: Subject, asked: _Asked, compiled: Compiled) -> Judgement:
    resource, context = asked.resource, asked.context
    circumstances = entities.call_context(time=context.time, source_ip=context.source_ip, agent_id=subject.agent_id)
    try:
        question = entities.question(
            subject,
            asked.action,
            asked.kind,
            identifier=resource.id,
            tenant_id=resource.tenant_id,
            attributes=resource.attributes,
            context=circumstances,
        )
    except entities.Misfit as misfit:
        return _fault(asked.action.name, resource, str(misfit))
    answer = cedar.ask(compiled.policies, [question])[0]
    if not answer.decided:
        return _fault(asked.action.name, resource, *(message for _, message in answer.errors))
    return Judgement(
        _reason(answer),
        compiled.named(answer.determining),
        tuple(_words(compiled, place, message) for place, message in answer.errors),
    )


def _reason(answer: cedar.Answer) -> str:
    if answer.errors:
        return "policy-error"
    if not answer.allowed:
        return "forbidden" if answer.determining else "no-permit"
    return "permitted"


def _fault(action: str, resource: Resource, *messages: str) -> Judgement:
    log.error("decision_fault", action=action, resource_type=resource.type, resource_id=resource.id, errors=messages)
    return Judgement("policy-error", errors=messages)


def _words(compiled: Compiled, place: int | None, message: str) -> str:
    if place is None:
        return message
    reference = compiled.references[place]
    version = f" version {reference['version']}" if "version" in reference else ""
    return f"{reference['policy']}{version}, statement {reference['statement']}: {message}"
