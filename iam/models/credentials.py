"""API keys, delegations and the sessions assumed under them."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q

from iam.models.people import Principal, Tenant


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


class Delegation(models.Model):
    """What a user lets an agent do in their name, for how long, and what of it they want to confirm (IAM-5).

    It never changes but to end: who wants another one grants another one. One past ``expires_at`` is expired whatever
    ``status`` says.
    """

    id = models.CharField(primary_key=True, max_length=64)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="delegations")
    user = models.ForeignKey(Principal, on_delete=models.PROTECT, related_name="delegations_given")
    agent = models.ForeignKey(Principal, on_delete=models.PROTECT, related_name="delegations_held")
    name = models.CharField(max_length=128, default="", blank=True)
    scopes = ArrayField(models.CharField(max_length=96))
    confirm = ArrayField(models.CharField(max_length=96), default=list, blank=True)
    status = models.CharField(max_length=16, default="active")
    created_at = models.BigIntegerField()
    expires_at = models.BigIntegerField()
    revoked_at = models.BigIntegerField(null=True, blank=True)
    revoked_by = models.CharField(max_length=128, default="", blank=True)
    revoke_reason = models.CharField(max_length=128, default="", blank=True)

    class Meta:
        constraints = [
            # Revocation has a time, and nothing else has one.
            models.CheckConstraint(
                condition=Q(status="active", revoked_at__isnull=True) | Q(status="revoked", revoked_at__isnull=False),
                name="delegation_revoked_at",
            ),
            # Without scopes it would delegate nothing, and be mistaken for one that bounds nothing.
            models.CheckConstraint(condition=Q(scopes__len__gte=1), name="delegation_has_scopes"),
            # Nobody is their own agent.
            models.CheckConstraint(condition=~Q(user=F("agent")), name="delegation_of_two"),
        ]
        indexes = [
            # delegations/list: the tenant's, a user's, an agent's, newest first.
            models.Index(F("tenant"), F("created_at").desc(), F("id").desc(), name="delegation_newest"),
            models.Index(F("user"), F("created_at").desc(), F("id").desc(), name="delegation_of_user"),
            models.Index(F("agent"), F("created_at").desc(), F("id").desc(), name="delegation_of_agent"),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.id})" if self.name else self.id


class DelegatedSession(models.Model):
    """A bearer credential with which an agent acts for a user (IAM-5). Token and prefix are as in ApiKey.

    It works while its delegation, its user, its agent, the agent's sponsor and the key that assumed it are all good;
    ``ended_at`` ends it for good where one of these comes back (an agent that is resumed).
    """

    id = models.CharField(primary_key=True, max_length=64)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    delegation = models.ForeignKey(Delegation, on_delete=models.PROTECT, related_name="sessions")
    key = models.ForeignKey(ApiKey, on_delete=models.PROTECT, related_name="sessions")
    prefix = models.CharField(max_length=12)
    token_hash = models.CharField(max_length=64)
    scopes = ArrayField(models.CharField(max_length=96))
    created_at = models.BigIntegerField()
    expires_at = models.BigIntegerField()
    ended_at = models.BigIntegerField(null=True, blank=True)

    class Meta:
        constraints = [
            # A token's beginning finds one row, so signing in is one comparison, always.
            models.UniqueConstraint(fields=["prefix"], name="delegated_session_prefix_unique"),
            models.CheckConstraint(condition=Q(scopes__len__gte=1), name="delegated_session_has_scopes"),
            # An hour at most (IAM-5).
            models.CheckConstraint(
                condition=Q(expires_at__lte=F("created_at") + 3_600_000), name="delegated_session_one_hour"
            ),
        ]
        indexes = [
            # Ending those of an agent or a user, and forgetting those long over.
            models.Index(fields=["delegation"], name="delegated_session_open", condition=Q(ended_at__isnull=True)),
            models.Index(fields=["expires_at"], name="delegated_session_expiry"),
        ]

    def __str__(self) -> str:
        return f"{self.prefix}… ({self.id})"
