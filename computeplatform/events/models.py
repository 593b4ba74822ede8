"""The outbox. An event row is also the history entry of its subject."""

from django.db import models
from django.db.models import F, Q


class Event(models.Model):
    """One thing that happened. ``sequence`` is stamped after commit, without gaps per tenant (EVT-1)."""

    id = models.CharField(primary_key=True, max_length=64)
    type = models.CharField(max_length=64)
    tenant_id = models.CharField(max_length=128)
    at = models.BigIntegerField(help_text="Epoch milliseconds")
    subject_type = models.CharField(max_length=32)
    subject_id = models.CharField(max_length=128)
    subject_version = models.BigIntegerField()
    reason = models.CharField(max_length=64, blank=True)
    actor_id = models.CharField(max_length=128)
    agent_id = models.CharField(max_length=128, blank=True)
    request_id = models.CharField(max_length=128, blank=True)
    data = models.JSONField(default=dict)
    sequence = models.BigIntegerField(null=True)
    # Insertion order: of two events of one subject and version, the one written first comes first.
    position = models.BigIntegerField(
        db_default=models.Func(models.Value("compute_event_position"), function="nextval")
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant_id", "sequence"], name="event_sequence_unique"),
        ]
        indexes = [
            # The stamper's work list: empty when there is nothing to do, however long the history.
            models.Index(fields=["position"], name="event_unstamped", condition=Q(sequence=None)),
            models.Index(F("subject_type"), F("subject_id"), F("subject_version"), name="event_of_subject"),
        ]

    def __str__(self) -> str:
        return f"{self.type} {self.subject_id}"


class TenantSequence(models.Model):
    """The last number given to an event of a tenant. Only the stamper writes it."""

    tenant_id = models.CharField(primary_key=True, max_length=128)
    last = models.BigIntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.tenant_id}: {self.last}"
