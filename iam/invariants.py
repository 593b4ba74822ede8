"""What must hold of identity and access at every commit (REC-5's command runs these too)."""

from collections.abc import Collection, Iterator

from django.db import connection
from django.db.models import Count, F, Max, Q

from computeplatform.invariants import invariant
from iam.catalogue import actions_by_name
from iam.contracts import PLATFORM, TENANT_ADMIN
from iam.domain.patterns import covers
from iam.models import ApiKey, DelegatedSession, Delegation, Operator, Policy, Principal, Tenant


@invariant("iam.platform-has-admin")
def platform_has_admin(_pools: Collection[str] | None) -> Iterator[tuple[str, str]]:
    """Once the platform tenant exists, somebody can administer it: nobody else could make its next administrator."""
    admins = Principal.objects.filter(tenant_id=PLATFORM, status="active", roles__contains=[TENANT_ADMIN])
    if Tenant.objects.filter(id=PLATFORM).exists() and not admins.exclude(kind="agent").exists():
        yield PLATFORM, "has no active tenant-admin"


@invariant("iam.policy-version")
def policy_versions(_pools: Collection[str] | None) -> Iterator[tuple[str, str]]:
    """A policy's version is the latest of its stored texts, and their numbers have no gap."""
    rows = Policy.objects.annotate(latest=Max("versions__version"), stored=Count("versions"))
    for row in rows.exclude(latest=F("version"), stored=F("version")):
        yield str(row), f"is at version {row.version}, with {row.stored} texts up to {row.latest}"


@invariant("iam.policy-revision")
def policy_revisions(_pools: Collection[str] | None) -> Iterator[tuple[str, str]]:
    """A tenant whose policies ever changed has a revision, and no two tenants or states share one."""
    for tenant_id in Tenant.objects.filter(policy_revision=0, policies__isnull=False).values_list("id", flat=True):
        yield tenant_id, "has policies, but its policy revision never moved"
    with connection.cursor() as cursor:
        cursor.execute("SELECT last_value FROM iam_policy_revision")
        (last,) = cursor.fetchone()
    for tenant_id, revision in Tenant.objects.filter(policy_revision__gt=last).values_list("id", "policy_revision"):
        yield tenant_id, f"is at policy revision {revision}, above the sequence's {last}"


@invariant("iam.key-tenant")
def key_tenants(_pools: Collection[str] | None) -> Iterator[tuple[str, str]]:
    """A key belongs to its principal's tenant, and one replaced names a key of the same principal."""
    for row in ApiKey.objects.exclude(tenant_id=F("principal__tenant_id")):
        yield row.id, f"is a key of {row.tenant_id} for a principal of another tenant"
    replaced = dict(ApiKey.objects.exclude(replaced_by="").values_list("replaced_by", "principal_id"))
    for key_id, principal_id in ApiKey.objects.filter(id__in=replaced).values_list("id", "principal_id"):
        if principal_id != replaced[key_id]:
            yield key_id, "replaces a key of another principal"


@invariant("iam.sponsor-tenant")
def sponsors(_pools: Collection[str] | None) -> Iterator[tuple[str, str]]:
    """An agent's sponsor is a user of the same tenant."""
    agents = Principal.objects.filter(kind="agent")
    for row in agents.filter(~Q(sponsor__tenant_id=F("tenant_id")) | ~Q(sponsor__kind="user")):
        yield row.id, "has a sponsor that is no user of its tenant"


@invariant("iam.agent-suspension")
def suspensions(_pools: Collection[str] | None) -> Iterator[tuple[str, str]]:
    """Who suspended an agent, and that its reservations end, is known of suspended agents and of nobody else."""
    suspended = Q(kind="agent", status="suspended")
    for row in Principal.objects.filter(suspended & Q(suspended_by="")):
        yield row.id, "is suspended by nobody"
    for row in Principal.objects.filter(~suspended & (~Q(suspended_by="") | Q(end_reservations=True))):
        yield row.id, "is no suspended agent, but stands as one"


@invariant("iam.delegation-parties")
def delegation_parties(_pools: Collection[str] | None) -> Iterator[tuple[str, str]]:
    """A delegation is between a user and an agent of its tenant."""
    theirs = Q(user__kind="user", user__tenant=F("tenant"), agent__kind="agent", agent__tenant=F("tenant"))
    for row in Delegation.objects.exclude(theirs):
        yield row.id, "is not between a user and an agent of its tenant"


@invariant("iam.session-bounds")
def session_bounds(_pools: Collection[str] | None) -> Iterator[tuple[str, str]]:
    """A session was assumed by its delegation's agent, is no wider than the delegation and does not outlive it."""
    for row in DelegatedSession.objects.select_related("delegation", "key"):
        given = row.delegation
        if (row.tenant_id, row.key.principal_id) != (given.tenant_id, given.agent_id):
            yield row.id, "was not assumed by the agent of its delegation"
        if row.expires_at > given.expires_at or not covers(given.scopes, row.scopes, actions_by_name()):
            yield row.id, "is wider or longer than its delegation"


