"""The reconciler's writes: give up, start, activate, unbind and end what is due (REC-2, REC-7, CRE-16)."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from computeplatform.api.calls import system_actor
from computeplatform.conditions import Condition, from_json, to_json, with_condition
from computeplatform.db.locks import notify
from computeplatform.db.retry import in_transaction
from computeplatform.parking import CHANNEL
from fleet import queries as fleet
from fleet.contracts import AllocationView, PoolView
from fleet.locks import lock_allocations, lock_nodes
from fleet.operations import allocations, taints
from reservations import locks
from reservations.domain import states
from reservations.domain.lifecycle import Facts, Step, next_step, pending_deadline
from reservations.domain.requests import HOUR
from reservations.models import Reservation
from reservations.operations.bookings import end_bookings
from reservations.operations.ending import End, end_rows, wake_waiting
from reservations.operations.placing import UNSCHEDULABLE
from reservations.operations.state import Changes

LOOP = "capacity.reservations"


@dataclass(frozen=True)
class Report:
    """What one pass did: how many rows it looked at, and how many it moved."""

    seen: int = 0
    moved: int = 0


@in_transaction
def advance_due(
    *, now: int, pool_id: str | None = None, woken: bool = False, only: str | None = None, limit: int = 200
) -> Report:
    """Do the next thing for up to ``limit`` due reservations (of one pool or the one reservation, if given).

    ``woken``: a node may have reported, so everything that is binding is looked at as well.

    Run twice, late, or in two places at once it does the same: rows that somebody else has claimed are skipped, and
    what is done follows from what is stored and reported.
    """
    rows = locks.claim_due(now=now, pool_id=pool_id, woken=woken, only=only, limit=limit)
    if not rows:
        return Report()
    pools = fleet.pools_by_id({row.pool_id for row in rows})
    reported = _reported(rows)
    changes = Changes(by=system_actor(LOOP), now=now)
    todo: dict[str, list[tuple[Reservation, Step]]] = defaultdict(list)
    for row in rows:
        step = _step(row, pools[row.pool_id], reported.get(row.id, []), now=now)
        changes.touch(row)
        row.due_at = step.due_at
        todo[step.event].append((row, step))
    starting = _start(_rows(todo["start"]), changes, now=now)
    for row in _rows(todo["bound"]):
        _activate(row, changes, now=now)
    ended = _end([*todo["cancel"], *todo["end"]], changes, now=now)
    unbound = _unbind(_rows(todo["unbind"]), changes, pools, now=now)
    changes.write()
    _tell_nodes(starting, ended, unbound, reported, now=now)
    moved = [row.id for event, found in todo.items() if event for row, _ in found]
    notify(CHANNEL, moved)
    return Report(len(rows), len(moved))


def _rows(found: Sequence[tuple[Reservation, Step]]) -> list[Reservation]:
    return [row for row, _ in found]


@in_transaction
def postpone(*, reservation_id: str, until: int) -> None:
    """Look at a reservation later: it has failed now, and must not keep others from their turn."""
    Reservation.objects.filter(id=reservation_id, due_at__lt=until).update(due_at=until)


def _reported(rows: Sequence[Reservation]) -> Mapping[str, list[AllocationView]]:
    """What the nodes have reported of the binding ones."""
    return fleet.allocations_of([row.id for row in rows if row.state == states.BINDING])


def _step(row: Reservation, pool: PoolView, reported: Sequence[AllocationView], *, now: int) -> Step:
    policy = pool.policy
    facts = Facts(
        state=row.state,
        binding=row.binding,
        starts_at=row.starts_at,
        ends_at=row.ends_at,
        requested_ends_at=row.requested_ends_at,
        start_before=row.start_before,
        pending_since=row.pending_since,
        binding_since=row.binding_since,
        nodes=row.nodes,
        nodes_bound=len(_bound(reported)),
        bind_timeout=policy.bind_timeout_seconds * 1000,
        max_pending=policy.max_pending_hours * HOUR,
    )
    return next_step(facts, now=now)


def _bound(reported: Sequence[AllocationView]) -> list[str]:
    return [a.node_id for a in reported if a.desired == "bound" and a.observed == "bound"]


def _start(rows: Sequence[Reservation], changes: Changes, *, now: int) -> list[str]:
    """placed → binding; a hold has nothing to bind, so the same step takes it on to active. Returns what nodes bind."""
    for row in rows:
        row.binding_since = now
        row.due_at = now
        changes.move(row, "start")
        if row.binding == "hold":
            _activate(row, changes, now=now)
    return [row.id for row in rows if row.binding != "hold"]


def _activate(row: Reservation, changes: Changes, *, now: int) -> None:
    row.active_at = now
    row.due_at = row.ends_at
    changes.move(row, "bound")


def _end(steps: Sequence[tuple[Reservation, Step]], changes: Changes, *, now: int) -> list[Reservation]:
    """Give up or end what is due, at its time; a failed bind is not billed (REC-7)."""
    ends = [
        End(row, step.event, step.reason, at=now if step.at is None else step.at, billed=step.reason != "bind-failed")
        for row, step in steps
    ]
    wake_waiting([end.row for end in ends if end.event == "end"])
    end_rows(ends, changes, now=now)
    return [end.row for end in ends]


def _unbind(
    rows: Sequence[Reservation], changes: Changes, pools: Mapping[str, PoolView], *, now: int
) -> list[Reservation]:
    """REC-7, nothing is bound: back to pending, to be placed elsewhere if that fits; nothing of the try is billed."""
    for row in rows:
        row.pending_since = now
        row.binding_since = row.starts_at = row.ends_at = None
        row.placement = []
        row.due_at = pending_deadline(
            requested_ends_at=row.requested_ends_at,
            start_before=row.start_before,
            pending_since=now,
            max_pending=pools[row.pool_id].policy.max_pending_hours * HOUR,
        )
        told = Condition(UNSCHEDULABLE, "True", "NodesUnavailable", "no node has bound it in time", now)
        row.conditions = to_json(with_condition(from_json(row.conditions), told))
        changes.move(row, "unbind", reason="bind-timeout")
    ids = [row.id for row in rows]
    end_bookings(dict.fromkeys(ids, now), unbilled=ids)
    wake_waiting(rows)
    return list(rows)


def _tell_nodes(
    starting: Sequence[str],
    ended: Sequence[Reservation],
    unbound: Sequence[Reservation],
    reported: Mapping[str, Sequence[AllocationView]],
    *,
    now: int,
) -> None:
    """Write what the nodes are to do, in the published order of locks: taints on nodes, then allocations."""
    by = system_actor(LOOP)
    # These nodes take no bookings until they are known to be clean (REC-7).
    timed_out = [*unbound, *(row for row in ended if row.reason == "bind-failed")]
    silent = {row.id: [a.node_id for a in reported.get(row.id, []) if a.observed != "bound"] for row in timed_out}
    # All at once and in order, before they are locked again reservation by reservation.
    lock_nodes({node_id for nodes in silent.values() for node_id in nodes})
    for reservation_id, nodes in silent.items():
        taints.set_taint(nodes, taints.BIND_TIMED_OUT, by=by, now=now, reason="bind-timeout", subject=reservation_id)
    leaving = [row.id for row in (*ended, *unbound)]
    lock_allocations([*starting, *leaving])
    allocations.bind(starting, now=now)
    allocations.withdraw(leaving, now=now)
