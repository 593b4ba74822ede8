"""Probes and metrics: red when it should be, and nothing of tenants."""

from typing import Any

import pytest
from django.conf import settings as product
from django.db import connection, transaction
from django.test import Client
from prometheus_client import parser

from computeplatform.clock import compute_now
from computeplatform.db.ticks import record_tick
from tests.kernel.conftest import rows
from tests.support.clock import Clock
from tests.support.world import World, request


def ready() -> tuple[int, dict[str, str]]:
    response = Client().get("/readyz")
    body = response.json()
    assert (body["status"] == "ready") == (response.status_code == 200)
    return response.status_code, body["checks"]


@pytest.fixture
def ticking(clock: Clock) -> Clock:
    for name in product.COMPUTE_READY_TICKS:
        record_tick(name, now=clock.now)
    return clock


GOOD = {"database": "ok", "migrations": "ok", "broker": "ok", "ticks": "ok"}


@pytest.mark.clause("API-9", "healthz")
def test_the_process_lives_without_asking_anybody():
    # No database fixture: were it asked, pytest-django would raise.
    response = Client().get("/healthz")
    assert (response.status_code, response.json()) == (200, {"status": "ok"})


@pytest.mark.clause("API-9", "readyz")
def test_ready_when_everything_is_there(ticking: Clock):
    assert ready() == (200, GOOD)


@pytest.mark.clause("API-9", "readyz: ticks")
def test_not_ready_before_the_first_tick(clock: Clock):
    status, checks = ready()
    assert (status, checks) == (503, GOOD | {"ticks": f"not running: {', '.join(product.COMPUTE_READY_TICKS)}"})


@pytest.mark.clause("API-9", "readyz: ticks")
@pytest.mark.parametrize("name", product.COMPUTE_READY_TICKS)
def test_not_ready_when_one_tick_has_stopped(ticking: Clock, name: str):
    ticking.outage(seconds=30)
    assert ready()[0] == 200
    ticking.outage(milliseconds=1)
    for other in product.COMPUTE_READY_TICKS:
        if other != name:
            record_tick(other, now=ticking.now)
    assert ready() == (503, GOOD | {"ticks": f"not running: {name}"})
    record_tick(name, now=ticking.now)
    assert ready()[0] == 200


@pytest.mark.clause("API-9", "readyz: broker")
def test_not_ready_without_the_broker(ticking: Clock, settings: Any):
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    status, checks = ready()
    assert (status, checks) == (503, GOOD | {"broker": "failed (ConnectionError)"})


@pytest.mark.clause("API-9", "readyz: migrations")
def test_not_ready_while_a_migration_is_missing(ticking: Clock):
    with connection.cursor() as cursor:
        cursor.execute(
            "DELETE FROM django_migrations WHERE app = 'reservations'"
            " AND name = (SELECT max(name) FROM django_migrations WHERE app = 'reservations')"
        )
    status, checks = ready()
    assert status == 503
    assert checks == GOOD | {"migrations": "1 not applied"}


@pytest.mark.clause("API-9", "readyz: database")
def test_not_ready_when_the_database_fails_and_nothing_of_the_inside_is_shown(ticking: Clock):
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE computeplatform_tick RENAME TO elsewhere")
        status, checks = ready()
        transaction.set_rollback(True)
    assert (status, checks) == (503, GOOD | {"ticks": "failed (ProgrammingError)"})


@pytest.mark.clause("API-9", "no credential")
@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
def test_probes_need_no_credential_and_are_only_read(db: None, path: str):
    assert Client().get(path).status_code in (200, 503)
    assert Client(enforce_csrf_checks=True).post(path).status_code == 405


# --- Metrics --------------------------------------------------------------------------------------


def scraped() -> dict[str, Any]:
    response = Client().get("/metrics")
    assert response.status_code == 200
    assert response["Content-Type"].startswith("text/plain")
    return {family.name: family for family in parser.text_string_to_metric_families(response.content.decode())}


def value(name: str, **labels: str) -> float:
    found = [s.value for f in scraped().values() for s in f.samples if s.name == name and s.labels == labels]
    return sum(found)


@pytest.fixture
def busy(world: World) -> World:
    """A world in which something has happened under both tenants' names."""
    pool = world.offered_pool()
    for person in (world.ann, world.gil):
        person.api("reservations/create", **request(pool)).data  # noqa: B018 - asserts that it was answered
    return world


@pytest.mark.clause("API-9", "metrics name no tenant")
def test_no_label_names_a_tenant(busy: World):
    samples = [sample for family in scraped().values() for sample in family.samples]
    assert len(samples) > 50
    people = [person.id for person in (busy.acme, busy.globex, busy.ann, busy.gil)]
    secret = {"acme", "globex", *people}
    for sample in samples:
        assert not {"tenant", "tenant_id", "tenantId", "principal"} & set(sample.labels), sample
        assert not secret & set(sample.labels.values()), sample


@pytest.mark.clause("API-9", "metrics")
def test_calls_are_counted_by_method_and_outcome(world: World):
    def counted(code: str) -> float:
        return value("compute_calls_total", method="compute/pools/list", code=code)

    before = {code: counted(code) for code in ("OK", "INVALID_INPUT", "UNAUTHENTICATED")}
    took = value("compute_call_seconds_count", method="compute/pools/list")
    for _ in range(3):
        world.ann.api("pools/list")
    world.ann.api("pools/list", limit=0)
    world.ann.api.raw("/api/compute/pools/list", "{}", authorization="")
    assert {code: counted(code) - was for code, was in before.items()} == {
        "OK": 3,
        "INVALID_INPUT": 1,
        "UNAUTHENTICATED": 1,
    }
    assert value("compute_call_seconds_count", method="compute/pools/list") == took + 5


@pytest.mark.clause("API-9", "metrics")
def test_a_parked_call_counts_once_it_is_answered(world: World):
    def counted() -> float:
        return sum(
            s.value
            for f in scraped().values()
            for s in f.samples
            if s.name == "compute_calls_total" and s.labels["method"] == "compute/reservations/create"
        )

    pool, before = world.offered_pool(), counted()
    world.ann.api("reservations/create", **request(pool)).data  # noqa: B018
    assert counted() == before + 1


@pytest.mark.clause("API-9", "metrics")
def test_a_gauge_that_fails_does_not_hide_the_others(busy: World):
    before = set(scraped())
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE reservations_reservation RENAME TO elsewhere")
        with transaction.atomic():
            during = set(scraped())
            transaction.set_rollback(True)
        transaction.set_rollback(True)
    assert "compute_calls" in during
    assert set(scraped()) == before
    assert before - during
    assert rows("SELECT 1") == [(1,)]
    assert compute_now()
