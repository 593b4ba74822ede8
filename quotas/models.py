"""The ledger's two tables: what each tenant may use of each pool, and what each reservation was charged."""

from django.db import models
from django.db.models import F, Q


class Quota(models.Model):
    """``max`` and ``used`` of one resource (QTA-1). ``used`` is written by charges and refunds alone."""

    id = models.CharField(primary_key=True, max_length=64, help_text="Derived from tenant, pool and resource")
    tenant_id = models.CharField(max_length=128)
    pool_id = models.CharField(max_length=128)
    resource = models.CharField(max_length=64)
    max = models.BigIntegerField()
    used = models.BigIntegerField(default=0)
    version = models.BigIntegerField(default=1, help_text="Rises when max changes")

    class Meta:
        constraints = [
            # One row per key: a charge and a new maximum meet in the same row, whose lock orders them.
            models.UniqueConstraint(fields=["tenant_id", "pool_id", "resource"], name="quota_key_unique"),
            # A refund never gives back more than was charged.
            models.CheckConstraint(condition=Q(used__gte=0), name="quota_used_not_negative"),
            models.CheckConstraint(condition=Q(max__gte=0), name="quota_max_not_negative"),
        ]
        indexes = [
            # A pool's owner looks at its borrowers; the invariants walk a pool.
            models.Index(fields=["pool_id", "tenant_id"], name="quota_of_pool"),
        ]

    def __str__(self) -> str:
        return f"{self.tenant_id} {self.pool_id} {self.resource}: {self.used}/{self.max}"


class Charge(models.Model):
    """One line of the ledger. It is live until refunded and is never deleted or changed otherwise."""

    reservation_id = models.CharField(max_length=64)
    tenant_id = models.CharField(max_length=128)
    pool_id = models.CharField(max_length=128)
    resource = models.CharField(max_length=64)
    amount = models.BigIntegerField()
    charged_at = models.BigIntegerField(help_text="Epoch milliseconds")
    refunded_at = models.BigIntegerField(null=True, help_text="Epoch milliseconds; empty while the line is live")

    class Meta:
        constraints = [
            # Charged at most once at a time, whoever retries what after which crash (CRE-1).
            models.UniqueConstraint(
                fields=["reservation_id", "resource"], name="charge_live_unique", condition=Q(refunded_at=None)
            ),
            # A line says something: nothing is charged by a line of 0, and nothing is given back by a negative one.
            models.CheckConstraint(condition=Q(amount__gt=0), name="charge_amount_positive"),
            # Time does not run backwards within a line.
            models.CheckConstraint(
                condition=Q(refunded_at=None) | Q(refunded_at__gte=F("charged_at")), name="charge_refund_after_charge"
            ),
        ]
        indexes = [
            # What `used` must be the sum of: only live lines, however long the history (REC-5).
            models.Index(
                fields=["pool_id", "tenant_id", "resource"], name="charge_live_of_quota", condition=Q(refunded_at=None)
            ),
        ]

    def __str__(self) -> str:
        return f"{self.reservation_id} {self.resource} {self.amount}"
