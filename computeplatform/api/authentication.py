"""Bearer tokens and nothing else (API-2): no cookie, no session, no query parameter."""

from dataclasses import dataclass
from typing import Any

from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from computeplatform.api.calls import Caller, authenticate_port
from computeplatform.clock import compute_now
from computeplatform.errors import Unauthenticated


@dataclass(frozen=True)
class SignedIn:
    """Who called, and when: the one reading of the clock that the whole call uses."""

    caller: Caller
    now: int


class BearerAuthentication(BaseAuthentication):
    """Hands the token to the ``authenticate`` port; the request's ``auth`` is a SignedIn."""

    def authenticate(self, request: Request) -> tuple[Any, Any]:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise Unauthenticated("Send 'Authorization: Bearer <token>'.")
        now = compute_now()
        caller = authenticate_port()(token.strip(), now=now, source_ip=request.META.get("REMOTE_ADDR"))
        return caller, SignedIn(caller, now)

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"
