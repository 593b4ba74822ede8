"""Leases: how long a reservation lives without word from its holder (REN-1, REN-2)."""

from collections.abc import Iterator

from computeplatform.errors import Issue

# A renew that has arrived before the deadline is still on its way to the row for a moment: the tick leaves it that
# time. It is part of the ten seconds within which a lapsed lease is released.
SLACK = 3_000


def began_at(*, expires_at: int, seconds: int) -> int:
    """When the time of a lease began to run: at its placement or its last renewal."""
    return expires_at - seconds * 1_000


def lease_issues(*, lease_seconds: int | None, needed: bool, creator_kind: str, agent_id: str) -> Iterator[Issue]:
    """Where the pool's policy wants that (``agentsNeedLease``), what an agent asks for has a lease: what it asks for by
    itself, and what it asks for in a person's name."""
    if needed and lease_seconds is None and (creator_kind == "agent" or agent_id):
        yield Issue("leaseSeconds", "is required of agents in this pool: what they forget must not stay booked")
