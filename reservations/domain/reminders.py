"""When a holder is told that a reservation is about to end: ``reservation.ending`` (EVT-4)."""

from collections.abc import Iterator
from dataclasses import dataclass

from reservations.domain.requests import MINUTE

NOTICE = 15 * MINUTE
END = "end"
PREEMPTION = "preemption"
LEASE = "lease"


@dataclass(frozen=True)
class Reminder:
    """Tell at ``at`` (or at once, if that is past) of the moment ``of``; ``why`` it ends then."""

    why: str
    at: int
    of: int


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What a placed, binding or active reservation ends by; times in epoch milliseconds.

    ``lease_deadline`` is ``lease_expires_at`` as moved by gaps in our service. The ``told_for`` are the moments of
    which its holder was told already.
    """

    ends_at: int
    cut_short: bool
    ending_told_for: int | None
    lease_ms: int = 0
    lease_expires_at: int | None = None
    lease_deadline: int | None = None
    lease_told_for: int | None = None


def reminders(terms: Terms) -> Iterator[Reminder]:
    """What has still to be told, now or later."""
    if terms.ending_told_for != terms.ends_at:
        yield Reminder(PREEMPTION if terms.cut_short else END, terms.ends_at - NOTICE, terms.ends_at)
    if terms.lease_deadline is not None and terms.lease_told_for != terms.lease_expires_at:
        yield Reminder(LEASE, terms.lease_deadline - terms.lease_ms // 2, terms.lease_deadline)


def first_look(*, starts_at: int, ends_at: int, lease_ms: int, now: int) -> int:
    """When the reconciler has something to do for what is placed at ``now``: start it, or tell of its end."""
    looks = [starts_at, max(now, ends_at - NOTICE)]
    return min([*looks, now + lease_ms // 2] if lease_ms else looks)
