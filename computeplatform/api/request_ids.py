"""Request ids: accepted or made, echoed, logged, stored on what the request created (API-6)."""

from collections.abc import Callable

import structlog
from django.http import HttpRequest, HttpResponse

from computeplatform.api.envelope import META_KEY, refuse_plainly
from computeplatform.api.fields import TENANT_ID as REQUEST_ID  # the contract gives both the same form
from computeplatform.ids import new_id


class RequestIdMiddleware:
    """Puts the id into ``request.META`` and binds it to every log line, and to the tasks that the request wakes."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        given = request.META.get("HTTP_X_REQUEST_ID", "")
        request_id = given if REQUEST_ID.match(given) else new_id("req")
        request.META[META_KEY] = request_id
        # What logs the request below us reads the header; it must not log what we have not accepted.
        request.META["HTTP_X_REQUEST_ID"] = request_id
        if request.path.startswith("/api/"):
            # No cookie is accepted there (API-2), so none gets there: a session would be looked up just for the log.
            request.META.pop("HTTP_COOKIE", None)
        with structlog.contextvars.bound_contextvars(request_id=request_id):
            response = self.get_response(request)
        response["X-Request-Id"] = request_id
        return response

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        """A fault outside DRF (its own views answer for themselves) is answered in the same envelope."""
        return refuse_plainly(request, error) if request.path.startswith("/api/") else None
