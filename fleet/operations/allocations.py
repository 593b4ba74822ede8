"""Desired state of nodes. reservations calls these inside its own transaction, under its pool's lock, in bulk.

They take allocation locks: in the published order whatever touches nodes (taints) comes before them.
"""

from collections.abc import Collection, Sequence

from django.db import connection
from django.db.models import Q

from fleet.contracts import NewAllocation
from fleet.locks import lock_allocations
from fleet.models import Allocation

PLANNED = "planned"
BOUND = "bound"
WITHDRAWN = "withdrawn"


def plan(allocations: Sequence[NewAllocation]) -> None:
    """Record what nodes are going to hold, one row per reservation and node; planning again replaces the plan.

    What the node said about an earlier plan of the same reservation is forgotten along with that plan: the node
    reports again at its next sync. One query.
    """
    _inside_a_transaction()
    Allocation.objects.bulk_create(
        [
            Allocation(
                reservation_id=new.reservation_id,
                tenant_id=new.tenant_id,
                pool_id=new.pool_id,
                node_id=new.node_id,
                binding=new.binding,
                devices=[device.as_json() for device in new.devices],
                resources=dict(new.resources),
                until=new.until,
                desired=PLANNED,
            )
            for new in allocations
        ],
        update_conflicts=True,
        unique_fields=["reservation_id", "node"],
        update_fields=[
            "tenant_id",
            "pool_id",
            "binding",
            "devices",
            "resources",
            "until",
            "desired",
            "observed",
            "observed_at",
            "holders",
            "told_at",
        ],
    )


def bind(reservation_ids: Collection[str], *, now: int) -> int:
    """Ask the nodes to bind what is planned for these reservations; returns the number of rows that changed.

    The nodes learn it at their next sync; ``told_at`` says when they did. Repeating it changes nothing.
    """
    _inside_a_transaction()
    due = [row.pk for row in lock_allocations(reservation_ids) if row.desired == PLANNED]
    return Allocation.objects.filter(pk__in=due).update(desired=BOUND) if due else 0


def withdraw(reservation_ids: Collection[str], *, now: int) -> int:
    """End these reservations' hold on every node; returns how many rows still wait for their node's word.

    A row whose node was told to bind, or reported anything, is kept with desired ``withdrawn`` until the node has
    reported it withdrawn. One that no node ever heard of is deleted: there is nothing to wait for.
    """
    _inside_a_transaction()
    rows = lock_allocations(reservation_ids)
    unheard = [row.pk for row in rows if row.told_at is None and not row.observed]
    heard = [row.pk for row in rows if row.told_at is not None or row.observed]
    if unheard:
        Allocation.objects.filter(pk__in=unheard).delete()
    if heard:
        Allocation.objects.filter(~Q(desired=WITHDRAWN), pk__in=heard).update(desired=WITHDRAWN)
    return len(heard)


def until(*, reservation_id: str, until: int) -> int:
    """Move the end (epoch milliseconds) at which the nodes act by themselves (NOD-8); returns the rows changed."""
    _inside_a_transaction()
    rows = [row.pk for row in lock_allocations([reservation_id]) if row.until != until]
    return Allocation.objects.filter(pk__in=rows).update(until=until) if rows else 0


def _inside_a_transaction() -> None:
    if not connection.in_atomic_block:
        raise RuntimeError("what nodes should do belongs to the transaction of the change that asks for it")
