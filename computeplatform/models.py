"""The kernel's tables, gathered for Django."""

from django.db import models

from computeplatform.events.models import Event, TenantSequence

__all__ = ["Event", "IdempotencyKey", "ServiceGap", "TenantSequence", "Tick"]


class IdempotencyKey(models.Model):
    """What a creating mutation's key stands for (API-11)."""

    tenant_id = models.CharField(max_length=128)
    identity = models.CharField(max_length=260)
    method = models.CharField(max_length=128)
    key = models.CharField(max_length=128)
    digest = models.CharField(max_length=64)
    object_id = models.CharField(max_length=300)
    created_at = models.BigIntegerField()

    class Meta:
        constraints = [
            # One object per key: the second of two calls at once waits here for the first.
            models.UniqueConstraint(fields=["tenant_id", "identity", "method", "key"], name="idempotency_key_unique"),
        ]

    def __str__(self) -> str:
        return f"{self.method} {self.key}"


class Tick(models.Model):
    """When a periodic loop last ran; readiness looks at it (API-9), and gaps in service are read from it."""

    name = models.CharField(primary_key=True, max_length=64)
    last_at = models.BigIntegerField()

    def __str__(self) -> str:
        return self.name


class ServiceGap(models.Model):
    """A time in which we did not run: silence in it is ours, and counts for nobody's deadline (REC-8).

    All times are epoch milliseconds.
    """

    began_at = models.BigIntegerField()
    ended_at = models.BigIntegerField()

    class Meta:
        constraints = [
            # Two loops that notice the same gap note it once.
            models.UniqueConstraint(fields=["began_at"], name="gap_noted_once"),
            models.CheckConstraint(condition=models.Q(ended_at__gt=models.F("began_at")), name="gap_not_empty"),
        ]
        indexes = [
            # Whoever judges a deadline asks for the latest ones.
            models.Index(fields=["ended_at"], name="gap_latest"),
        ]

    def __str__(self) -> str:
        return f"gap {self.pk}"
