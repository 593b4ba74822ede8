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
    last_retry_at: int | None


def operation(p: Progress) -> dict[str, Any]:
    """``{kind, status, step, attempts, nextTryAt?, startedAt, finishedAt?, reason?}``."""
    shown: dict[str, Any] = {"kind": "create", "attempts": p.attempts, "startedAt": p.created_at}
    match p.state:
        case states.PENDING:
            tried = p.last_retry_at if p.last_retry_at is not None else p.changed_at
            shown |= {"status": "waiting", "step": "place", "nextTryAt": tried + RETRY_EVERY}
        case states.PLACED:
            shown |= {"status": "waiting", "step": "start", "nextTryAt": p.starts_at}
        case states.BINDING:
            shown |= {"status": "running", "step": "bind"}
        case states.ACTIVE:
            shown |= {"status": "done", "step": "bind", "finishedAt": p.active_at}
        case _:
            shown |= {"kind": "end", "startedAt": p.ended_at, "reason": p.reason}
            if p.withdrawing:
                shown |= {"status": "running", "step": "withdraw"}
            else:
                shown |= {"status": "done", "step": "release", "finishedAt": p.ended_at}
    return {key: value for key, value in shown.items() if value is not None}
