"""What would be decided now, and why; nothing is recorded (``decisions/explain``, IAM-3)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from computeplatform.api.calls import CallContext, Resource
from computeplatform.errors import InvalidInput, NotFound
from iam.catalogue import Attribute, resources_by_name
from iam.contracts import PLATFORM, DecisionInfo, DelegationInfo, KeyInfo, PrincipalInfo, Subject
from iam.domain import ceilings, entities
from iam.queries.delegations import get_delegation
from iam.queries.judging import judge_live
from iam.queries.keys import get_key
from iam.queries.principals import get_principal

_CEILINGS = {"key-scope": "keyScope", "boundary": "boundary", "delegation-scope": "delegationScope"}
_WORDS = {True: "permit", False: "refuse", None: "none"}


@dataclass(frozen=True)
class Parties:
    """Whom a question is about, as they are now: the principal, and what bounds it."""

    principal: PrincipalInfo
    key: KeyInfo | None = None
    delegation: DelegationInfo | None = None
    agent: PrincipalInfo | None = None


@dataclass(frozen=True)
class Asked:
    """One question: of whom, what, about what, and in which circumstances.

    ``session_scopes`` are those of the session that it came in, None where only the delegation is known. ``gated``: the
    call is one that the delegation's user can want to confirm. ``barred``: why it was refused although policies and
    ceilings permitted it, ``""`` if it was not.
    """

    parties: Parties
    action: str
    resource: Resource
    context: CallContext
    session_scopes: tuple[str, ...] | None = None
    gated: bool = True
    barred: str = ""


@dataclass(frozen=True)
class Explained:
    """The decision of this moment, what each ceiling says (permit, refuse, none), whether the user would be asked."""

    decision: DecisionInfo
    ceilings: Mapping[str, str]
    needs_confirmation: bool


def parties(tenant_id: str, *, principal_id: str, key_id: str, delegation_id: str, now: int) -> Parties:
    """Raises NotFound for an id that is not the tenant's; an id of ``""`` is none."""
    delegation = get_delegation(tenant_id, delegation_id, now=now) if delegation_id else None
    return Parties(
        principal=get_principal(tenant_id, principal_id),
        key=get_key(tenant_id, key_id, now=now) if key_id else None,
        delegation=delegation,
        agent=get_principal(tenant_id, delegation.agent_id) if delegation else None,
    )


def check_parties(found: Parties) -> None:
    """Whether such a call could be: raises InvalidInput for the delegation or the key of somebody else."""
    if found.delegation and found.delegation.user_id != found.principal.id:
        raise InvalidInput.at("question.delegationId", "is not a delegation of this principal")
    holder = found.agent or found.principal
    if found.key and found.key.principal_id != holder.id:
        raise InvalidInput.at("question.keyId", f"is not a key of {holder.id}")


def asked_before(tenant_id: str, decision: DecisionInfo, *, now: int) -> Asked:
    """The question of an entry, put to its parties as they are now. Raises NotFound where one is gone."""
    kind = resources_by_name().get(decision.resource_type)
    if kind is None:
        raise NotFound(f"Nothing is called {decision.resource_type} any more.")
    stored = decision.attributes
    resource = Resource(
        decision.resource_type,
        decision.resource_id,
        stored["tenantId"],
        entities.attributes_of_json(kind, stored),
    )
    return Asked(
        parties(
            tenant_id,
            principal_id=decision.principal_id,
            key_id=decision.key_id,
            delegation_id=decision.delegation_id,
            now=now,
        ),
        decision.action,
        resource,
        CallContext(decision.context["time"], decision.context.get("sourceIp"), decision.request_id),
        session_scopes=decision.session_scopes,
        # An allow that no approval stands behind was not asked to have one: a renewal.
        gated=decision.outcome == "deny" or "confirmationId" in decision.context,
        barred=_bar(decision),
    )


def _bar(decision: DecisionInfo) -> str:
    """What refused an entry's call although policies and ceilings permitted it: no later policy changes that.

    Policies had permitted it then; if the key's scopes permit it now, they did so too, for they never change.
    """
    bars = ("session-rule", "key-scope", "no-permit")
    barred = decision.outcome == "deny" and decision.reason in bars and decision.policies
    return decision.reason if barred else ""


def resource_of(tenant_id: str, resource_type: str, identifier: str, given: Mapping[str, Attribute]) -> Resource:
    """A resource as a question describes it: what it leaves out is empty, and its tenant the caller's own."""
    kind = resources_by_name()[resource_type]
    tenant = str(given.get("tenantId", PLATFORM if kind.in_platform else tenant_id))
    of_tenant = kind.entity in ("Tenant", "IamTenant")
    return Resource(
        resource_type,
        identifier or (tenant if of_tenant else ""),
        tenant,
        kind.completed({**given, "tenantId": tenant}),
    )


def explain(tenant_id: str, asked: Asked, *, policy_revision: int, now: int) -> Explained:
    """Decide with the policies in force, record nothing."""
    subject = _subject(tenant_id, asked, policy_revision)
    judgement = judge_live(subject, asked.action, asked.resource, asked.context)
    if asked.barred and judgement.allowed:
        judgement = replace(judgement, reason=asked.barred)
    standing = {_CEILINGS[name]: permitted for name, permitted in ceilings.ceilings(subject, asked.action)}
    if asked.parties.key is None:
        del standing["keyScope"]
    needed = asked.gated and ceilings.is_gated(subject.confirm, asked.action)
    if needed and judgement.allowed:
        judgement = replace(judgement, reason="confirmation-required")
    context, resource = asked.context, asked.resource
    decision = DecisionInfo(
        id="",
        tenant_id=tenant_id,
        at=now,
        principal_id=subject.principal_id,
        principal_kind=subject.kind,
        agent_id=subject.agent_id,
        delegation_id=subject.delegation_id,
        key_id=subject.key_id,
        session_scopes=subject.session_scopes,
        action=asked.action,
        resource_type=resource.type,
        resource_id=resource.id,
        attributes=entities.attributes_json(resource.attributes),
        context=entities.context_json(time=context.time, source_ip=context.source_ip, agent_id=subject.agent_id),
        outcome="allow" if judgement.allowed else "deny",
        reason=judgement.reason,
        policies=judgement.policies,
        errors=judgement.errors,
        request_id=context.request_id,
    )
    words = {name: _WORDS[standing.get(name)] for name in _CEILINGS.values()}
    return Explained(decision, words, needed)


def _subject(tenant_id: str, asked: Asked, policy_revision: int) -> Subject:
    found = asked.parties
    principal, agent, delegation = found.principal, found.agent, found.delegation
    subject = Subject(
        principal_id=principal.id,
        kind=principal.kind,
        tenant_id=tenant_id,
        roles=principal.roles,
        groups=principal.groups,
        node_id=principal.node_id,
        sponsor_id=principal.sponsor_id,
        boundary=principal.boundary,
        policy_revision=policy_revision,
    )
    if found.key:
        subject = replace(subject, key_id=found.key.id, scopes=found.key.scopes)
    if agent is None or delegation is None:
        return subject
    return replace(
        subject,
        agent_id=agent.id,
        delegation_id=delegation.id,
        sponsor_id=agent.sponsor_id,
        boundary=agent.boundary,
        session_scopes=delegation.scopes if asked.session_scopes is None else asked.session_scopes,
        confirm=delegation.confirm,
    )
