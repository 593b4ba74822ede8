"""Tenants, their principals, and the operators who sign in to the admin."""

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
    # Suspended with ``endReservations``: what it has reserved ends as long as this stands (OPS-4).
    end_reservations = models.BooleanField(db_default=False, default=False)
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
            # An agent's sponsor: their agents, listed and suspended together.
            models.Index(fields=["sponsor"], name="principal_of_sponsor", condition=Q(sponsor__isnull=False)),
            # The few whose reservations end.
            models.Index(fields=["id"], name="principal_end_reservations", condition=Q(end_reservations=True)),
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
