"""Policies: put and deleted (IAM-2; IAM-API §3, §9)."""

from django.db import connection

from computeplatform.api.calls import Actor
from computeplatform.db.retry import in_transaction
from computeplatform.errors import NotFound, StaleVersion
from iam.adapters.validation import check_text
from iam.contracts import PolicyInfo
from iam.domain.scanner import Scanned
from iam.errors import PoliciesTooBig, PolicyRefused, TooManyPolicies
from iam.locks import lock_policy, lock_tenant
from iam.models import Policy, PolicyVersion
from iam.queries.compiled import compile_beside_builtin, not_stored
from iam.queries.policies import current_policy, get_policy, sizes

MAX_POLICIES = 1_000
# All of a tenant's policies together, for each of its decisions reads them all. Measured at this many words, of text
# made to cost as much as it can: 18 ms per decision, 0.4 s to compile, 100 MB to keep. 1,000 policies of two usual
# statements have room. The bytes bound what comments and long strings add: 1 s to compile.
MAX_WORDS = 100_000
MAX_TOTAL_BYTES = 2 * 1_048_576


@in_transaction
def put_policy(
    *, tenant_id: str, name: str, text: str, version: int | None = None, by: Actor, now: int
) -> tuple[PolicyInfo, Scanned]:
    """Create or replace a policy; it is in force at the next call. The same text stores no new version.

    ``version`` is the one that the caller has seen, 0 for none. Answers the policy and its text as it was cut.
    Raises PolicyRefused, StaleVersion, TooManyPolicies, PoliciesTooBig.
    """
    scanned, issues = check_text(text)
    if issues:
        raise PolicyRefused(issues)
    # Text that cannot be compiled would end every decision in the tenant: none is stored.
    compile_beside_builtin([not_stored(tenant_id, name, scanned)])
    lock_tenant(tenant_id)
    row = lock_policy(tenant_id, name)
    present = current_policy(tenant_id, name)
    _check_version(version, present)
    if present and present.text == text:
        return present, scanned
    _check_room(tenant_id, present, text, scanned)
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
        words=scanned.size,
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


def _check_room(tenant_id: str, present: PolicyInfo | None, text: str, scanned: Scanned) -> None:
    """Raises TooManyPolicies and PoliciesTooBig. What makes the whole no bigger is always taken."""
    count, words, size = sizes(tenant_id)
    if present is None and count >= MAX_POLICIES:
        raise TooManyPolicies(MAX_POLICIES)
    more_words = scanned.size - (present.words if present else 0)
    more_bytes = len(text.encode()) - (len(present.text.encode()) if present else 0)
    if more_words > 0 and words + more_words > MAX_WORDS:
        raise PoliciesTooBig("words", size=words + more_words, limit=MAX_WORDS)
    if more_bytes > 0 and size + more_bytes > MAX_TOTAL_BYTES:
        raise PoliciesTooBig("bytes", size=size + more_bytes, limit=MAX_TOTAL_BYTES)


def _renew_revision(tenant_id: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE iam_tenant SET policy_revision = nextval('iam_policy_revision') WHERE id = %s", [tenant_id]
        )
