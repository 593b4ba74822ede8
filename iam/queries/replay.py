"""The last decisions, made again with another text (``policies/test``)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from computeplatform.api.calls import CallContext, Resource
from computeplatform.db.locks import in_line
from computeplatform.errors import RateLimited
from iam.catalogue import resources_by_name
from iam.contracts import Subject
from iam.domain.ceilings import is_gated
from iam.domain.entities import attributes_of_json
from iam.domain.scanner import Scanned
from iam.models import Decision, Delegation
from iam.queries.compiled import Compiled, compile_beside_builtin, not_stored
from iam.queries.judging import judge
from iam.queries.policies import current_policies

# Denials that no policy can turn: a ceiling, a rule, a confirmation that is missing.
_BEYOND_POLICIES = frozenset(
    {"session-rule", "key-scope", "boundary", "delegation-scope", "confirmation-required", "confirmation-refused"}
)
# Decisions times words of policy text, at most 0.2 µs each: some four seconds of a thread at the worst. All 1,000 are
# examined in a tenant with up to 20,000 words, some 400 statements.
_MOST_WORK = 20_000_000


# How a text without a name is referred to; no policy can be called that.
NAMELESS = "(text)"


@dataclass(frozen=True)
class Changed:
    """A decision that would be another one; ``policies`` are the determining ones then."""

    decision_id: str
    at: int
    request_id: str
    principal_id: str
    principal_kind: str
    action: str
    resource_type: str
    resource_id: str
    before: str
    after: str
    policies: tuple[dict[str, Any], ...]


def replay(tenant_id: str, *, name: str | None, scanned: Scanned, last: int) -> tuple[int, list[Changed]]:
    """Decide the tenant's last recorded decisions again as if the text were in force under ``name``.

    Without a name it stands beside all others. Policies and roles: as they are, and as they were. Answers how many were
    examined, fewer than ``last`` where policies are many, and those with another outcome, newest first. One at a time
    in a tenant: raises RateLimited.
    """
    with in_line(f"policies-test:{tenant_id}") as line:
        if line is None:
            raise RateLimited("A policies/test of this tenant is running.", reason="busy", retry_after_seconds=2)
        return _replay(tenant_id, name=name, scanned=scanned, last=last)


def _replay(tenant_id: str, *, name: str | None, scanned: Scanned, last: int) -> tuple[int, list[Changed]]:
    text = not_stored(tenant_id, name or NAMELESS, scanned)
    others = [policy for policy in current_policies(tenant_id) if policy.name != name]
    compiled = compile_beside_builtin([*others, text])
    most = max(1, min(last, _MOST_WORK // max(compiled.words, 1)))
    rows = list(Decision.objects.filter(tenant_id=tenant_id).order_by("-at", "-id")[:most])
    return len(rows), list(_changed(rows, compiled))


def _changed(rows: list[Decision], compiled: Compiled) -> Iterator[Changed]:
    confirm = _wishes(rows)
    for row in rows:
        kind = resources_by_name().get(row.resource_type)
        # Decided in another tenant, by what is not ours to try out; or about a thing that is no longer known.
        if kind is None or row.attributes.get("tenantId") != row.tenant_id or _is_beyond(row):
            continue
        resource = Resource(row.resource_type, row.resource_id, row.tenant_id, attributes_of_json(kind, row.attributes))
        context = CallContext(time=row.context["time"], source_ip=row.context.get("sourceIp"))
        judgement = judge(_subject(row), row.action, resource, context, compiled)
        # What its user wants to confirm is denied until they have, whatever the text permits.
        asked = row.outcome == "deny" and is_gated(confirm.get(row.delegation_id, ()), row.action)
        after = "allow" if judgement.allowed and not asked else "deny"
        if after != row.outcome:
            yield Changed(
                decision_id=row.id,
                at=row.at,
                request_id=row.request_id,
                principal_id=row.principal_id,
                principal_kind=row.principal_kind,
                action=row.action,
                resource_type=row.resource_type,
                resource_id=row.resource_id,
                before=row.outcome,
                after=after,
                policies=tuple(dict(reference) for reference in judgement.policies),
            )


def _is_beyond(row: Decision) -> bool:
    """Whether no policy can turn it. One that lacks a permit although policies gave one was refused for something else:
    it was not the caller's to do."""
    barred = row.reason == "no-permit" and bool(row.policies)
    return row.outcome == "deny" and (barred or row.reason in _BEYOND_POLICIES)


def _wishes(rows: list[Decision]) -> dict[str, list[str]]:
    """What the user of each delegation wants to confirm; it never changes."""
    delegations = {row.delegation_id for row in rows if row.delegation_id}
    return dict(Delegation.objects.filter(id__in=delegations).values_list("id", "confirm")) if delegations else {}


def _subject(row: Decision) -> Subject:
    was = row.subject
    return Subject(
        principal_id=row.principal_id,
        kind=row.principal_kind,
        tenant_id=was["tenantId"],
        roles=tuple(was["roles"]),
        groups=tuple(was["groups"]),
        node_id=was["nodeId"],
        sponsor_id=was["sponsorId"],
        boundary=tuple(was["boundary"]),
        key_id=row.key_id,
        scopes=tuple(was["scopes"]),
        agent_id=row.agent_id,
        delegation_id=row.delegation_id,
        # Entries of the release before know no sessions.
        session_scopes=tuple(was.get("sessionScopes", ())),
    )
