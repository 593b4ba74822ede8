"""Row locks of identity and access, always in this order: tenant, principals by id, keys by id, policies by name.

No operation of another app holds one of its own locks when it comes here, except fleet with a node's row; iam calls
nobody who locks, so the published order of DESIGN §4 is not touched.
"""

from computeplatform.db.locks import lock_rows
from computeplatform.errors import NotFound
from iam.models import ApiKey, Policy, Principal, Tenant


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


def lock_key(tenant_id: str, key_id: str) -> ApiKey:
    """Raises NotFound, also for another tenant's."""
    rows = lock_rows(ApiKey.objects.filter(tenant_id=tenant_id, id=key_id))
    if not rows:
        raise NotFound("The tenant has no such key.")
    return rows[0]


def lock_policy(tenant_id: str, name: str) -> Policy | None:
    """The policy's row, deleted or not; None where the name was never used."""
    rows = lock_rows(Policy.objects.filter(tenant_id=tenant_id, name=name))
    return rows[0] if rows else None
