"""Celery only wakes: one call each, ids only (DESIGN §1)."""

from typing import Any

from celery import shared_task

from iam import reconcilers


@shared_task(name="iam.seal_tick", queue="maintenance")
def seal_tick(**_: Any) -> None:
    """Seal the entries of the audit log that have been committed (IAM-7)."""
    reconcilers.seal_tick()


@shared_task(name="iam.housekeeping", queue="maintenance")
def housekeeping(**_: Any) -> None:
    """Remove what nobody can ask for any more."""
    reconcilers.housekeeping()
