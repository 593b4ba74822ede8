"""The Content-Security-Policy of an answer, by the path that was asked for."""

from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest, HttpResponse


def content_security_policy(
    get_response: Callable[[HttpRequest], HttpResponse],
) -> Callable[[HttpRequest], HttpResponse]:
    """Middleware: the longest prefix in `CONTENT_SECURITY_POLICIES` decides, unless the view has set its own policy."""
    policies = sorted(settings.CONTENT_SECURITY_POLICIES.items(), key=lambda item: -len(item[0]))

    def middleware(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        policy = next(policy for prefix, policy in policies if request.path.startswith(prefix))
        response.headers.setdefault("Content-Security-Policy", policy)
        return response

    return middleware
