"""What the reconciler does next with a reservation: a pure rule over what is stored (REC-2, REC-7, CRE-16).

Level-triggered: it looks at what is, so asking twice, late, or in two processes gives the same answer.
"""

from dataclasses import dataclass

from reservations.domain import states
from reservations.domain.leases import SLACK

# How often a binding reservation is looked at even if no report has asked for it.
BINDING_RECHECK = 2_000
HOUR = 3_600_000


@dataclass(frozen=True, kw_only=True)
class Facts:
    """One reservation as the reconciler sees it; times in epoch milliseconds."""

    state: str
    binding: str
    starts_at: int | None
    ends_at: int | None
    requested_ends_at: int | None
    start_before: int | None
    pending_since: int | None
    binding_since: int | None
    nodes: int
    nodes_bound: int
    # Nodes keep its devices for somebody who had them before (REL-3).
    held_by_previous: bool = False
    # Somebody who had them before should have ended, and that has not been seen to.
    behind_previous: bool = False
    bind_timeout: int
    max_pending: int
    # When the lease lapses, as moved by gaps in our own service (REN-2, REC-8).
    lease_deadline: int | None = None
    # Its end was moved to the start of one that preempts it (PRE-2).
    preempted: bool = False
    # When it is given up if the lost node that it runs on has not come back (REC-4).
    lost_deadline: int | None = None


@dataclass(frozen=True)
class Step:
    """What to do. ``event`` names a move of the machine, or is empty when there is nothing to do before ``due_at``.

    ``at`` is when the change counts from: an end is at its time, however late the tick is.
    """

    event: str
    reason: str = ""
    at: int | None = None
    due_at: int | None = None


def next_step(facts: Facts, *, now: int) -> Step:
    """The first thing to be done at ``now``."""
    match facts.state:
        case states.PENDING:
            return _pending(facts, now)
        case states.BINDING | states.ACTIVE if given_up := _given_up(facts, now):
            return given_up
        case states.PLACED | states.BINDING | states.ACTIVE if end := _run_out(facts, now):
            return end
        case states.PLACED:
            assert facts.starts_at is not None  # noqa: S101 - a constraint of the table
            if facts.behind_previous:
                return Step("", due_at=now)
            return Step("start", at=now) if facts.starts_at <= now else Step("", due_at=facts.starts_at)
        case states.BINDING:
            return _binding(facts, now)
        case states.ACTIVE:
            return Step("", due_at=facts.ends_at)
        case _:
            return Step("")


def pending_deadline(
    *, requested_ends_at: int | None, start_before: int | None, pending_since: int, max_pending: int
) -> int:
    """When a pending reservation is given up at the latest."""
    ends = [pending_since + max_pending]
    ends += [moment for moment in (requested_ends_at, start_before) if moment is not None]
    return min(ends)


def _run_out(facts: Facts, now: int) -> Step | None:
    """The lapse of the lease or the end of the window, whichever came first; a lease lapses a moment late (SLACK)."""
    ended = facts.ends_at is not None and facts.ends_at <= now
    deadline = facts.lease_deadline
    if deadline is not None and (facts.ends_at is None or deadline < facts.ends_at):
        lapsed = ended or deadline + SLACK <= now
        return Step("end", reason="lease-lapsed", at=deadline) if lapsed else None
    return Step("end", reason="preempted" if facts.preempted else "ended", at=facts.ends_at) if ended else None


def _given_up(facts: Facts, now: int) -> Step | None:
    """The grace of a lost node has run out: released, or placed anew where no node has bound it yet (REC-4).

    What it ran out by before that was first, however late the tick is.
    """
    deadline = facts.lost_deadline
    if deadline is None or deadline > now:
        return None
    if any(end is not None and end <= deadline for end in (facts.ends_at, facts.lease_deadline)):
        return None
    if facts.state == states.BINDING and not facts.nodes_bound:
        return Step("unbind", reason="node-lost", at=now)
    return Step("end", reason="node-lost", at=deadline)


def _pending(facts: Facts, now: int) -> Step:
    for moment in (facts.requested_ends_at, facts.start_before):
        if moment is not None and moment <= now:
            return Step("cancel", reason="window-passed", at=now)
    since = facts.pending_since or 0
    if since + facts.max_pending <= now:
        return Step("cancel", reason="pending-too-long", at=now)
    deadline = pending_deadline(
        requested_ends_at=facts.requested_ends_at,
        start_before=facts.start_before,
        pending_since=since,
        max_pending=facts.max_pending,
    )
    return Step("", due_at=deadline)


def _binding(facts: Facts, now: int) -> Step:
    if facts.held_by_previous:
        return Step("", due_at=min(now + BINDING_RECHECK, facts.ends_at or now + BINDING_RECHECK))
    if facts.binding == "hold" or facts.nodes_bound >= facts.nodes:
        return Step("bound", at=now)
    since = facts.binding_since or now
    if now - since < facts.bind_timeout:
        looks = [now + BINDING_RECHECK, since + facts.bind_timeout]
        return Step("", due_at=min(looks if facts.ends_at is None else [*looks, facts.ends_at]))
    if facts.nodes_bound:
        return Step("end", reason="bind-failed", at=now)
    return Step("unbind", reason="bind-timeout", at=now)
