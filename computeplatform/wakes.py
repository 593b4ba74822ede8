"""Waking a worker: "look at this pool". The work itself is rows; a lost wake costs time, never work (DESIGN §5.4)."""

import contextlib

import redis
import structlog
from celery import current_app
from django.conf import settings
from django.db import transaction
from kombu.exceptions import OperationalError

from computeplatform.errors import Unavailable
from computeplatform.redis_client import redis_client

log = structlog.get_logger(__name__)

# How long a mark stands for a wake that never arrives: what a kill or a race can cost at most.
MARK_SECONDS = 5


def _mark(queue: str, key: str) -> str:
    return f"compute:wake:{queue}:{key}"


def wake_now(queue: str, key: str) -> None:
    """Send a wake unless one is outstanding. Raises Unavailable when the broker is away."""
    marked = False
    try:
        marked = bool(redis_client().set(_mark(queue, key), b"1", nx=True, ex=MARK_SECONDS))
        if marked:
            current_app.send_task(settings.COMPUTE_WAKE_TASKS[queue], kwargs={"key": key}, queue=queue)
    except (redis.RedisError, OperationalError, OSError) as error:
        log.warning("wake_not_sent", queue=queue, key=key, error=str(error))
        if marked:
            clear_mark(queue, key)  # it stands for a wake that is under way
        raise Unavailable("The broker is away just now.") from error


def wake(queue: str, key: str) -> None:
    """Wake after commit, if the broker is there; otherwise the next tick finds the work."""

    def send() -> None:
        # What went wrong is logged; the row is due and the tick will see it.
        with contextlib.suppress(Unavailable):
            wake_now(queue, key)

    transaction.on_commit(send, robust=True)


def clear_mark(queue: str, key: str) -> None:
    """The woken pass calls this before it reads: whatever is written later needs a wake of its own."""
    try:
        redis_client().delete(_mark(queue, key))
    except redis.RedisError as error:
        log.warning("wake_mark_not_cleared", queue=queue, key=key, error=str(error))
