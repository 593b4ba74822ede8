"""What people were asked to confirm, and what became of it (IAM-6)."""

from django.db import models
from django.db.models import F, Q

from iam.models.credentials import Delegation
from iam.models.people import Principal, Tenant


class Confirmation(models.Model):
    """One question to a user: may this agent do this in your name?

    ``digest`` is what an approval is bound to, ``asked`` what the person was shown of it. ``state`` is what was last
    written; time and the end of the delegation end a confirmation without a write, so read it with
    ``iam.domain.confirming.effective``. ``expires_at`` is the end of the 30 minutes to decide, and once approved that
    of the 30 minutes to use it.
    """

    id = models.CharField(primary_key=True, max_length=64)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    user = models.ForeignKey(Principal, on_delete=models.PROTECT, related_name="confirmations")
    agent = models.ForeignKey(Principal, on_delete=models.PROTECT, related_name="+")
    delegation = models.ForeignKey(Delegation, on_delete=models.PROTECT, related_name="confirmations")
    action = models.CharField(max_length=96)
    resource_type = models.CharField(max_length=64)
    resource_id = models.CharField(max_length=128)
    asked = models.JSONField()
    digest = models.CharField(max_length=64)
    estimated_cost = models.DecimalField(max_digits=32, decimal_places=4)
    currency = models.CharField(max_length=8, blank=True)
    state = models.CharField(max_length=16, default="pending")
    created_at = models.BigIntegerField()
    expires_at = models.BigIntegerField()
    decided_at = models.BigIntegerField(null=True, blank=True)
    decide_reason = models.CharField(max_length=128, default="", blank=True)
    used_at = models.BigIntegerField(null=True, blank=True)
    # The decision that it turned into an allow.
    decision_id = models.CharField(max_length=64, default="", blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(state__in=["pending", "approved", "refused", "lapsed", "used", "void"]),
                name="confirmation_state_known",
            ),
            # Used once, by one decision, and nothing else is.
            models.CheckConstraint(
                condition=Q(state="used", used_at__isnull=False) & ~Q(decision_id="")
                | ~Q(state="used") & Q(used_at__isnull=True, decision_id=""),
                name="confirmation_used_by_decision",
            ),
            # An answer has a time.
            models.CheckConstraint(
                condition=~Q(state__in=["approved", "refused", "used"]) | Q(decided_at__isnull=False),
                name="confirmation_answer_has_time",
            ),
            # The same question asked again while pending is the same confirmation.
            models.UniqueConstraint(
                fields=["delegation", "action", "resource_id", "digest"],
                condition=Q(state="pending"),
                name="confirmation_pending_once",
            ),
        ]
        indexes = [
            # confirmations/list: a user's, the tenant's, newest first.
            models.Index(F("user"), F("created_at").desc(), F("id").desc(), name="confirmation_of_user"),
            models.Index(F("tenant"), F("created_at").desc(), F("id").desc(), name="confirmation_newest"),
            # What was asked about one thing, the latest first.
            models.Index(F("resource_id"), F("created_at").desc(), name="confirmation_of_resource"),
        ]

    def __str__(self) -> str:
        return f"{self.action} on {self.resource_id} ({self.id})"
