"""Identity and access rows: who there is, how they sign in, what policies say, what was decided (CONTRACT §8)."""

from django.contrib.auth.models import AbstractUser
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.db.models import F, Q


class Tenant(models.Model):
    """Who is charged and isolated. ``platform`` is the operator's own, and only there the fleet exists (IAM-4).

    ``policy_revision`` is taken from a sequence with every change of the tenant's policies, so no number ever names two
    states, not even after a rollback. It is read along with each credential, so that a process knows at every call
    whether its compiled policies are still the present ones (IAM-1). ``status_…`` say of the last suspension or
    resumption when it was, by whom, and why.
    """

    id = models.CharField(primary_key=True, max_length=128)
    name = models.CharField(max_length=128)
    status = models.CharField(max_length=16, default="active")
    status_at = models.BigIntegerField(null=True, blank=True)
    status_by = models.CharField(max_length=128, default="", blank=True)
    status_reason = models.CharField(max_length=128, default="", blank=True)
    policy_revision = models.BigIntegerField(default=0)
    created_at = models.BigIntegerField()
    created_by = models.CharField(max_length=128)
    version = models.BigIntegerField(default=1)

    class Meta:
        constraints = [
            # A tenant works or is suspended; whatever reads the column need not expect a third thing.
            models.CheckConstraint(condition=Q(status__in=["active", "suspended"]), name="tenant_status_known"),
        ]
        indexes = [
            # tenants/list: newest first.
            models.Index(F("created_at").desc(), F("id").desc(), name="tenant_newest"),
        ]

    def __str__(self) -> str:
        return self.id


class Principal(models.Model):
    """A user, service or agent of one tenant.

    ``node_id`` is set on the service that a node's software signs in as (NOD-1); ``sponsor``, ``boundary`` and
    ``suspended_by`` belong to agents.
    """

    id = models.CharField(primary_key=True, max_length=64)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="principals")
    kind = models.CharField(max_length=16)
    name = models.CharField(max_length=128)
    roles = ArrayField(models.CharField(max_length=32), default=list)
    groups = ArrayField(models.CharField(max_length=63), default=list)
    status = models.CharField(max_length=16, default="active")
    status_at = models.BigIntegerField(null=True, blank=True)
    status_by = models.CharField(max_length=128, default="", blank=True)
    status_reason = models.CharField(max_length=128, default="", blank=True)
    suspended_by = models.CharField(max_length=16, default="", blank=True)
    node_id = models.CharField(max_length=128, default="", blank=True)
    sponsor = models.ForeignKey("self", null=True, blank=True, on_delete=models.PROTECT, related_name="agents")
    boundary = ArrayField(models.CharField(max_length=96), default=list, blank=True)
    created_at = models.BigIntegerField()
    created_by = models.CharField(max_length=128)
    version = models.BigIntegerField(default=1)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(kind__in=["user", "service", "agent"]), name="principal_kind_known"),
            models.CheckConstraint(condition=Q(status__in=["active", "suspended"]), name="principal_status_known"),
            # A sponsor is what makes an agent: nobody else has one, and no agent is without.
            models.CheckConstraint(
                condition=Q(kind="agent", sponsor__isnull=False) | (~Q(kind="agent") & Q(sponsor__isnull=True)),
                name="principal_agent_has_sponsor",
            ),
            # Only a service speaks for a node, and only one in the platform tenant (NOD-1).
            models.CheckConstraint(
                condition=Q(node_id="") | Q(kind="service", tenant_id="platform"), name="principal_node_is_service"
            ),
            # One living identity per node: a second registration cannot leave two keys that sync the same node.
            models.UniqueConstraint(
                fields=["node_id"], condition=~Q(node_id="") & Q(status="active"), name="principal_one_per_node"
            ),
            # The platform's own role cannot be held elsewhere, whatever code forgets to check it (IAM-4).
            models.CheckConstraint(
                condition=Q(tenant_id="platform") | ~Q(roles__contains=["fleet-admin"]),
                name="principal_fleet_admin_platform_only",
            ),
        ]
        indexes = [
            # principals/list: one tenant, newest first.
            models.Index(F("tenant"), F("created_at").desc(), F("id").desc(), name="principal_newest"),
            # Who has a role or is in a group: filters of the list, the last-administrator rule, policy warnings.
            GinIndex(fields=["roles"], name="principal_roles"),
            GinIndex(fields=["groups"], name="principal_groups"),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.id})"


class Operator(AbstractUser):
    """Who signs in to the admin (OPS-1). ``principal`` is the identity under which what they do is audited.

    It may be empty only because ``createsuperuser`` knows no principals; operations refuse an operator without one.
    """

    principal = models.OneToOneField(
        Principal, null=True, blank=True, on_delete=models.PROTECT, related_name="operator"
    )

    class Meta(AbstractUser.Meta):
        verbose_name = "operator"
        verbose_name_plural = "operators"


