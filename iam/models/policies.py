"""Policies and every text that they ever had."""

from django.db import models

from iam.models.people import Tenant


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
    """One text of a policy, never changed. ``statements`` is ``[{id, effect, line}]``, as the scanner found them.

    ``words`` is how many words the text has: what it costs to keep it parsed and to evaluate it. 0 on texts of the
    release before, which did not count.
    """

    policy = models.ForeignKey(Policy, on_delete=models.PROTECT, related_name="versions")
    version = models.BigIntegerField()
    text = models.TextField()
    statements = models.JSONField()
    words = models.IntegerField(db_default=0, default=0)
    created_at = models.BigIntegerField()
    created_by = models.CharField(max_length=128)

    class Meta:
        constraints = [
            # A version number names one text for ever: audit entries refer to it.
            models.UniqueConstraint(fields=["policy", "version"], name="policy_version_unique"),
        ]

    def __str__(self) -> str:
        return f"{self.policy} v{self.version}"
