"""What ``pools/availability`` tells of a pool's future (POL-2)."""

from collections.abc import Iterator, Sequence

from computeplatform.errors import Issue
from reservations.domain.requests import DAY, START_TOLERANCE

# How many windows are told at most, and how many stretches of time with their free devices.
MOST_WINDOWS = 10
MOST_STRETCHES = 200

Free = tuple[int, int, int]


def range_issues(*, begin: int, end: int, length: int, max_advance_days: int, now: int) -> Iterator[Issue]:
    """What is wrong with the range ``[begin, end)`` in which windows of ``length`` milliseconds are looked for."""
    if begin < now - START_TOLERANCE:
        yield Issue("from", "is more than 60 seconds in the past")
    if end <= max(begin, now):
        yield Issue("to", "must be after from, and in the future")
    elif end - max(begin, now) < length:
        yield Issue("durationSeconds", "is longer than the range" + (", which begins now" if begin < now else ""))
    if end - now > max_advance_days * DAY:
        yield Issue("to", f"is more than the pool's {max_advance_days} days ahead")


def windows(start_ranges: Sequence[tuple[int, int]], length: int) -> list[tuple[int, int]]:
    """From the starts at which it fits (first, last) to the windows ``[begin, end)`` anywhere in which it fits."""
    return [(first, last + length) for first, last in start_ranges]


def condensed(free: Sequence[Free], most: int) -> list[Free]:
    """The stretches, neighbours told as one where there would be more than ``most``: with the fewest that are free."""
    size = -(-len(free) // most)
    found: list[Free] = []
    for index in range(0, len(free), max(size, 1)):
        together = free[index : index + size]
        begin, end, devices = together[0][0], together[-1][1], min(devices for _, _, devices in together)
        if found and found[-1][2] == devices:
            begin = found.pop()[0]
        found.append((begin, end, devices))
    return found
