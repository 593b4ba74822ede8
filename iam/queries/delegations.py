"""Delegations and the sessions assumed under them, without what they hide."""

from computeplatform.errors import NotFound
from iam.contracts import DelegationInfo, SessionInfo
from iam.models import DelegatedSession, Delegation
from iam.queries.pages import in_status, newest_first, status_of


def delegation_info(row: Delegation, *, now: int) -> DelegationInfo:
    """The row as others see it."""
    return DelegationInfo(
        id=row.id,
        tenant_id=row.tenant_id,
        user_id=row.user_id,
        agent_id=row.agent_id,
        name=row.name,
        scopes=tuple(row.scopes),
        confirm=tuple(row.confirm),
        status=status_of(row, now=now),
        created_at=row.created_at,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
    )


def session_info(row: DelegatedSession) -> SessionInfo:
    """The row as others see it; reads its delegation."""
    return SessionInfo(
        id=row.id,
        tenant_id=row.tenant_id,
        delegation_id=row.delegation_id,
        user_id=row.delegation.user_id,
        agent_id=row.delegation.agent_id,
        scopes=tuple(row.scopes),
        created_at=row.created_at,
        expires_at=row.expires_at,
    )


def get_delegation(tenant_id: str, delegation_id: str, *, now: int) -> DelegationInfo:
    """Raises NotFound, also for another tenant's."""
    row = Delegation.objects.filter(tenant_id=tenant_id, id=delegation_id).first()
    if row is None:
        raise NotFound("The tenant has no such delegation.")
    return delegation_info(row, now=now)


def get_session(tenant_id: str, session_id: str) -> SessionInfo:
    """Raises NotFound, also for one that is long over and forgotten."""
    row = DelegatedSession.objects.filter(tenant_id=tenant_id, id=session_id).select_related("delegation").first()
    if row is None:
        raise NotFound("The tenant has no such session.")
    return session_info(row)


def delegation_page(
    tenant_id: str,
    *,
    user_id: str | None,
    agent_id: str | None,
    status: str | None,
    limit: int,
    cursor: str | None,
    now: int,
) -> tuple[list[DelegationInfo], str | None]:
    """Delegations by this user, to this agent, or both, newest first."""
    everything = Delegation.objects.filter(tenant_id=tenant_id)
    if user_id is not None:
        everything = everything.filter(user_id=user_id)
    if agent_id is not None:
        everything = everything.filter(agent_id=agent_id)
    wanted = everything if status is None else in_status(everything, status, now=now)
    rows, following = newest_first(everything, wanted, limit=limit, cursor=cursor)
    return [delegation_info(row, now=now) for row in rows], following
