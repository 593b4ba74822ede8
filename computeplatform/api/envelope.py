"""The one mapper from exceptions to the RPC wire (API-1, API-3, API-7)."""

from typing import Any

import structlog
from django.db import DatabaseError, InterfaceError, OperationalError
from django.http import Http404, HttpRequest, JsonResponse
from rest_framework import exceptions as drf
from rest_framework.response import Response
from rest_framework.views import set_rollback

from computeplatform.db.retry import sqlstate
from computeplatform.errors import (
    InternalError,
    InvalidInput,
    MethodNotAllowed,
    NotFound,
    Refusal,
    TryAgain,
    Unavailable,
    Unsupported,
    UnsupportedMediaType,
)

log = structlog.get_logger(__name__)

# Where the request carries its id (API-6).
META_KEY = "compute.request_id"
DOCS_PATH = "/api/docs/errors/"
# A standby answers while another server becomes the first one (read_only_sql_transaction); the server ended a
# transaction that a stalled process had left open (idle_in_transaction_session_timeout).
_AWAY = {"25006", "25P03"}


def as_refusal(error: Exception) -> Refusal:
    """The refusal that an exception amounts to; an unexpected one becomes INTERNAL_ERROR and is logged."""
    match error:
        case Refusal():
            return error
        case Http404():
            return NotFound("No such address; GET /api/methods lists the methods.")
        case drf.MethodNotAllowed():
            return MethodNotAllowed()
        case drf.UnsupportedMediaType():
            return UnsupportedMediaType()
        case drf.NotAcceptable():
            return Unsupported("This address answers in another media type than those that Accept names.")
        case drf.ParseError():
            return InvalidInput.at("", str(error.detail))
        case OperationalError() | InterfaceError():
            log.warning("database_unavailable", error=str(error))
            return Unavailable("The database is away or too busy just now.")
        case DatabaseError() if sqlstate(error) in _AWAY:
            log.warning("database_unavailable", error=str(error))
            return Unavailable("The database is away or too busy just now.")
        case TryAgain():
            log.warning("lost_every_race", error=str(error))
            return Unavailable("Others change the same objects all the time just now.")
        case _:
            log.error("unexpected_error", exc_info=error)
            return InternalError()


def error_body(refusal: Refusal, *, request_id: str, base_url: str) -> dict[str, Any]:
    """``{"error": …}`` of API-1, members in the order in which a person reads them."""
    error: dict[str, Any] = {"code": refusal.code, "message": refusal.message}
    if refusal.details:
        error["details"] = refusal.details
    if refusal.retry_after_seconds is not None:
        error["retryAfterSeconds"] = refusal.retry_after_seconds
    error["requestId"] = request_id
    error["fix"] = refusal.advice
    error["docs"] = f"{base_url}{DOCS_PATH}{refusal.code}"
    return {"error": error}


def error_headers(refusal: Refusal) -> dict[str, str]:
    """Headers that go with a refusal, whatever the wire format."""
    headers = {}
    if refusal.retry_after_seconds is not None:
        headers["Retry-After"] = str(refusal.retry_after_seconds)
    if refusal.code == "UNAUTHENTICATED":
        headers["WWW-Authenticate"] = "Bearer"
    return headers


def refuse(error: Exception, context: dict[str, Any]) -> Response:
    """DRF's exception handler."""
    request = context["request"]
    set_rollback()
    refusal = as_refusal(error)
    body = error_body(refusal, request_id=request_id_of(request), base_url=base_url(request))
    return Response(body, status=refusal.status, headers=error_headers(refusal))


def refuse_plainly(request: HttpRequest, error: Exception) -> JsonResponse:
    """The same answer outside DRF: an unknown address, a fault in a middleware."""
    refusal = as_refusal(error)
    body = error_body(refusal, request_id=request_id_of(request), base_url=base_url(request))
    return JsonResponse(body, status=refusal.status, headers=error_headers(refusal))


def request_id_of(request: Any) -> str:
    """The id that the middleware accepted or made."""
    return str(request.META.get(META_KEY, ""))


def base_url(request: Any) -> str:
    """The address under which the caller reached us; a Host that is not allowed gives none."""
    try:
        return str(request.build_absolute_uri("/")).rstrip("/")
    except Exception:  # noqa: BLE001 - DisallowedHost must not hide the refusal that is being answered
        return ""
