"""Row locks of identity and access, always in this order: tenant, principals by id, keys by id, delegations by id,
sessions by id, confirmations by id, policies by name.

No operation of another app holds one of its own locks when it comes here, except fleet with a node's row, and
reservations with rows of its own that are decided, or wait for a confirmation; iam calls nobody who locks, so the
published order of DESIGN §4 is not touched.
"""

from collections.abc import Collection

from django.db.models import QuerySet

from computeplatform.db.locks import lock_rows
from computeplatform.errors import NotFound
from iam.models import ApiKey, Confirmation, DecisionBatch, DelegatedSession, Delegation, Policy, Principal, Tenant


def lock_tenant(tenant_id: str) -> Tenant:
    """Serialises what must hold over a whole tenant: its last administrator, its number and revision of policies.

    Raises NotFound.
    """
    rows = lock_rows(Tenant.objects.filter(id=tenant_id))
    if not rows:
        raise NotFound("There is no such tenant.")
    return rows[0]


def lock_principal(tenant_id: str, principal_id: str) -> Principal:
    """Raises NotFound, also for another tenant's."""
    rows = lock_rows(Principal.objects.filter(tenant_id=tenant_id, id=principal_id))
    if not rows:
        raise NotFound("The tenant has no such principal.")
    return rows[0]


def lock_agent(tenant_id: str, agent_id: str) -> Principal:
    """Raises NotFound, also for another tenant's and for a principal that is no agent."""
    rows = lock_rows(Principal.objects.filter(tenant_id=tenant_id, id=agent_id, kind="agent"))
    if not rows:
        raise NotFound("The tenant has no such agent.")
    return rows[0]


def lock_principals(principals: QuerySet[Principal]) -> dict[str, Principal]:
    """Several at once, by id."""
    return {row.id: row for row in lock_rows(principals)}


def lock_key(tenant_id: str, key_id: str) -> ApiKey:
    """Raises NotFound, also for another tenant's."""
    rows = lock_rows(ApiKey.objects.filter(tenant_id=tenant_id, id=key_id))
    if not rows:
        raise NotFound("The tenant has no such key.")
    return rows[0]


def lock_delegation(tenant_id: str, delegation_id: str) -> Delegation:
    """Raises NotFound, also for another tenant's."""
    rows = lock_rows(Delegation.objects.filter(tenant_id=tenant_id, id=delegation_id))
    if not rows:
        raise NotFound("The tenant has no such delegation.")
    return rows[0]


def lock_open_sessions(delegations: QuerySet[Delegation], *, now: int) -> Collection[str]:
    """The ids of what was assumed under these delegations and goes on."""
    sessions = DelegatedSession.objects.filter(delegation__in=delegations, ended_at__isnull=True, expires_at__gt=now)
    return [row.id for row in lock_rows(sessions)]


def lock_confirmation(tenant_id: str, confirmation_id: str) -> Confirmation:
    """Raises NotFound, also for another tenant's."""
    rows = lock_rows(Confirmation.objects.filter(tenant_id=tenant_id, id=confirmation_id))
    if not rows:
        raise NotFound("The tenant has no such confirmation.")
    return rows[0]


def lock_confirmations(confirmations: QuerySet[Confirmation]) -> list[Confirmation]:
    """Several at once, by id."""
    return lock_rows(confirmations)


def lock_whole_batch(batch_id: int) -> bool:
    """A batch of the audit log that still has its entries; False if it was pruned. Nothing else is locked with it."""
    return bool(lock_rows(DecisionBatch.objects.filter(pk=batch_id, pruned_at=None)))


def lock_policy(tenant_id: str, name: str) -> Policy | None:
    """The policy's row, deleted or not; None where the name was never used."""
    rows = lock_rows(Policy.objects.filter(tenant_id=tenant_id, name=name))
    return rows[0] if rows else None
