"""API keys, without what they hide."""

from computeplatform.errors import NotFound
from iam.contracts import KeyInfo
from iam.models import ApiKey
from iam.queries.pages import in_status, newest_first, status_of


def key_info(row: ApiKey, *, now: int) -> KeyInfo:
    """The row as others see it."""
    return KeyInfo(
        id=row.id,
        tenant_id=row.tenant_id,
        principal_id=row.principal_id,
        sponsor_id=row.principal.sponsor_id or "",
        name=row.name,
        prefix=row.prefix,
        scopes=tuple(row.scopes),
        requests_per_minute=row.requests_per_minute,
        status=status_of(row, now=now),
        created_at=row.created_at,
        created_by=row.created_by,
        expires_at=row.expires_at,
        last_used_at=row.last_used_at,
        replaced_by=row.replaced_by,
    )


def get_key(tenant_id: str, key_id: str, *, now: int) -> KeyInfo:
    """Raises NotFound, also for another tenant's."""
    row = ApiKey.objects.filter(tenant_id=tenant_id, id=key_id).select_related("principal").first()
    if row is None:
        raise NotFound("The tenant has no such key.")
    return key_info(row, now=now)


def replaced_key(tenant_id: str, key_id: str, *, now: int) -> KeyInfo:
    """The key that ``key_id`` was made in place of; raises NotFound."""
    row = ApiKey.objects.filter(tenant_id=tenant_id, replaced_by=key_id).select_related("principal").first()
    if row is None:
        raise NotFound("The tenant has no such key.")
    return key_info(row, now=now)


def key_page(
    tenant_id: str, *, principal_id: str | None, status: str | None, limit: int, cursor: str | None, now: int
) -> tuple[list[KeyInfo], str | None]:
    """Keys of the tenant or of one principal, newest first."""
    everything = ApiKey.objects.filter(tenant_id=tenant_id)
    if principal_id is not None:
        everything = everything.filter(principal_id=principal_id)
    wanted = everything if status is None else in_status(everything, status, now=now)
    rows, following = newest_first(everything, wanted.select_related("principal"), limit=limit, cursor=cursor)
    return [key_info(row, now=now) for row in rows], following
