"""Desired state of nodes. reservations calls these inside its own transaction, under its pool's lock, in bulk.

They take allocation locks: in the published order whatever touches nodes (taints) comes before them.
"""

import json
from collections.abc import Collection, Mapping, Sequence

from django.db import connection
from django.db.models import Q

from fleet.contracts import NewAllocation
from fleet.domain.sync import Held, holds_still
from fleet.locks import lock_allocations
from fleet.models import Allocation

PLANNED = "planned"
BOUND = "bound"
WITHDRAWN = "withdrawn"


_PLAN = """
INSERT INTO fleet_allocation AS a (reservation_id, tenant_id, pool_id, node_id, binding, devices, resources, until,
    desired, observed, holders, generation)
SELECT n.reservation_id, n.tenant_id, n.pool_id, n.node_id, n.binding, n.devices, n.resources, n.until,
    'planned', '', 0, 1
FROM jsonb_to_recordset(%s) AS n (reservation_id text, tenant_id text, pool_id text, node_id text, binding text,
    devices jsonb, resources jsonb, until bigint)
ON CONFLICT (reservation_id, node_id) DO UPDATE SET
    tenant_id = excluded.tenant_id, pool_id = excluded.pool_id, binding = excluded.binding, devices = excluded.devices,
    resources = excluded.resources, until = excluded.until, desired = 'planned',
    observed = '', observed_at = NULL, holders = 0, told_at = NULL, generation = a.generation + 1,
    older = coalesce(a.older, CASE WHEN a.told_at IS NOT NULL OR a.observed <> ''
        THEN jsonb_build_object('devices', a.devices, 'observed', a.observed, 'holders', a.holders) END)
"""


def plan(allocations: Sequence[NewAllocation]) -> None:
    """Record what nodes are going to hold, one row per reservation and node; planning again replaces the plan.

    What a node was told of an earlier plan of the same reservation, or said of it, is kept as ``older``: the node has
    to let go of that first (NOD-8), and nothing that it says before it has is about the new plan. One query.
    """
    _inside_a_transaction()
    rows = [
        {
            "reservation_id": new.reservation_id,
            "tenant_id": new.tenant_id,
            "pool_id": new.pool_id,
            "node_id": new.node_id,
            "binding": new.binding,
            "devices": [device.as_json() for device in new.devices],
            "resources": dict(new.resources),
            "until": new.until,
        }
        for new in sorted(allocations, key=lambda new: (new.reservation_id, new.node_id))
    ]
    if rows:
        with connection.cursor() as cursor:
            cursor.execute(_PLAN, [json.dumps(rows)])


def bind(reservation_ids: Collection[str], *, now: int) -> int:
    """Ask the nodes to bind what is planned for these reservations; returns the number of rows that changed.

    The nodes learn it at their next sync; ``told_at`` says when they did. Repeating it changes nothing.
    """
    _inside_a_transaction()
    due = [row.pk for row in lock_allocations(reservation_ids) if row.desired == PLANNED]
    return Allocation.objects.filter(pk__in=due).update(desired=BOUND) if due else 0


def may_hold(reservation_ids: Collection[str], *, now: int) -> set[tuple[str, str]]:
    """Which nodes hold, or may hold by now, what they were told to bind: ``(reservation, node)`` (REL-4).

    Asked before ``withdraw``, in the same transaction: the rows are locked, so no node is told or heard in between.
    """
    _inside_a_transaction()
    rows = lock_allocations(reservation_ids)
    return {
        (row.reservation_id, row.node_id)
        for row in rows
        if holds_still(Held(row.observed, row.holders), told=row.told_at is not None, until=row.until, now=now)
    }


def withdraw(reservation_ids: Collection[str], *, now: int) -> int:
    """End these reservations' hold on every node; returns how many rows still wait for their node's word.

    A row whose node was told to bind, or reported anything, is kept with desired ``withdrawn`` until the node has
    reported it withdrawn. One that no node ever heard of is deleted: there is nothing to wait for.
    """
    _inside_a_transaction()
    rows = lock_allocations(reservation_ids)
    heard = [row.pk for row in rows if row.told_at is not None or row.observed or row.older is not None]
    unheard = [row.pk for row in rows if row.pk not in heard]
    if unheard:
        Allocation.objects.filter(pk__in=unheard).delete()
    if heard:
        Allocation.objects.filter(~Q(desired=WITHDRAWN), pk__in=heard).update(desired=WITHDRAWN)
    return len(heard)


def until(ends: Mapping[str, int]) -> int:
    """Move the ends (epoch milliseconds, by reservation) at which the nodes act by themselves (NOD-8).

    Returns how many rows changed; two queries, however many there are.
    """
    _inside_a_transaction()
    rows = [row for row in lock_allocations(ends.keys()) if row.until != ends[row.reservation_id]]
    for row in rows:
        row.until = ends[row.reservation_id]
    return Allocation.objects.bulk_update(rows, ["until"]) if rows else 0


def _inside_a_transaction() -> None:
    if not connection.in_atomic_block:
        raise RuntimeError("what nodes should do belongs to the transaction of the change that asks for it")
