"""Delegations: granted, assumed, revoked (IAM-5; IAM-API §3, §4)."""

from collections.abc import Sequence

from computeplatform.api.calls import Actor
from computeplatform.clock import SECOND
from computeplatform.db.retry import in_transaction
from computeplatform.errors import InvalidInput, Issue, NotFound
from computeplatform.ids import new_id
from iam.catalogue import actions_by_name
from iam.contracts import AssumedSession, DelegationInfo
from iam.domain import tokens
from iam.domain.patterns import covers
from iam.errors import DelegationNotActive, KeyNotActive, PrincipalSuspended
from iam.locks import lock_delegation, lock_key, lock_principals
from iam.models import DelegatedSession, Delegation, Principal
from iam.queries.delegations import delegation_info, get_delegation, session_info
from iam.queries.pages import status_of

DEFAULT_LIFETIME_SECONDS = 2_592_000
DEFAULT_SESSION_SECONDS = 900


@in_transaction
def grant_delegation(
    *,
    tenant_id: str,
    user_id: str,
    agent_id: str,
    name: str = "",
    scopes: Sequence[str],
    confirm: Sequence[str] = (),
    expires_in_seconds: int = DEFAULT_LIFETIME_SECONDS,
    now: int,
) -> DelegationInfo:
    """Let the agent act for the user within the scopes, which are patterns that somebody has checked.

    Raises NotFound for a user or an agent that the tenant does not have, PrincipalSuspended.
    """
    _active(tenant_id, user_id=user_id, agent_id=agent_id)
    row = Delegation.objects.create(
        id=new_id("dlg"),
        tenant_id=tenant_id,
        user_id=user_id,
        agent_id=agent_id,
        name=name,
        scopes=list(scopes),
        confirm=list(confirm),
        created_at=now,
        expires_at=now + expires_in_seconds * SECOND,
    )
    return delegation_info(row, now=now)


@in_transaction
def assume_delegation(
    *,
    tenant_id: str,
    delegation_id: str,
    key_id: str,
    scopes: Sequence[str] | None = None,
    expires_in_seconds: int | None = None,
    now: int,
) -> AssumedSession:
    """A session of the delegation's agent, who came with this key. It ends with delegation and key at the latest.

    ``scopes`` None are the delegation's, ``expires_in_seconds`` None is 900 or what is left. Raises NotFound,
    PrincipalSuspended, KeyNotActive, DelegationNotActive, and InvalidInput for wider scopes or a longer life.
    """
    parties = get_delegation(tenant_id, delegation_id, now=now)
    # Held until the session is stored: whoever suspends one of the two then finds it and ends it.
    _active(tenant_id, user_id=parties.user_id, agent_id=parties.agent_id)
    key = lock_key(tenant_id, key_id)
    if (status := status_of(key, now=now)) != "active":
        raise KeyNotActive(status)
    row = lock_delegation(tenant_id, delegation_id)
    if (status := status_of(row, now=now)) != "active":
        raise DelegationNotActive(status)
    left = min(row.expires_at, key.expires_at) - now
    _check_within(row, left, scopes=scopes, expires_in_seconds=expires_in_seconds)
    length = DEFAULT_SESSION_SECONDS if expires_in_seconds is None else expires_in_seconds
    token = tokens.mint(tokens.SESSION_TYPE)
    session = DelegatedSession.objects.create(
        id=new_id("ses"),
        tenant_id=tenant_id,
        delegation=row,
        key=key,
        prefix=token.prefix,
        token_hash=token.digest,
        scopes=row.scopes if scopes is None else list(scopes),
        created_at=now,
        expires_at=now + min(length * SECOND, left),
    )
    return AssumedSession(session_info(session), token.text)


@in_transaction
def revoke_delegation(*, tenant_id: str, delegation_id: str, reason: str = "", by: Actor, now: int) -> DelegationInfo:
    """End a delegation, and with it what was assumed under it, at the next call.

    A revoked one is answered unchanged, an expired one is revoked too. Raises NotFound.
    """
    row = lock_delegation(tenant_id, delegation_id)
    if row.status == "active":
        row.status, row.revoked_at, row.revoked_by, row.revoke_reason = "revoked", now, by.principal_id, reason
        row.save(update_fields=["status", "revoked_at", "revoked_by", "revoke_reason"])
    return delegation_info(row, now=now)


def _active(tenant_id: str, *, user_id: str, agent_id: str) -> None:
    """Hold the rows of both; raises NotFound and PrincipalSuspended."""
    rows = lock_principals(Principal.objects.filter(tenant_id=tenant_id, id__in=[user_id, agent_id]))
    if {row.kind for row in rows.values()} != {"user", "agent"}:
        raise NotFound("The tenant has no such user or no such agent.")
    if any(row.status != "active" for row in rows.values()):
        raise PrincipalSuspended


def _check_within(row: Delegation, left: int, *, scopes: Sequence[str] | None, expires_in_seconds: int | None) -> None:
    """A session is neither wider than its delegation nor does it outlive it or the key. Raises InvalidInput."""
    issues = []
    if scopes is not None and not covers(row.scopes, scopes, actions_by_name()):
        issues.append(Issue("scopes", "the delegation's scopes do not cover these"))
    if expires_in_seconds is not None and expires_in_seconds * SECOND > left:
        issues.append(Issue("expiresInSeconds", f"delegation and key are good for {left // SECOND} s more"))
    if issues:
        raise InvalidInput(sorted(issues, key=lambda issue: issue.path))
