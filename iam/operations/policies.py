"""Policies: put and deleted (IAM-2; IAM-API §3, §9)."""

from django.db import connection

from computeplatform.api.calls import Actor
from computeplatform.db.retry import in_transaction
from computeplatform.errors import NotFound, StaleVersion
from iam.adapters.validation import check_text
from iam.contracts import PolicyInfo
from iam.domain.scanner import Scanned
from iam.errors import PolicyRefused, TooManyPolicies
from iam.locks import lock_policy, lock_tenant
from iam.models import Policy, PolicyVersion
from iam.queries.policies import current_policy, get_policy

MAX_POLICIES = 1_000


@in_transaction
def put_policy(
    *, tenant_id: str, name: str, text: str, version: int | None = None, by: Actor, now: int
) -> tuple[PolicyInfo, Scanned]:
    """Create or replace a policy; it is in force at the next call. The same text stores no new version.

    ``version`` is the one that the caller has seen, 0 for none. Answers the policy and its text as it was cut.
    Raises PolicyRefused, StaleVersion, TooManyPolicies.
    """
    scanned, issues = check_text(text)
    if issues:
        raise PolicyRefused(issues)
    lock_tenant(tenant_id)
    row = lock_policy(tenant_id, name)
    present = current_policy(tenant_id, name)
    _check_version(version, present)
    if present and present.text == text:
        return present, scanned
    if present is None and _count(tenant_id) >= MAX_POLICIES:
        raise TooManyPolicies(MAX_POLICIES)
    if row is None:
        row = Policy(tenant_id=tenant_id, name=name, version=0)
    if present is None:
        row.created_at, row.created_by, row.deleted_at = now, by.principal_id, None
    row.version += 1
    row.updated_at, row.updated_by = now, by.principal_id
    row.save()
    PolicyVersion.objects.create(
        policy=row,
        version=row.version,
        text=text,
        statements=[
            {"id": statement.id, "effect": statement.effect, "line": scanned.place(statement.start)[0]}
            for statement in scanned.statements
        ],
        created_at=now,
        created_by=by.principal_id,
    )
    _renew_revision(tenant_id)
    return get_policy(tenant_id, name, None), scanned


@in_transaction
def delete_policy(*, tenant_id: str, name: str, version: int | None = None, by: Actor, now: int) -> PolicyInfo:
    """Take a policy out of force; its versions stay readable. Raises NotFound, StaleVersion."""
    lock_tenant(tenant_id)
    row = lock_policy(tenant_id, name)
    present = current_policy(tenant_id, name)
    if row is None or present is None:
        raise NotFound("The tenant has no such policy.")
    _check_version(version, present)
    row.deleted_at, row.updated_at, row.updated_by = now, now, by.principal_id
    row.save(update_fields=["deleted_at", "updated_at", "updated_by"])
    _renew_revision(tenant_id)
    return present


def _check_version(given: int | None, policy: PolicyInfo | None) -> None:
    present = policy.version if policy else 0
    if given is not None and given != present:
        raise StaleVersion(given=given, present=present)


def _count(tenant_id: str) -> int:
    return Policy.objects.filter(tenant_id=tenant_id, deleted_at__isnull=True).count()


def _renew_revision(tenant_id: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE iam_tenant SET policy_revision = nextval('iam_policy_revision') WHERE id = %s", [tenant_id]
        )
