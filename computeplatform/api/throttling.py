"""How often a caller may call, and how often an address may fail to sign in (API-12, API-7)."""

from typing import Any

from django.conf import settings
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from computeplatform.addresses import network_of
from computeplatform.api.calls import Caller
from computeplatform.errors import RateLimited
from computeplatform.limits import Bucket, limiter
from computeplatform.parking import resume_of


class CallLimits(BaseThrottle):
    """Asked by DRF between the credential and the body; a parked call was counted when it came."""

    def allow_request(self, request: Request, view: object) -> bool:
        if resume_of(request.META) is None:
            signed_in: Any = request.auth
            limit_call(signed_in.caller, now=signed_in.now)
        return True


def limit_call(caller: Caller, *, now: int) -> None:
    """Count a call of this caller; raises RateLimited, and counts nothing, where key or tenant has made too many.

    What a delegated session does counts for the key that assumed it.
    """
    limits = settings.COMPUTE_LIMITS
    shortage = limiter.take(
        Bucket("key", caller.key_id, caller.requests_per_minute or limits["key"]),
        Bucket("tenant", caller.tenant_id, limits["tenant"]),
        now=now,
    )
    if shortage:
        whose = "This key" if shortage.bucket.kind == "key" else "The tenant, with all its keys,"
        raise RateLimited(
            f"{whose} may make {shortage.bucket.per_minute} calls a minute.",
            reason=f"{shortage.bucket.kind}-limit",
            retry_after_seconds=shortage.seconds,
        )


def limit_failed_sign_in(address: str | None, *, now: int) -> None:
    """Count a credential that was refused; raises RateLimited where this address has presented too many."""
    shortage = limiter.take(Bucket("address", network_of(address), settings.COMPUTE_LIMITS["address"]), now=now)
    if shortage:
        raise RateLimited(
            "Too many credentials from this address were refused.",
            reason="failed-sign-ins",
            retry_after_seconds=shortage.seconds,
        )
