"""What every test gets: an empty Redis, and Celery's current app. The database comes from pytest-django's fixtures."""

from collections.abc import Iterator

import pytest
import redis
from django.conf import settings

# Imported for its effect: `delay()` in a test goes to our broker.
from computeplatform.celery import app as celery_app  # noqa: F401
from computeplatform.invariants import violations
from tests.support.clock import Clock
from tests.support.world import World

pytest_plugins = ["tests.clauses"]


@pytest.fixture(scope="session")
def redis_client() -> redis.Redis:
    """This worker's own Redis database."""
    return redis.Redis.from_url(settings.REDIS_URL)


@pytest.fixture(autouse=True)
def _empty_redis(redis_client: redis.Redis) -> None:
    """No wake mark, rate limit or message of another test."""
    redis_client.flushdb()


@pytest.fixture
def clock(db: None) -> Iterator[Clock]:
    """Time stands still until the test moves it."""
    clock = Clock()
    yield clock
    Clock.restore()


@pytest.fixture
def world(clock: Clock) -> Iterator[World]:
    """The platform, two tenants and their people. Whatever the test did, every invariant holds at its end."""
    yield World()
    assert violations() == []
