"""What describes the API: the OpenAPI document, its pages, the index of methods, the pages of codes (API-8)."""

from functools import lru_cache

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from computeplatform.api.envelope import refuse_plainly
from computeplatform.api.methods import index
from computeplatform.api.openapi import document
from computeplatform.errors import CODES, NotFound


@lru_cache(maxsize=1)
def _document() -> dict[str, object]:
    return document()


@require_safe
def openapi(request: HttpRequest) -> HttpResponse:
    """``GET /api/openapi.json``."""
    return JsonResponse(_document())


@require_safe
def method_index(request: HttpRequest) -> HttpResponse:
    """``GET /api/methods``."""
    return JsonResponse({"data": {"methods": index()}})


@require_safe
def code_page(request: HttpRequest, code: str) -> HttpResponse:
    """The page that an error's ``docs`` names."""
    if code not in CODES:
        return refuse_plainly(request, NotFound("There is no such code."))
    return render(request, "computeplatform/code.html", {"code": CODES[code], "codes": CODES.values()})


def unknown_address(request: HttpRequest, rest: str = "") -> HttpResponse:
    """Any other address under ``/api/``."""
    return refuse_plainly(request, NotFound("No such address; GET /api/methods lists the methods."))
