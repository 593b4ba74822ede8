"""Policies of one tenant."""

from collections.abc import Sequence

from django.db.models import Case, Count, F, Func, IntegerField, QuerySet, Sum, When
from django.db.models.functions import Coalesce

from computeplatform.errors import InvalidInput, NotFound
from iam.contracts import PolicyInfo
from iam.models import PolicyVersion

# Texts of the release before were not counted; usual ones have some five bytes to a word.
_BYTES_PER_WORD = 4


def current_policies(tenant_id: str) -> list[PolicyInfo]:
    """All policies in force in the tenant, by name, in one query."""
    return [_info(row) for row in _current(tenant_id).order_by("policy__name")]


def current_policy(tenant_id: str, name: str) -> PolicyInfo | None:
    """The policy in force under this name; None if there is none."""
    row = _current(tenant_id).filter(policy__name=name).first()
    return _info(row) if row else None


def policy_version(tenant_id: str, name: str, version: int) -> PolicyInfo | None:
    """One version, present or old, also of a deleted policy."""
    row = _versions(tenant_id).filter(policy__name=name, version=version).first()
    return _info(row) if row else None


def policy_page(tenant_id: str, *, limit: int, cursor: str | None) -> tuple[Sequence[PolicyInfo], str | None]:
    """Policies by name, after the one named ``cursor``; and the cursor of the next page, if there is one.

    Raises InvalidInput for a cursor that never named a policy of the tenant.
    """
    rows = _current(tenant_id)
    if cursor is not None:
        if not _versions(tenant_id).filter(policy__name=cursor).exists():
            raise InvalidInput.at("cursor", "is not the name of a policy")
        rows = rows.filter(policy__name__gt=cursor)
    page = [_info(row) for row in rows.order_by("policy__name")[: limit + 1]]
    return page[:limit], page[limit - 1].name if len(page) > limit else None


def get_policy(tenant_id: str, name: str, version: int | None) -> PolicyInfo:
    """The policy in force, or the version asked for; raises NotFound."""
    found = current_policy(tenant_id, name) if version is None else policy_version(tenant_id, name, version)
    if found is None:
        raise NotFound("The tenant has no such policy.")
    return found


def sizes(tenant_id: str) -> tuple[int, int, int]:
    """How many policies are in force in the tenant, and their words and bytes together."""
    size = Func(F("text"), function="OCTET_LENGTH", output_field=IntegerField())
    found = _current(tenant_id).aggregate(
        count=Count("pk"),
        words=Coalesce(Sum(Case(When(words__gt=0, then=F("words")), default=size / _BYTES_PER_WORD)), 0),
        size=Coalesce(Sum(size), 0),
    )
    return found["count"], found["words"], found["size"]


def _versions(tenant_id: str) -> QuerySet[PolicyVersion]:
    return PolicyVersion.objects.filter(policy__tenant_id=tenant_id).select_related("policy")


def _current(tenant_id: str) -> QuerySet[PolicyVersion]:
    return _versions(tenant_id).filter(policy__deleted_at__isnull=True, version=F("policy__version"))


def _info(row: PolicyVersion) -> PolicyInfo:
    # "Updated" is the version's own making: an old version shows when it was written, not what came after.
    return PolicyInfo(
        tenant_id=row.policy.tenant_id,
        name=row.policy.name,
        version=row.version,
        text=row.text,
        statements=tuple(row.statements),
        created_at=row.policy.created_at,
        created_by=row.policy.created_by,
        updated_at=row.created_at,
        updated_by=row.created_by,
        words=row.words or len(row.text) // _BYTES_PER_WORD,
    )
