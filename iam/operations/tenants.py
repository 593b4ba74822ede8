"""Tenants: made and suspended by the platform (IAM-4)."""

from computeplatform.api.calls import Actor
from computeplatform.db.constraints import refusing
from computeplatform.db.retry import in_transaction
from iam.contracts import PLATFORM, TENANT_ADMIN, UNSCOPED, MintedKey, PrincipalInfo, TenantInfo
from iam.errors import PlatformStays, TenantExists
from iam.locks import lock_tenant
from iam.models import Tenant
from iam.operations.keys import create_key
from iam.operations.principals import create_principal
from iam.queries.principals import tenant_info


@in_transaction
def create_tenant(*, tenant_id: str, name: str, by: Actor, now: int) -> TenantInfo:
    """A new tenant without anybody in it. Raises TenantExists."""
    with refusing({"iam_tenant_pkey": TenantExists(tenant_id)}):
        row = Tenant.objects.create(id=tenant_id, name=name, created_at=now, created_by=by.principal_id)
    return tenant_info(row)


@in_transaction
def create_first_admin(*, tenant_id: str, name: str, by: Actor, now: int) -> tuple[PrincipalInfo, MintedKey]:
    """A user who is the tenant's administrator, with an unscoped key: what a new tenant is handed over with."""
    admin = create_principal(tenant_id=tenant_id, kind="user", name=name, roles=[TENANT_ADMIN], by=by, now=now)
    key = create_key(tenant_id=tenant_id, principal_id=admin.id, name="first key", scopes=UNSCOPED, by=by, now=now)
    return admin, key


@in_transaction
def suspend_tenant(*, tenant_id: str, reason: str = "", by: Actor, now: int) -> TenantInfo:
    """Every credential of the tenant stops at its next use. Suspended already: unchanged.

    Raises NotFound, PlatformStays.
    """
    if tenant_id == PLATFORM:
        raise PlatformStays
    return _set_status(tenant_id, "suspended", reason, by, now)


@in_transaction
def resume_tenant(*, tenant_id: str, reason: str = "", by: Actor, now: int) -> TenantInfo:
    """Its credentials work again. Active already: unchanged. Raises NotFound."""
    return _set_status(tenant_id, "active", reason, by, now)


def _set_status(tenant_id: str, status: str, reason: str, by: Actor, now: int) -> TenantInfo:
    row = lock_tenant(tenant_id)
    if row.status != status:
        row.status, row.status_reason, row.status_by, row.status_at = status, reason, by.principal_id, now
        row.version += 1
        row.save(update_fields=["status", "status_reason", "status_by", "status_at", "version"])
    return tenant_info(row)
