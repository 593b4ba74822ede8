"""The reconciler's writes: give up, start, activate, unbind and end what is due (REC-2, REC-7, CRE-16)."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from computeplatform.db.gaps import Gaps
from computeplatform.db.retry import in_transaction
from fleet import queries as fleet
from fleet.contracts import AllocationView, PoolView
from fleet.locks import lock_nodes
from fleet.operations import allocations, taints
from reservations import locks
from reservations.domain import states
from reservations.domain.lifecycle import Facts, Step, next_step
from reservations.domain.requests import HOUR
from reservations.models import Reservation
from reservations.operations.ending import End, end_rows, wake_waiting
from reservations.operations.holding import (
    Leaving,
    bill_from_bound,
    leave_nodes,
    show_waiting,
    waiting_for_previous,
)
from reservations.operations.returning import send_back
from reservations.operations.state import RECONCILER, Changes
from reservations.operations.terms import gaps_for, lease_deadline, watch
from reservations.operations.troubles import leave_trouble, lost_deadlines
from reservations.queries import asked


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
    gaps = gaps_for(rows, now=now)
    waiting = waiting_for_previous(rows, now=now)
    lost = lost_deadlines(rows, pools, now=now)
    changes = Changes(by=RECONCILER, now=now)
    todo: dict[str, list[tuple[Reservation, Step]]] = defaultdict(list)
    for row in rows:
        step = _step(
            row,
            pools[row.pool_id],
            reported.get(row.id, []),
            gaps,
            waiting=waiting.get(row.id),
            lost_deadline=lost.get(row.id),
            now=now,
        )
        changes.touch(row)
        row.due_at = step.due_at
        todo[step.event].append((row, step))
    starting = _start(_rows(todo["start"]), changes, waiting, now=now)
    show_waiting(rows, waiting, changes, now=now)
    for row in _rows(todo["bound"]):
        _activate(row, changes, now=now)
    bill_from_bound(_rows(todo["bound"]), now=now)
    silent = _silent(todo, reported)
    # What is written after them, so that all of it is locked in the published order.
    leaving = {
        "nodes": {node_id for nodes in silent.values() for node_id in nodes},
        "along": [*starting, *(row.id for row in _rows(todo["unbind"]))],
    }
    _end([*todo["cancel"], *todo["end"]], changes, now=now, **leaving)
    _unbind(todo["unbind"], changes, pools, now=now, **leaving)
    _taint(silent, now=now)
    allocations.bind(starting, now=now)
    watch(rows, gaps, changes, now=now)
    _look_again(rows, lost)
    changes.write()
    return Report(len(rows), sum(len(found) for event, found in todo.items() if event))


def _look_again(rows: Sequence[Reservation], lost: Mapping[str, int]) -> None:
    """What runs on a lost node is looked at when its grace has run out, if nothing comes before."""
    for row in rows:
        if row.due_at is not None and row.disturbed_since is not None and row.id in lost:
            row.due_at = min(row.due_at, lost[row.id])


def _rows(found: Sequence[tuple[Reservation, Step]]) -> list[Reservation]:
    return [row for row, _ in found]


@in_transaction
def postpone(*, reservation_id: str, until: int) -> None:
    """Look at a reservation later: it has failed now, and must not keep others from their turn."""
    Reservation.objects.filter(id=reservation_id, due_at__lt=until).update(due_at=until)


def _reported(rows: Sequence[Reservation]) -> Mapping[str, list[AllocationView]]:
    """What the nodes have reported of the binding ones."""
    return fleet.allocations_of([row.id for row in rows if row.state == states.BINDING])


def _step(
    row: Reservation,
    pool: PoolView,
    reported: Sequence[AllocationView],
    gaps: Gaps,
    *,
    waiting: bool | None,
    lost_deadline: int | None,
    now: int,
) -> Step:
    policy = pool.policy
    binding_since = _bind_began(row, pool, now=now)
    bind_deadline = gaps.moved(binding_since + policy.bind_timeout_seconds * 1000, since=binding_since)
    facts = Facts(
        state=row.state,
        binding=row.binding,
        starts_at=row.starts_at,
        ends_at=row.ends_at,
        requested_ends_at=asked(row).ends_at,
        start_before=row.start_before,
        pending_since=row.pending_since,
        binding_since=binding_since,
        nodes=row.nodes,
        nodes_bound=len(_bound(reported)),
        held_by_previous=waiting is not None,
        behind_previous=bool(waiting),
        bind_timeout=bind_deadline - binding_since,
        max_pending=policy.max_pending_hours * HOUR,
        lease_deadline=lease_deadline(row, gaps),
        preempted=bool(row.preempted_by),
        lost_deadline=lost_deadline,
    )
    return next_step(facts, now=now)


def _bind_began(row: Reservation, pool: PoolView, *, now: int) -> int:
    """From when the bind timeout counts: anew after many nodes of the pool were silent, and not while they are."""
    if pool.mass_silence_since is not None:
        return now
    return max(row.binding_since or now, pool.mass_silence_ended_at or 0)


def _bound(reported: Sequence[AllocationView]) -> list[str]:
    return [a.node_id for a in reported if a.desired == "bound" and a.observed == "bound"]


def _start(rows: Sequence[Reservation], changes: Changes, waiting: Collection[str], *, now: int) -> list[str]:
    """placed → binding; a hold has nothing to bind, so the same step takes it on to active. Returns what nodes bind."""
    for row in rows:
        row.binding_since = now
        row.due_at = now
        changes.move(row, "start")
        if row.binding == "hold" and row.id not in waiting:
            _activate(row, changes, now=now)
    return [row.id for row in rows if row.binding != "hold"]


def _activate(row: Reservation, changes: Changes, *, now: int) -> None:
    row.active_at = now
    row.due_at = row.ends_at
    changes.move(row, "bound")


def _end(
    steps: Sequence[tuple[Reservation, Step]],
    changes: Changes,
    *,
    now: int,
    nodes: Collection[str],
    along: Collection[str],
) -> None:
    """Give up or end what is due, at its time; a failed bind is not billed (REC-7)."""
    ends = [
        End(row, step.event, step.reason, at=now if step.at is None else step.at, billed=step.reason != "bind-failed")
        for row, step in steps
    ]
    wake_waiting([end.row for end in ends if end.event == "end"])
    if ends:
        end_rows(ends, changes, now=now, nodes=nodes, along=along)


def _unbind(
    steps: Sequence[tuple[Reservation, Step]],
    changes: Changes,
    pools: Mapping[str, PoolView],
    *,
    now: int,
    nodes: Collection[str],
    along: Collection[str],
) -> None:
    """REC-7, nothing is bound: back to pending, to be placed elsewhere if that fits; nothing of the try is billed."""
    if not steps:
        return
    rows = _rows(steps)
    leave_trouble(dict.fromkeys(rows, now))
    for row, step in steps:
        words = "no node has bound it in time"
        send_back(row, "unbind", pools[row.pool_id], changes, reason=step.reason, words=words)
    wake_waiting(rows)
    lock_nodes(nodes)
    leave_nodes([Leaving(row, now, billed=False) for row in rows], changes, now=now, along=along)


def _silent(
    todo: Mapping[str, Sequence[tuple[Reservation, Step]]], reported: Mapping[str, Sequence[AllocationView]]
) -> dict[str, list[str]]:
    """By reservation that was not bound in time, the nodes that did not report it (REC-7)."""
    late = [*todo["unbind"], *(one for one in todo["end"] if one[1].reason == "bind-failed")]
    return {row.id: [a.node_id for a in reported.get(row.id, []) if a.observed != "bound"] for row, _ in late}


def _taint(silent: Mapping[str, Sequence[str]], *, now: int) -> None:
    """These nodes take no bookings until they are known to be clean (REC-7). They are locked already, in order."""
    for reservation_id, nodes in silent.items():
        taints.set_taint(
            nodes, taints.BIND_TIMED_OUT, by=RECONCILER, now=now, reason="bind-timeout", subject=reservation_id
        )
