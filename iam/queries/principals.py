"""Tenants and their principals."""

from collections.abc import Collection

from computeplatform.errors import NotFound
from iam.contracts import TENANT_ADMIN, PrincipalInfo, TenantInfo
from iam.models import Principal, Tenant
from iam.queries.pages import newest_first


def principal_info(row: Principal) -> PrincipalInfo:
    """The row as others see it."""
    return PrincipalInfo(
        id=row.id,
        tenant_id=row.tenant_id,
        kind=row.kind,
        name=row.name,
        roles=tuple(row.roles),
        groups=tuple(row.groups),
        status=row.status,
        node_id=row.node_id,
        sponsor_id=row.sponsor_id or "",
        boundary=tuple(row.boundary),
        suspended_by=row.suspended_by,
        created_at=row.created_at,
        version=row.version,
    )


def tenant_info(row: Tenant) -> TenantInfo:
    """The row as others see it."""
    return TenantInfo(id=row.id, name=row.name, status=row.status, created_at=row.created_at, version=row.version)


def get_principal(tenant_id: str, principal_id: str, *, kind: str = "") -> PrincipalInfo:
    """Raises NotFound, also for another tenant's, and for one that is not of the ``kind`` that is looked for."""
    row = Principal.objects.filter(tenant_id=tenant_id, id=principal_id).first()
    if row is None or kind not in ("", row.kind):
        raise NotFound(f"The tenant has no such {kind or 'principal'}.")
    return principal_info(row)


def principal_page(
    tenant_id: str,
    *,
    kind: str | None,
    status: str | None,
    role: str | None,
    group: str | None,
    limit: int,
    cursor: str | None,
) -> tuple[list[PrincipalInfo], str | None]:
    """Principals of the tenant, newest first; each filter that is not None must hold."""
    everything = Principal.objects.filter(tenant_id=tenant_id)
    wanted = everything
    if kind is not None:
        wanted = wanted.filter(kind=kind)
    if status is not None:
        wanted = wanted.filter(status=status)
    if role is not None:
        wanted = wanted.filter(roles__contains=[role])
    if group is not None:
        wanted = wanted.filter(groups__contains=[group])
    rows, following = newest_first(everything, wanted, limit=limit, cursor=cursor)
    return [principal_info(row) for row in rows], following


def existing_principals(tenant_id: str, ids: Collection[str]) -> set[str]:
    """Which of the ids are principals of the tenant."""
    return set(Principal.objects.filter(tenant_id=tenant_id, id__in=ids).values_list("id", flat=True))


def groups_in_use(tenant_id: str, names: Collection[str]) -> set[str]:
    """Which of the groups at least one principal is in."""
    rows = Principal.objects.filter(tenant_id=tenant_id, groups__overlap=list(names)).values_list("groups", flat=True)
    return {name for groups in rows for name in groups} & set(names)


def other_active_admins(tenant_id: str, principal_id: str) -> bool:
    """Whether an active tenant administrator remains beside this principal. Agents do not count."""
    admins = Principal.objects.filter(tenant_id=tenant_id, status="active", roles__contains=[TENANT_ADMIN])
    return admins.exclude(id=principal_id).exclude(kind="agent").exists()


def get_tenant(tenant_id: str) -> TenantInfo:
    """Raises NotFound."""
    row = Tenant.objects.filter(id=tenant_id).first()
    if row is None:
        raise NotFound("There is no such tenant.")
    return tenant_info(row)


def tenant_exists(tenant_id: str) -> bool:
    """Whether there is such a tenant, active or suspended: whoever offers something to it wants to know."""
    return Tenant.objects.filter(id=tenant_id).exists()


def tenant_page(*, status: str | None, limit: int, cursor: str | None) -> tuple[list[TenantInfo], str | None]:
    """All tenants, newest first."""
    everything = Tenant.objects.all()
    wanted = everything if status is None else everything.filter(status=status)
    rows, following = newest_first(everything, wanted, limit=limit, cursor=cursor)
    return [tenant_info(row) for row in rows], following
