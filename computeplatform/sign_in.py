"""The operators' sign-in form: passwords can be guessed, so failed attempts are limited, by address and by name."""

import hashlib
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from unfold.forms import AuthenticationForm

from computeplatform.addresses import network_of
from computeplatform.clock import compute_now
from computeplatform.limits import Bucket, limiter


class SignInForm(AuthenticationForm):  # type: ignore[misc]  # it has no types
    """An attempt counts before the password is looked at, and no longer once it was right.

    Otherwise guesses that are made at the same moment would all be let through, and a right one would be told from
    the wrong ones even over the limit. So while somebody guesses at a name, nobody signs in under it; who has signed
    in works on.
    """

    def clean(self) -> dict[str, Any]:
        name, password = self.cleaned_data.get("username"), self.cleaned_data.get("password")
        if not name or not password:
            return dict(super().clean())
        buckets, now = self._buckets(name), compute_now()
        if shortage := limiter.take(*buckets, now=now):
            raise ValidationError(
                f"Too many failed sign-ins. Try again in {shortage.seconds} seconds.", code="too-many-failed-sign-ins"
            )
        cleaned: dict[str, Any] = super().clean()
        limiter.give_back(*buckets, now=now)
        return cleaned

    def _buckets(self, name: str) -> tuple[Bucket, Bucket]:
        limits = settings.COMPUTE_LIMITS
        address = self.request.META.get("REMOTE_ADDR") if self.request else None
        # What was typed may be anything, a password too: Redis gets a digest.
        digest = hashlib.sha256(name.casefold().encode()).hexdigest()
        return (
            Bucket("operator", digest, limits["operator"]),
            Bucket("operator-address", network_of(address), limits["operator-address"]),
        )
