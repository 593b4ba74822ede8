"""What describes the API: the OpenAPI document, its pages, the index of methods, the pages of codes (API-8)."""

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views import defaults
from django.views.decorators.csrf import csrf_exempt

from computeplatform.api.envelope import refuse_plainly
from computeplatform.api.methods import index
from computeplatform.api.openapi import document
from computeplatform.errors import CODES, InternalError, InvalidInput, MethodNotAllowed, NotFound

View = Callable[..., HttpResponse]


def document_page(view: View) -> View:
    """A page that is only read; another HTTP method is refused in the API's own envelope.

    Exempt from the forgery check, whose own answer would come first: nothing here acts on a cookie.
    """

    @csrf_exempt
    @wraps(view)
    def answer(request: HttpRequest, **named: Any) -> HttpResponse:
        if request.method in ("GET", "HEAD"):
            return view(request, **named)
        refusal = refuse_plainly(request, MethodNotAllowed())
        refusal["Allow"] = "GET, HEAD"
        return refusal

    return answer


@lru_cache(maxsize=1)
def _document() -> dict[str, object]:
    return document()


@document_page
def openapi(request: HttpRequest) -> HttpResponse:
    """``GET /api/openapi.json``."""
    return JsonResponse(_document())


@document_page
def method_index(request: HttpRequest) -> HttpResponse:
    """``GET /api/methods``."""
    return JsonResponse({"data": {"methods": index()}})


@document_page
def code_page(request: HttpRequest, code: str) -> HttpResponse:
    """The page that an error's ``docs`` names."""
    if code not in CODES:
        return refuse_plainly(request, NotFound("There is no such code."))
    return render(request, "computeplatform/code.html", {"code": CODES[code], "codes": CODES.values()})


@csrf_exempt
def unknown_address(request: HttpRequest, rest: str = "") -> HttpResponse:
    """Any other address under ``/api/``."""
    return refuse_plainly(request, NotFound("No such address; GET /api/methods lists the methods."))


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django's ``handler400``: what is refused before any view sees it, such as a host that is not ours."""
    if not request.path.startswith("/api/"):
        return defaults.bad_request(request, exception)
    return refuse_plainly(
        request, InvalidInput.at("", "the request is malformed, or for a host that is not served here")
    )


def server_error(request: HttpRequest) -> HttpResponse:
    """Django's ``handler500``: a fault outside every view."""
    return (
        refuse_plainly(request, InternalError()) if request.path.startswith("/api/") else defaults.server_error(request)
    )
