"""The least that a Django view behind the same server could do: read a JSON body, insert one row, answer.

Served like the product (granian, the ASGI wrapper, threads); what a create costs beside it is the product's own.
"""

import json

from django.db import connection
from django.http import HttpRequest, JsonResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt


@csrf_exempt
def insert(request: HttpRequest) -> JsonResponse:
    """One row, one commit."""
    body = json.loads(request.body)
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO bench_row (body) VALUES (%s) RETURNING id", [body["idempotencyKey"]])
        return JsonResponse({"id": cursor.fetchone()[0]})


urlpatterns = [path("bare", insert)]
