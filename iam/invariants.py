"""What must hold of identity and access at every commit (REC-5's command runs these too)."""

from collections.abc import Collection, Iterator

from django.db import connection
from django.db.models import Count, F, Max, Q

from computeplatform.invariants import invariant
from iam.contracts import PLATFORM, TENANT_ADMIN
from iam.models import ApiKey, Operator, Policy, Principal, Tenant


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


@invariant("iam.operator-tenant")
def operators(_pools: Collection[str] | None) -> Iterator[tuple[str, str]]:
    """Who signs in to the admin acts as a user of the platform (OPS-1)."""
    rows = Operator.objects.exclude(principal=None)
    for row in rows.filter(~Q(principal__tenant_id=PLATFORM) | ~Q(principal__kind="user")):
        yield row.get_username(), "acts as somebody who is no user of the platform"
