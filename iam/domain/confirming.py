"""What a confirmation is at a given time, and what an approval is good for (IAM-6)."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

PENDING = "pending"
APPROVED = "approved"
REFUSED = "refused"
LAPSED = "lapsed"
USED = "used"
VOID = "void"
STATES = (PENDING, APPROVED, REFUSED, LAPSED, USED, VOID)

# To decide, and once approved to use the approval: milliseconds.
OPEN = 30 * 60_000


def effective(state: str, *, expires_at: int, delegation_ended_at: int, now: int) -> str:
    """The state at ``now`` of a confirmation in which ``state`` was last written.

    ``delegation_ended_at`` is when its delegation ended or will end. A question ends with its delegation (void) or with
    its 30 minutes (lapsed), whichever came first; an approval with its 30 minutes alone: without a live session of the
    delegation nobody can use it.
    """
    if state == PENDING and delegation_ended_at < expires_at and delegation_ended_at <= now:
        return VOID
    if state in (PENDING, APPROVED) and expires_at <= now:
        return LAPSED
    return state


def why_closed(state: str) -> str:
    """Why a confirmation in this effective state takes no answer any more: ``decided``, ``lapsed`` or ``void``."""
    return state if state in (LAPSED, VOID) else "decided"


def digest_of(asked: Mapping[str, Any]) -> str:
    """What an approval is bound to: all of what the person is shown, whatever the order of its members."""
    text = json.dumps(asked, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