@invariant("iam.sessions-of-suspended")
def sessions_of_suspended(_pools: Collection[str] | None) -> Iterator[tuple[str, str]]:
    """Nothing assumed before a suspension of user or agent is left to come back with them."""
    left = DelegatedSession.objects.filter(ended_at__isnull=True)
    for party in ("delegation__user", "delegation__agent"):
        suspended = left.filter(**{f"{party}__status": "suspended"})
        for row in suspended.filter(expires_at__gt=F(f"{party}__status_at")):
            yield row.id, "goes on after the suspension of its user or agent"


@invariant("iam.operator-tenant")
def operators(_pools: Collection[str] | None) -> Iterator[tuple[str, str]]:
    """Who signs in to the admin acts as a user of the platform (OPS-1)."""
    rows = Operator.objects.exclude(principal=None)
    for row in rows.filter(~Q(principal__tenant_id=PLATFORM) | ~Q(principal__kind="user")):
        yield row.get_username(), "acts as somebody who is no user of the platform"


_LOST = """
WITH held AS (
    SELECT e ->> 0 AS id FROM iam_decisionbatch, jsonb_array_elements(entries) AS e WHERE pruned_at IS NULL
    UNION ALL SELECT decision_id FROM iam_unsealeddecision
)
SELECT coalesce(d.id, h.id), d.id IS NULL, coalesce(h.times, 0) FROM iam_decision AS d
FULL JOIN (SELECT id, count(*) AS times FROM held GROUP BY id) AS h ON h.id = d.id
WHERE d.id IS NULL OR h.times IS DISTINCT FROM 1
"""


@invariant("iam.audit-complete")
def audit_complete(_pools: Collection[str] | None) -> Iterator[tuple[str, str]]:
    """Every entry of the audit log waits to be sealed or is in one batch, and what was not pruned is there (IAM-7)."""
    with connection.cursor() as cursor:
        cursor.execute(_LOST)
        for decision_id, missing, times in cursor.fetchall():
            yield decision_id, "has no entry" if missing else f"is an entry that is held {times} times"


_BROKEN = """
SELECT tenant_id, number, number - 1 IS DISTINCT FROM before, previous IS DISTINCT FROM hash_before FROM (
    SELECT tenant_id, number, previous, lag(number, 1, 0::bigint) OVER chain AS before,
        lag(hash, 1, '') OVER chain AS hash_before
    FROM iam_decisionbatch WINDOW chain AS (PARTITION BY tenant_id ORDER BY number)
) AS followed WHERE number - 1 <> before OR previous <> hash_before
"""


@invariant("iam.audit-chain")
def audit_chain(_pools: Collection[str] | None) -> Iterator[tuple[str, str]]:
    """A tenant's batches are numbered from 1 on without a gap, and each names the hash of the one before (IAM-7)."""
    with connection.cursor() as cursor:
        cursor.execute(_BROKEN)
        for tenant_id, number, gap, _ in cursor.fetchall():
            yield f"{tenant_id} batch {number}", "has none before it" if gap else "does not continue the one before it"


_CONFIRMATIONS = """
SELECT c.id, c.state FROM iam_confirmation c JOIN iam_delegation g ON g.id = c.delegation_id
LEFT JOIN iam_decision d ON d.id = c.decision_id
WHERE (c.tenant_id, c.user_id, c.agent_id) <> (g.tenant_id, g.user_id, g.agent_id)
    OR (c.state = 'used' AND NOT (c.decided_at <= c.used_at AND c.used_at < c.expires_at))
    OR (d.id IS NOT NULL AND (d.outcome <> 'allow' OR d.delegation_id <> c.delegation_id
        OR (d.tenant_id, d.action, d.resource_id) <> (c.tenant_id, c.action, c.resource_id)
        OR d.context ->> 'confirmationId' IS DISTINCT FROM c.id))
    -- An old entry may have been pruned: the batch that it was in still names it (IAM-7).
    OR (c.decision_id <> '' AND d.id IS NULL AND c.decision_id NOT IN (
        SELECT e ->> 0 FROM iam_decisionbatch, jsonb_array_elements(entries) AS e WHERE pruned_at IS NOT NULL))
"""


@invariant("iam.confirmations")
def confirmations(_pools: Collection[str] | None) -> Iterator[tuple[str, str]]:
    """A confirmation is its delegation's user's, and a used one was used in time, by a decision that allowed just what
    was asked, and says so (IAM-6)."""
    with connection.cursor() as cursor:
        cursor.execute(_CONFIRMATIONS)
        for confirmation_id, state in cursor.fetchall():
            yield confirmation_id, f"is {state}, with other people, times or another decision than that needs"