class ApiKey(models.Model):
    """A bearer credential (API-2). The token itself is in the answer that created it and nowhere else.

    ``prefix`` is the token's first 12 characters (``cpk_`` and the 8 that find the row); ``token_hash`` the SHA-256 of
    the whole token, in hexadecimal. A key past ``expires_at`` is expired whatever ``status`` says.
    """

    id = models.CharField(primary_key=True, max_length=64)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="keys")
    principal = models.ForeignKey(Principal, on_delete=models.PROTECT, related_name="keys")
    name = models.CharField(max_length=128, default="", blank=True)
    prefix = models.CharField(max_length=12)
    token_hash = models.CharField(max_length=64)
    scopes = ArrayField(models.CharField(max_length=96))
    requests_per_minute = models.IntegerField(null=True, blank=True)
    status = models.CharField(max_length=16, default="active")
    created_at = models.BigIntegerField()
    created_by = models.CharField(max_length=128)
    expires_at = models.BigIntegerField()
    last_used_at = models.BigIntegerField(null=True, blank=True)
    revoked_at = models.BigIntegerField(null=True, blank=True)
    revoked_by = models.CharField(max_length=128, default="", blank=True)
    revoke_reason = models.CharField(max_length=128, default="", blank=True)
    replaced_by = models.CharField(max_length=64, default="", blank=True)

    class Meta:
        verbose_name = "API key"
        constraints = [
            # A token's beginning finds one row, so signing in is one comparison, always.
            models.UniqueConstraint(fields=["prefix"], name="api_key_prefix_unique"),
            # Revocation has a time, and nothing else has one.
            models.CheckConstraint(
                condition=Q(status="active", revoked_at__isnull=True) | Q(status="revoked", revoked_at__isnull=False),
                name="api_key_revoked_at",
            ),
            # A key without scopes would be a key that nothing bounds, or nothing helps: neither is meant.
            models.CheckConstraint(condition=Q(scopes__len__gte=1), name="api_key_has_scopes"),
        ]
        indexes = [
            # keys/list: the tenant's, and one principal's, newest first.
            models.Index(F("tenant"), F("created_at").desc(), F("id").desc(), name="api_key_newest"),
            models.Index(F("principal"), F("created_at").desc(), F("id").desc(), name="api_key_of_principal"),
        ]

    def __str__(self) -> str:
        return f"{self.prefix}… ({self.id})"


class Policy(models.Model):
    """A named policy of a tenant. The row stays after a delete, so that version numbers go on and old ones are read."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="policies")
    name = models.CharField(max_length=63)
    version = models.BigIntegerField()
    deleted_at = models.BigIntegerField(null=True, blank=True)
    created_at = models.BigIntegerField()
    created_by = models.CharField(max_length=128)
    updated_at = models.BigIntegerField()
    updated_by = models.CharField(max_length=128)

    class Meta:
        verbose_name_plural = "policies"
        constraints = [
            # A name means one policy in its tenant; two puts at once become two versions, not two policies.
            models.UniqueConstraint(fields=["tenant", "name"], name="policy_name_unique"),
        ]

    def __str__(self) -> str:
        return f"{self.tenant_id}/{self.name}"


class PolicyVersion(models.Model):
    """One text of a policy, never changed. ``statements`` is ``[{id, effect, line}]``, as the scanner found them."""

    policy = models.ForeignKey(Policy, on_delete=models.PROTECT, related_name="versions")
    version = models.BigIntegerField()
    text = models.TextField()
    statements = models.JSONField()
    created_at = models.BigIntegerField()
    created_by = models.CharField(max_length=128)

    class Meta:
        constraints = [
            # A version number names one text for ever: audit entries refer to it.
            models.UniqueConstraint(fields=["policy", "version"], name="policy_version_unique"),
        ]

    def __str__(self) -> str:
        return f"{self.policy} v{self.version}"


class Decision(models.Model):
    """One entry of the audit log (IAM-3, IAM-7): written once, never changed, bound to no other row.

    ``tenant_id`` is the caller's tenant, whose administrators can look the entry up. ``subject`` is what the principal
    and its ceilings were at that moment (roles, groups, scopes, …), so that the decision can be made again.
    """

    id = models.CharField(primary_key=True, max_length=64)
    tenant_id = models.CharField(max_length=128)
    at = models.BigIntegerField()
    principal_id = models.CharField(max_length=64)
    principal_kind = models.CharField(max_length=16)
    agent_id = models.CharField(max_length=64, default="", blank=True)
    delegation_id = models.CharField(max_length=64, default="", blank=True)
    key_id = models.CharField(max_length=64, default="", blank=True)
    subject = models.JSONField(default=dict)
    action = models.CharField(max_length=96)
    resource_type = models.CharField(max_length=64)
    resource_id = models.CharField(max_length=300)
    attributes = models.JSONField()
    context = models.JSONField()
    outcome = models.CharField(max_length=8)
    reason = models.CharField(max_length=32)
    policies = models.JSONField(default=list)
    errors = models.JSONField(default=list)
    request_id = models.CharField(max_length=128, default="", blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(outcome__in=["allow", "deny"]), name="decision_outcome_known"),
        ]
        indexes = [
            # A tenant's log, newest first: lists, and the last decisions that policies/test decides again.
            models.Index(F("tenant_id"), F("at").desc(), F("id").desc(), name="decision_newest"),
            # "Give the request id to your administrator": it finds the entry at once.
            models.Index(fields=["tenant_id", "request_id"], name="decision_request"),
        ]

    def __str__(self) -> str:
        return f"{self.outcome} {self.action} ({self.id})"
