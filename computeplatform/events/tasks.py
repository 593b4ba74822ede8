"""The stamper's task."""

from typing import Any

from celery import shared_task

from computeplatform.clock import compute_now
from computeplatform.db.ticks import record_tick
from computeplatform.events.outbox import stamp


@shared_task(name="events.stamp", queue="delivery")
def stamp_events(**_: Any) -> None:
    """Number what has been committed."""
    while stamp():
        pass
    record_tick("events", now=compute_now())
