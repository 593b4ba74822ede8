"""``/healthz``, ``/readyz`` and ``/metrics`` (API-9). They need no credential and tell nothing of tenants."""

from collections.abc import Callable

import redis
from django.conf import settings
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_safe

from computeplatform.clock import SECOND, compute_now
from computeplatform.db.ticks import last_tick

# A tick that has not run for this long has stopped.
TICK_SILENCE = 30 * SECOND


@csrf_exempt
@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """The process lives."""
    return JsonResponse({"status": "ok"})


@csrf_exempt
@require_safe
def readyz(request: HttpRequest) -> HttpResponse:
    """Database, broker and migrations are there, and the ticks run; 503 and the names of what is not."""
    checks: dict[str, Callable[[], str]] = {
        "database": _database,
        "migrations": _migrations,
        "broker": _broker,
        "ticks": _ticks,
    }
    report = {name: _run(check) for name, check in checks.items()}
    good = all(text == "ok" for text in report.values())
    return JsonResponse({"status": "ready" if good else "not-ready", "checks": report}, status=200 if good else 503)


def _run(check: Callable[[], str]) -> str:
    try:
        return check()
    except Exception as error:  # noqa: BLE001 - whatever it is, we are not ready; its class is all that is shown
        return f"failed ({type(error).__name__})"


def _database() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    return "ok"


def _migrations() -> str:
    executor = MigrationExecutor(connection)
    missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    return f"{len(missing)} not applied" if missing else "ok"


def _broker() -> str:
    with redis.Redis.from_url(settings.REDIS_URL, socket_timeout=2, socket_connect_timeout=2) as client:
        client.ping()
    return "ok"


def _ticks() -> str:
    now = compute_now()
    silent = [name for name in settings.COMPUTE_READY_TICKS if now - (last_tick(name) or 0) > TICK_SILENCE]
    return f"not running: {', '.join(silent)}" if silent else "ok"
