"""What every test gets: an empty Redis, and Celery's current app. The database comes from pytest-django's fixtures."""

from collections.abc import Generator, Iterator

import pytest
import redis
from django.conf import settings
from django.db import connection
from pytest_django import DjangoDbBlocker

# Imported for its effect: `delay()` in a test goes to our broker.
from computeplatform.celery import app as celery_app  # noqa: F401
from computeplatform.invariants import violations
from tests.support.clock import Clock
from tests.support.confirming import Asking, asking_agent
from tests.support.world import Founded, World

pytest_plugins = ["tests.clauses"]


@pytest.fixture(scope="session")
def redis_client() -> redis.Redis:
    """This worker's own Redis database."""
    return redis.Redis.from_url(settings.REDIS_URL)


@pytest.fixture(autouse=True)
def _empty_redis(redis_client: redis.Redis) -> None:
    """No wake mark, rate limit or message of another test."""
    redis_client.flushdb()


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> None:
    """The test database, whose tables can be emptied: tests with transactions of their own end like that.

    tests/iam/test_audit_append_only.py proves what is switched off here.
    """
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        for table in ("iam_decision", "iam_decisionbatch", "iam_unsealeddecision"):
            cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER {table}_truncate")


@pytest.fixture
def clock(db: None) -> Iterator[Clock]:
    """Time stands still until the test moves it."""
    clock = Clock()
    yield clock
    Clock.restore()


@pytest.fixture(scope="session")
def _founded(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Founded:
    """Made once: each test's transaction starts from it."""
    with django_db_blocker.unblock():
        return Founded.now()


@pytest.fixture
def world(_founded: Founded, clock: Clock) -> Iterator[World]:
    """The platform, two tenants and their people. Whatever the test did, every invariant holds at its end."""
    yield World(_founded if _founded.stands() else Founded.now())
    assert violations() == []


@pytest.fixture
def asking(world: World) -> Asking:
    """An agent of ann's that has to ask her."""
    return asking_agent(world)


@pytest.fixture
def nobody(db: None) -> None:
    """Not even the platform is there; the test's transaction gives back who was."""
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE iam_tenant, iam_operator CASCADE")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """What `world` does at its end, for every test that may write without it."""
    outcome = yield
    fixtures = set(getattr(item, "fixturenames", ()))
    writes = item.get_closest_marker("django_db") or fixtures & {"db", "transactional_db"}
    # Nobody reserves what the ledger's tests charge: they ask the ledger's own checks.
    if writes and "world" not in fixtures and item.path.parent.name != "quotas" and connection.is_usable():
        assert violations() == []
    return outcome


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Journeys share an installation, so they run in one process; a folder with a target of its own is marked."""
    for item in items:
        folder = item.path.parent.name
        if folder == "journeys":
            item.add_marker(pytest.mark.xdist_group(folder))
        if folder == "fire":
            item.add_marker(pytest.mark.fire)
