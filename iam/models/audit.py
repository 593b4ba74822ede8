"""The audit log: decisions, and the sealed batches that chain them (IAM-7)."""

from django.db import models
from django.db.models import F, Q


class Decision(models.Model):
    """One entry of the audit log (IAM-3, IAM-7): written once, never changed, bound to no other row.

    The database refuses to change or remove one; only whole exported batches can be pruned (migration 0003).
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
    # SHA-256 of the content, taken when it is written; "" on entries of the release before, until they are sealed.
    digest = models.CharField(max_length=64, db_default="", default="", blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(outcome__in=["allow", "deny"]), name="decision_outcome_known"),
        ]
        indexes = [
            # A tenant's log, newest first: lists, and the last decisions that policies/test decides again.
            models.Index(F("tenant_id"), F("at").desc(), F("id").desc(), name="decision_newest"),
            # "Give the request id to your administrator": it finds the entry at once.
            models.Index(fields=["tenant_id", "request_id"], name="decision_request"),
            # "Who decided what on this reservation", and "what did this person or agent do", months later.
            models.Index(F("tenant_id"), F("resource_id"), F("at").desc(), F("id").desc(), name="decision_of_resource"),
            models.Index(
                F("tenant_id"), F("principal_id"), F("at").desc(), F("id").desc(), name="decision_of_principal"
            ),
            # What an agent did in other people's names; its own calls are a principal's.
            models.Index(
                F("tenant_id"),
                F("agent_id"),
                F("at").desc(),
                F("id").desc(),
                name="decision_of_agent",
                condition=~Q(agent_id=""),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.outcome} {self.action} ({self.id})"


class UnsealedDecision(models.Model):
    """An entry that no batch holds yet. A trigger writes the row with the entry, so none can be missed (IAM-7).

    It repeats what the entry said of itself at that moment, so that a change before the sealing shows too.
    """

    decision_id = models.CharField(primary_key=True, max_length=64)
    tenant_id = models.CharField(max_length=128)
    at = models.BigIntegerField()
    digest = models.CharField(max_length=64, blank=True)

    class Meta:
        indexes = [
            # The sealer's work, the oldest first.
            models.Index(fields=["at", "decision_id"], name="unsealed_decision_oldest"),
        ]

    def __str__(self) -> str:
        return self.decision_id


class DecisionBatch(models.Model):
    """A sealed batch of one tenant's entries: ``hash`` covers ``previous`` and every entry, in order (IAM-7).

    ``entries`` is ``[[id, digest]]``; it stays when the entries themselves are pruned: the checkpoint. The database
    lets nothing of a batch change but the columns of its export, once (migration 0003).
    """

    tenant_id = models.CharField(max_length=128)
    number = models.BigIntegerField()
    entries = models.JSONField()
    first_at = models.BigIntegerField()
    last_at = models.BigIntegerField()
    previous = models.CharField(max_length=64, blank=True)
    hash = models.CharField(max_length=64)
    sealed_at = models.BigIntegerField()
    # The name of the file that the batch was written to, its SHA-256, and when its entries were removed.
    exported_to = models.CharField(max_length=256, default="", blank=True)
    export_hash = models.CharField(max_length=64, default="", blank=True)
    pruned_at = models.BigIntegerField(null=True, blank=True)

    class Meta:
        verbose_name_plural = "decision batches"
        constraints = [
            # One chain per tenant, without a fork.
            models.UniqueConstraint(fields=["tenant_id", "number"], name="decision_batch_number_unique"),
            # Only what was exported is removed.
            models.CheckConstraint(
                condition=Q(pruned_at__isnull=True) | ~Q(exported_to=""), name="decision_batch_pruned_is_exported"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.tenant_id} #{self.number}"
