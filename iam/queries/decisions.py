"""The audit log as administrators read it (IAM-3)."""

from dataclasses import dataclass
from typing import Any

from computeplatform.errors import NotFound
from iam.contracts import DecisionInfo
from iam.models import Decision
from iam.queries.pages import newest_first


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which entries: each that is not None must hold. ``since`` is inclusive, ``before`` exclusive."""

    outcome: str | None = None
    action: str | None = None
    principal_id: str | None = None
    agent_id: str | None = None
    resource_id: str | None = None
    request_id: str | None = None
    since: int | None = None
    before: int | None = None

    def conditions(self) -> dict[str, Any]:
        """As a filter."""
        named = {
            "outcome": self.outcome,
            "action": self.action,
            "principal_id": self.principal_id,
            "agent_id": self.agent_id,
            "resource_id": self.resource_id,
            "request_id": self.request_id,
            "at__gte": self.since,
            "at__lt": self.before,
        }
        return {name: value for name, value in named.items() if value is not None}


def get_decision(tenant_id: str, decision_id: str) -> DecisionInfo:
    """Raises NotFound, also for another tenant's and for one that was pruned."""
    row = Decision.objects.filter(tenant_id=tenant_id, id=decision_id).first()
    if row is None:
        raise NotFound("The tenant has no such decision.")
    return decision_info(row)


def decision_page(
    tenant_id: str, wanted: Wanted, *, limit: int, cursor: str | None
) -> tuple[list[DecisionInfo], str | None]:
    """Entries of the tenant, newest first."""
    everything = Decision.objects.filter(tenant_id=tenant_id)
    found = everything.filter(**wanted.conditions())
    rows, following = newest_first(everything, found, limit=limit, cursor=cursor, time="at")
    return [decision_info(row) for row in rows], following


def decision_info(row: Decision) -> DecisionInfo:
    """The row as others see it."""
    return DecisionInfo(
        id=row.id,
        tenant_id=row.tenant_id,
        at=row.at,
        principal_id=row.principal_id,
        principal_kind=row.principal_kind,
        agent_id=row.agent_id,
        delegation_id=row.delegation_id,
        key_id=row.key_id,
        # Entries of the release before know no sessions.
        session_scopes=tuple(row.subject.get("sessionScopes", ())),
        action=row.action,
        resource_type=row.resource_type,
        resource_id=row.resource_id,
        attributes=row.attributes,
        context=row.context,
        outcome=row.outcome,
        reason=row.reason,
        policies=tuple(row.policies),
        errors=tuple(row.errors),
        request_id=row.request_id,
    )
