"""The URL map: every declared method, the documents, the probes, the admin."""

from django.contrib import admin
from django.urls import URLPattern, URLResolver, path, re_path
from drf_spectacular.views import SpectacularSwaggerSplitView

import fleet.api
import iam.api
import reservations.api
from computeplatform.api import documents, event_methods, health
from computeplatform.api.methods import methods
from computeplatform.api.view import view_of
from computeplatform.metrics import metrics

# Importing these declares their methods.
DECLARING = (event_methods, iam.api, fleet.api, reservations.api)

urlpatterns: list[URLPattern | URLResolver] = [
    *(path(m.path, view_of(m), name=f"{m.service}/{m.id}") for m in methods()),
    path("api/methods", documents.method_index),
    path("api/openapi.json", documents.openapi, name="openapi"),
    path("api/docs", SpectacularSwaggerSplitView.as_view(url_name="openapi"), name="docs"),
    path("api/docs/errors/<str:code>", documents.code_page, name="code"),
    re_path(r"^api/(?P<rest>.*)$", documents.unknown_address),
    path("healthz", health.healthz),
    path("readyz", health.readyz),
    path("metrics", metrics),
    path("admin/", admin.site.urls),
]

# For addresses under /api/ these answer in the API's envelope too (API-1).
handler400 = documents.bad_request
handler500 = documents.server_error
