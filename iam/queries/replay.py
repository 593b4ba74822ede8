"""The last decisions, made again with another text (``policies/test``)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from computeplatform.api.calls import CallContext, Resource
from iam.catalogue import resources_by_name
from iam.contracts import PolicyInfo, Subject
from iam.domain.entities import attributes_of_json
from iam.domain.scanner import Scanned
from iam.models import Decision
from iam.operations.decisions import Compiled, compile_beside_builtin, judge
from iam.queries.policies import current_policies

# Denials that no policy can turn: a ceiling, a rule, a confirmation that is missing.
_BEYOND_POLICIES = frozenset(
    {"session-rule", "key-scope", "boundary", "delegation-scope", "confirmation-required", "confirmation-refused"}
)


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
    examined, and those with another outcome, newest first.
    """
    text = PolicyInfo(
        tenant_id=tenant_id,
        name=name or NAMELESS,
        version=0,
        text=scanned.text,
        statements=tuple({"id": statement.id} for statement in scanned.statements),
        created_at=0,
        created_by="",
        updated_at=0,
        updated_by="",
    )
    others = [policy for policy in current_policies(tenant_id) if policy.name != name]
    compiled = compile_beside_builtin([*others, text])
    rows = list(Decision.objects.filter(tenant_id=tenant_id).order_by("-at", "-id")[:last])
    return len(rows), list(_changed(rows, compiled))


def _changed(rows: list[Decision], compiled: Compiled) -> Iterator[Changed]:
    for row in rows:
        kind = resources_by_name().get(row.resource_type)
        # Decided in another tenant, by what is not ours to try out; or about a thing that is no longer known.
        if kind is None or row.attributes.get("tenantId") != row.tenant_id:
            continue
        resource = Resource(row.resource_type, row.resource_id, row.tenant_id, attributes_of_json(kind, row.attributes))
        context = CallContext(time=row.context["time"], source_ip=row.context.get("sourceIp"))
        judgement = judge(_subject(row), row.action, resource, context, compiled)
        after = "allow" if judgement.allowed else "deny"
        if after != row.outcome and row.reason not in _BEYOND_POLICIES:
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
    )
