"""Celery only wakes: one call each, ids only (DESIGN §1)."""

from typing import Any

from celery import shared_task

from reservations import reconcilers


@shared_task(name="reservations.admit", queue="admission")
def admit(*, key: str, **_: Any) -> None:
    """There are drafts in the pool ``key``."""
    reconcilers.admit(pool_id=key)


@shared_task(name="reservations.place", queue="placement")
def place(*, key: str, **_: Any) -> None:
    """Capacity of the pool ``key`` was freed."""
    reconcilers.place(pool_id=key)


@shared_task(name="reservations.reconcile", queue="reconcile")
def reconcile(*, key: str, **_: Any) -> None:
    """Something in the pool ``key`` starts now, or a node has reported."""
    reconcilers.reconcile(pool_id=key)


@shared_task(name="reservations.admission_tick", queue="admission")
def admission_tick(**_: Any) -> None:
    """Finish drafts whose wake was lost."""
    reconcilers.admission_tick()


@shared_task(name="reservations.placement_tick", queue="placement")
def placement_tick(**_: Any) -> None:
    """Try everything that waits again (REC-3)."""
    reconcilers.placement_tick()


@shared_task(name="reservations.queue_tick", queue="placement")
def queue_tick(**_: Any) -> None:
    """Place what was queued and whose wake was lost (CRE-14)."""
    reconcilers.queue_tick()


@shared_task(name="reservations.reconcile_tick", queue="reconcile")
def reconcile_tick(**_: Any) -> None:
    """Do what is due (REC-2)."""
    reconcilers.reconcile_tick()
