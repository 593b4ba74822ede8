"""The one Redis client of a process, for wake marks and limits; Celery has connections of its own.

Nobody waits long for it: what Redis knows can be lost, and everybody who asks can do without.
"""

import redis
from django.conf import settings
from redis.backoff import NoBackoff
from redis.retry import Retry

TIMEOUT_SECONDS = 1.0

_client: redis.Redis | None = None


def redis_client() -> redis.Redis:
    """The client, made at its first use."""
    global _client  # noqa: PLW0603 - one pool of connections per process
    if _client is None:
        _client = redis.Redis.from_url(
            settings.REDIS_URL,
            socket_timeout=TIMEOUT_SECONDS,
            socket_connect_timeout=TIMEOUT_SECONDS,
            # A kept connection may be one to a server that was restarted meanwhile: that is seen at its next use, and
            # a second try opens another. Whoever does not answer in time is not asked again.
            retry=Retry(NoBackoff(), 1, supported_errors=(redis.ConnectionError,)),
        )
    return _client
