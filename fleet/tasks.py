"""Celery only wakes: one call each, ids only (DESIGN §1)."""

from typing import Any

from celery import shared_task

from fleet import reconcilers


@shared_task(name="fleet.silence_tick", queue="maintenance")
def silence_tick(**_: Any) -> None:
    """Judge the nodes that were not heard of lately (REC-4, REC-8)."""
    reconcilers.silence_tick()
