"""The kernel's Celery tasks, gathered where Celery looks for them."""

from computeplatform.events.tasks import stamp_events

__all__ = ["stamp_events"]
