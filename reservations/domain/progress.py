"""What the platform is doing for a reservation just now (GET-1 ``operation``): derived, so it cannot go stale."""

from dataclasses import dataclass
from typing import Any

from reservations.domain import states

RETRY_EVERY = 30_000


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The facts that the operation is read from."""

    state: str
    reason: str
    attempts: int
    created_at: int
    starts_at: int | None
    active_at: int | None
    ended_at: int | None
    changed_at: int
    withdrawing: bool
    # Nodes may keep the devices for long after the end (REL-2); what was done last is then that they let go.
    may_be_held: bool
    last_retry_at: int | None
    # An extend that is being decided began then; the last one was done then.
    extending_since: int | None = None
    extended_at: int | None = None


def operation(p: Progress) -> dict[str, Any]:
    """``{kind, status, step, attempts, nextTryAt?, startedAt, finishedAt?, reason?}``."""
    if p.state in states.BOOKED and p.extending_since is not None:
        return {
            "kind": "extend",
            "status": "running",
            "step": "decide",
            "attempts": 1,
            "startedAt": p.extending_since,
        }
    shown: dict[str, Any] = {"kind": "create", "attempts": p.attempts, "startedAt": p.created_at}
    match p.state:
        case states.PENDING:
            tried = p.last_retry_at if p.last_retry_at is not None else p.changed_at
            shown |= {"status": "waiting", "step": "place", "nextTryAt": tried + RETRY_EVERY}
        case states.PLACED:
            shown |= {"status": "waiting", "step": "start", "nextTryAt": p.starts_at}
        case states.BINDING:
            shown |= {"status": "running", "step": "bind"}
        case states.ACTIVE if p.extended_at is not None and p.extended_at >= (p.active_at or 0):
            # What was done last; before it was active, its way there is what goes on.
            done = {"startedAt": p.extended_at, "finishedAt": p.extended_at}
            shown |= {"kind": "extend", "status": "done", "step": "extend", "attempts": 1} | done
        case states.ACTIVE:
            shown |= {"status": "done", "step": "bind", "finishedAt": p.active_at}
        case _:
            shown |= {"kind": "end", "startedAt": p.ended_at, "reason": p.reason}
            if p.withdrawing:
                shown |= {"status": "running", "step": "withdraw"}
            else:
                finished = p.changed_at if p.may_be_held else p.ended_at
                shown |= {"status": "done", "step": "release", "finishedAt": finished}
    return {key: value for key, value in shown.items() if value is not None}
