"""Agents: made for a sponsor, suspended and resumed (IAM-5; IAM-API §3)."""

from collections.abc import Sequence

from computeplatform.api.calls import Actor
from computeplatform.db.retry import in_transaction
from computeplatform.errors import AccessDenied
from computeplatform.ids import new_id
from iam.contracts import PrincipalInfo
from iam.errors import SponsorNotActive
from iam.locks import lock_agent, lock_principal, lock_principals
from iam.models import Delegation, Principal
from iam.operations.sessions import end_sessions
from iam.queries.agents import agents_of
from iam.queries.principals import principal_info

DEFAULT_BOUNDARY = ("compute:*", "iam:delegations:assume")

SPONSOR = "sponsor"
ADMINISTRATOR = "administrator"


@in_transaction
def create_agent(
    *,
    tenant_id: str,
    name: str,
    sponsor_id: str,
    boundary: Sequence[str] = DEFAULT_BOUNDARY,
    by: Actor,
    now: int,
) -> PrincipalInfo:
    """A new agent. It can do nothing before it has a key, nor while its sponsor is not an active user.

    The boundary's patterns are ones that somebody has checked (IAM-API §1). Raises NotFound for an unknown sponsor,
    SponsorNotActive.
    """
    sponsor = lock_principal(tenant_id, sponsor_id)
    if (sponsor.kind, sponsor.status) != ("user", "active"):
        raise SponsorNotActive
    row = Principal.objects.create(
        id=new_id("agt"),
        tenant_id=tenant_id,
        kind="agent",
        name=name,
        sponsor=sponsor,
        boundary=list(boundary),
        created_at=now,
        created_by=by.principal_id,
    )
    return principal_info(row)


def acts_as(agent: PrincipalInfo | Principal, principal_id: str, *, is_admin: bool) -> str:
    """Whose suspension it is when this principal suspends the agent: a sponsor who is administrator acts as that."""
    return SPONSOR if principal_id == agent.sponsor_id and not is_admin else ADMINISTRATOR


@in_transaction
def suspend_agent(
    *,
    tenant_id: str,
    agent_id: str,
    reason: str = "",
    end_reservations: bool = False,
    is_admin: bool,
    by: Actor,
    now: int,
) -> PrincipalInfo:
    """Its keys stop at their next use, its sessions for good. Suspended already: unchanged, with two exceptions.

    An administrator's suspension takes the place of a sponsor's, and ``end_reservations`` is remembered whenever it is
    given, until the agent is resumed (OPS-4). Raises NotFound.
    """
    row = lock_agent(tenant_id, agent_id)
    _suspend([row], reason=reason, end_reservations=end_reservations, is_admin=is_admin, by=by, now=now)
    return principal_info(row)


@in_transaction
def suspend_agents(
    *,
    tenant_id: str,
    sponsor_id: str | None = None,
    reason: str = "",
    end_reservations: bool = False,
    is_admin: bool,
    by: Actor,
    now: int,
) -> int:
    """Suspend the tenant's agents, or one sponsor's, all at once; how many were active until now."""
    rows = list(lock_principals(agents_of(tenant_id, sponsor_id)).values())
    return _suspend(rows, reason=reason, end_reservations=end_reservations, is_admin=is_admin, by=by, now=now)


@in_transaction
def resume_agent(*, tenant_id: str, agent_id: str, is_admin: bool, by: Actor, now: int) -> PrincipalInfo:
    """Its keys work again, those revoked excepted; its sessions from before stay dead. Active already: unchanged.

    Raises NotFound, and AccessDenied for a sponsor where an administrator has suspended the agent.
    """
    row = lock_agent(tenant_id, agent_id)
    if bars_resume(row, by.principal_id, is_admin=is_admin):
        # The loader asks this too, and records the denial; here it counts, since an administrator may just have acted.
        raise AccessDenied
    if row.status == "suspended":
        row.status, row.suspended_by, row.end_reservations = "active", "", False
        _stamp(row, "", by, now)
        _store([row])
    return principal_info(row)


def bars_resume(agent: PrincipalInfo | Principal, principal_id: str, *, is_admin: bool) -> bool:
    """Whether the agent was suspended by an administrator, and this principal may undo a sponsor's suspension only."""
    return agent.suspended_by == ADMINISTRATOR and acts_as(agent, principal_id, is_admin=is_admin) == SPONSOR


def _suspend(
    rows: Sequence[Principal], *, reason: str, end_reservations: bool, is_admin: bool, by: Actor, now: int
) -> int:
    stopped = [row for row in rows if row.status == "active"]
    changed = []
    for row in rows:
        acting = acts_as(row, by.principal_id, is_admin=is_admin)
        if row.status == "active" or (row.suspended_by, acting) == (SPONSOR, ADMINISTRATOR):
            row.status, row.suspended_by = "suspended", acting
            row.end_reservations = row.end_reservations or end_reservations
            _stamp(row, reason, by, now)
        elif end_reservations and not row.end_reservations:
            row.end_reservations = True
        else:
            continue
        changed.append(row)
    _store(changed)
    end_sessions(Delegation.objects.filter(agent__in=[row.id for row in stopped]), now=now)
    return len(stopped)


def _stamp(row: Principal, reason: str, by: Actor, now: int) -> None:
    row.status_reason, row.status_by, row.status_at = reason, by.principal_id, now
    row.version += 1


def _store(rows: Sequence[Principal]) -> None:
    """In one statement, however many they are."""
    stamped = ("status", "status_reason", "status_by", "status_at", "version")
    Principal.objects.bulk_update(rows, [*stamped, "suspended_by", "end_reservations"])
