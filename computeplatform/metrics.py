"""Prometheus metrics: what processes count, and gauges that are read from the database at scrape time (API-9).

No label names a tenant. With several web processes set PROMETHEUS_MULTIPROC_DIR; the gauges are the same in each.
"""

import os
from collections.abc import Callable, Iterable, Iterator

import structlog
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import REGISTRY, GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector

log = structlog.get_logger(__name__)

CALLS = Counter("compute_calls_total", "Calls of RPC methods by outcome", ["method", "code"])
CALL_SECONDS = Histogram(
    "compute_call_seconds",
    "Time that a thread worked on a call (parked time is not work)",
    ["method"],
    buckets=(0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5),
)

# Label values and the value, as a query reads them.
Samples = Callable[[], Iterable[tuple[tuple[str, ...], float]]]

_gauges: dict[str, tuple[str, tuple[str, ...], Samples]] = {}


def gauge(name: str, words: str, *labels: str) -> Callable[[Samples], Samples]:
    """Register a gauge whose samples are read from the database at each scrape."""

    def register(samples: Samples) -> Samples:
        _gauges[name] = (words, labels, samples)
        return samples

    return register


class DatabaseCollector:
    """Reads the registered gauges; one that fails is left out, so the others can still be seen."""

    def collect(self) -> Iterator[Metric]:
        for name, (words, labels, samples) in sorted(_gauges.items()):
            family = GaugeMetricFamily(name, words, labels=labels)
            try:
                for values, value in samples():
                    family.add_metric(list(values), value)
            except Exception:
                log.exception("gauge_failed", gauge=name)
                continue
            yield family


@csrf_exempt
@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """``GET /metrics``."""
    scrape = CollectorRegistry()
    if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
        MultiProcessCollector(scrape)  # type: ignore[no-untyped-call]
        counted = generate_latest(scrape)
    else:
        counted = generate_latest(REGISTRY)
    stored = CollectorRegistry()
    stored.register(DatabaseCollector())
    return HttpResponse(counted + generate_latest(stored), content_type=CONTENT_TYPE_LATEST)
