"""Devices that a node keeps after their reservation has left it: what becomes of their bookings (REL-2, REL-3, REL-4).

Pure rules over what is stored and what the node said. Times are epoch milliseconds, ranges half-open.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from reservations.domain.requests import HOUR, MINUTE

# A booking that pods outstay is carried on in such steps, and for so long at most.
STEP = 5 * MINUTE
LONGEST = 24 * HOUR

# What is to be done about one held booking.
FREE = "free"
CARRY_ON = "carry-on"
WAIT = "wait"


@dataclass(frozen=True)
class Word:
    """What is known of a node about an allocation that it should let go of.

    ``reported_at`` is the node's last contact; ``lost_at`` is set while the node is lost.
    """

    holders: int
    reported_at: int | None
    lost_at: int | None = None


@dataclass(frozen=True)
class HeldBooking:
    """A booking whose devices are held: its run of units, how long it blocks them and what was planned."""

    units: tuple[int, int]
    devices: int
    edge: int
    planned_until: int
    stuck: bool


@dataclass(frozen=True)
class Taken:
    """Another booking on the same node that blocks these units from ``since`` on."""

    units: tuple[int, int]
    since: int


@dataclass(frozen=True)
class Part:
    """A run of adjacent devices out of a held booking, and until when it is carried on."""

    units: tuple[int, int]
    devices: int
    until: int


def what_is_due(booking: HeldBooking, word: Word | None, *, now: int) -> str:
    """FREE once the node has let go (no ``word`` is left) or is lost, CARRY_ON where the booking has run out, WAIT."""
    if word is None or word.lost_at is not None:
        return FREE
    if booking.edge > now:
        return WAIT
    may_go_on = booking.edge < booking.planned_until + LONGEST
    return CARRY_ON if may_go_on or (not booking.stuck and is_stuck(booking, word, now=now)) else WAIT


def is_stuck(booking: HeldBooking, word: Word, *, now: int) -> bool:
    """Whether pods outstay the booking: the node says so, or goes on holding after the end.

    A node whose last word was that nobody uses the devices gets the time to withdraw them: until it has spoken again.
    """
    if now < booking.planned_until:
        return False
    spoken = word.reported_at is not None and word.reported_at > booking.planned_until
    return word.holders > 0 or spoken or now >= booking.planned_until + STEP


def step_end(*, planned_until: int, now: int) -> int:
    """The end of the step that ``now`` falls into; after the last one, that one's end."""
    steps = max(now - planned_until, 0) // STEP + 1
    return planned_until + min(steps * STEP, LONGEST)


def carried(booking: HeldBooking, taken: Iterable[Taken], *, until: int) -> list[Part]:
    """The booking in runs of devices that can be carried on equally far, up to ``until``.

    What somebody has booked in advance ends there where that begins; the rest goes on (so a run may be split).
    """
    low, high = booking.units
    size, rest = divmod(high - low, booking.devices)
    # Runs of devices of one size; if ever one is not, it stays whole.
    count, size = (1, high - low) if rest else (booking.devices, size)
    others = [one for one in taken if one.since < until]

    def limit(first: int) -> int:
        starts = [one.since for one in others if one.units[0] < first + size and first < one.units[1]]
        return max(booking.edge, min([until, *starts]))

    parts = []
    for end, group in groupby(range(low, high, size), key=limit):
        firsts: Sequence[int] = list(group)
        devices = booking.devices if count == 1 else len(firsts)
        parts.append(Part((firsts[0], firsts[-1] + size), devices, end))
    return parts
