"""Bearer tokens and nothing else (API-2): no cookie, no session, no query parameter."""

from dataclasses import dataclass
from typing import Any

from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from computeplatform.api.calls import Caller, authenticate_port
from computeplatform.api.throttling import limit_failed_sign_in
from computeplatform.clock import compute_now
from computeplatform.errors import Unauthenticated
from computeplatform.parking import resume_of


@dataclass(frozen=True)
class SignedIn:
    """Who called, and when: the one reading of the clock that the whole call uses."""

    caller: Caller
    now: int


class BearerAuthentication(BaseAuthentication):
    """Hands the token to the ``authenticate`` port; the request's ``auth`` is a SignedIn.

    A token that is refused counts for the address that it came from, a good one never does (API-12). A parked call
    whose credential has been revoked meanwhile is no attempt to guess one.
    """

    def authenticate(self, request: Request) -> tuple[Any, Any]:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise Unauthenticated("Send 'Authorization: Bearer <token>'.")
        now = compute_now()
        address = request.META.get("REMOTE_ADDR")
        try:
            caller = authenticate_port()(token.strip(), now=now, source_ip=address)
        except Unauthenticated:
            if resume_of(request.META) is None:
                limit_failed_sign_in(address, now=now)
            raise
        return caller, SignedIn(caller, now)

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"
