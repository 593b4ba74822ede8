"""A node as placement sees it: which of its devices are taken when, and how much of the host (HST-1).

Devices are masks (`masks`), so what is taken in a window is a union. Host amounts are sums, and it is their peak that
counts: two bookings that follow each other in the window need the larger of the two, never both.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

# A time that never comes; it fits into a column of the database.
FOREVER = 2**62


class Amounts(NamedTuple):
    """Host amounts in the units in which they are kept: 0.001 vCPU, MiB, pages of 1 GiB."""

    vcpu_milli: int = 0
    memory_mib: int = 0
    hugepages_1gi: int = 0


NOTHING = Amounts()


class Busy(NamedTuple):
    """Devices of one host that are taken in ``[starts_at, ends_at)``."""

    mask: int
    starts_at: int
    ends_at: int


class Use(NamedTuple):
    """Amounts of one host that are booked in ``[starts_at, ends_at)``."""

    starts_at: int
    ends_at: int
    amounts: tuple[int, int, int]


class Host(NamedTuple):
    """A node; a named tuple, not a dataclass: a snapshot has a thousand of them, and they are made faster.

    ``devices``: the grains that hold a device of the pool at all; ``bookable``: those that may be booked now (healthy,
    on a node that takes bookings). ``capacity``: what the node reports, 0 where it reports nothing.
    ``busy`` are bookings and maintenance, ``used`` the host amounts of the same bookings, where they have any.
    """

    id: str
    devices: int
    bookable: int
    busy: Sequence[Busy] = ()
    capacity: Amounts = NOTHING
    used: Sequence[Use] = ()

    def free(self, starts_at: int, ends_at: int, need: Amounts = NOTHING) -> int:
        """The bookable grains that are free during the whole window; none where the host has too little left."""
        taken = 0
        for mask, begin, end in self.busy:
            if begin < ends_at and starts_at < end:
                taken |= mask
        free = self.bookable & ~taken
        return free if free and self.has_room(starts_at, ends_at, need) else 0

    def has_room(self, starts_at: int, ends_at: int, need: Amounts = NOTHING) -> bool:
        """Whether the host can give so much beside what is booked, at every instant of the window."""
        short = shortages(self.capacity, self.used, need)
        return not any(begin < ends_at and starts_at < end for begin, end in short)

    def reach(self, mask: int, need: Amounts, *, since: int, wanted: int) -> int:
        """The latest end, at most ``wanted``, to which these grains and amounts are free from ``since`` on (EXT-3)."""
        begins = [begin for taken, begin, end in self.busy if taken & mask and end > since]
        begins += [begin for begin, end in shortages(self.capacity, self.used, need) if end > since]
        return max(since, min([wanted, *begins]))


def shortages(capacity: Amounts, used: Sequence[Use], need: Amounts) -> list[tuple[int, int]]:
    """When ``need`` does not fit beside what is used, as half-open intervals, in order.

    A node that has come to report less than is booked is short whatever is needed: it takes nothing new until it fits
    again (HST-1).
    """
    room = (capacity[0] - need[0], capacity[1] - need[1], capacity[2] - need[2])
    if min(room) < 0:
        return [(0, FOREVER)]
    if not used or _fits_at_once(room, used):
        return []
    return _above(room, used)


def _fits_at_once(room: tuple[int, int, int], used: Sequence[Use]) -> bool:
    vcpu = memory = pages = 0
    for _, _, amounts in used:
        vcpu += amounts[0]
        memory += amounts[1]
        pages += amounts[2]
    return vcpu <= room[0] and memory <= room[1] and pages <= room[2]


def _above(room: tuple[int, int, int], used: Iterable[Use]) -> list[tuple[int, int]]:
    """When more than ``room`` is used."""
    steps = []
    for starts_at, ends_at, (vcpu, memory, pages) in used:
        steps.append((starts_at, vcpu, memory, pages))
        steps.append((ends_at, -vcpu, -memory, -pages))
    # At one instant the ends come first: half-open windows may touch.
    steps.sort()
    found: list[tuple[int, int]] = []
    since: int | None = None
    vcpu_left, memory_left, pages_left = room
    for moment, vcpu, memory, pages in steps:
        vcpu_left -= vcpu
        memory_left -= memory
        pages_left -= pages
        if vcpu_left >= 0 and memory_left >= 0 and pages_left >= 0:
            if since is not None and since < moment:
                found.append((since, moment))
            since = None
        elif since is None:
            since = moment
    return found


def peak(used: Iterable[Use], starts_at: int, ends_at: int) -> Amounts:
    """The most that is used of each amount at any instant of the window."""
    inside = [use for use in used if use[0] < ends_at and starts_at < use[1]]
    levels = [
        [sum(amounts[i] for begin, end, amounts in inside if begin <= moment < end) for i in range(3)]
        for moment in {max(begin, starts_at) for begin, _, _ in inside}
    ]
    return Amounts(*(max(amounts) for amounts in zip(*levels, strict=True))) if levels else NOTHING
