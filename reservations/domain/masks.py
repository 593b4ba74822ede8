"""Sets of devices of one node as the bits of a whole number: bit ``i`` is the node's grain ``i``.

A grain is what a pool's class books at a time: a GPU's position, one of eight places of MIG instances on it, or one of
its 256 slots. A mask of slots has up to 16,384 bits, so nothing here walks over them one by one.
"""

import re
from collections.abc import Iterator

# Every grain of a node, however many it has.
ALL = -1

_RUN = re.compile("1+")


def span(first: int, count: int) -> int:
    """``count`` grains side by side."""
    return ((1 << count) - 1) << first


def positions(mask: int) -> list[int]:
    """The set bits, lowest first."""
    return [i for start, length in runs(mask) for i in range(start, start + length)]


def runs(mask: int) -> list[tuple[int, int]]:
    """The runs of adjacent set bits as (first, length), lowest first."""
    return [(found.start(), found.end() - found.start()) for found in _RUN.finditer(f"{mask:b}"[::-1])]


def choose(free: int, count: int) -> int:
    """``count`` of the free bits: the tightest run of adjacent ones that is long enough, else the lowest."""
    lowest_run = free & -free
    if free.bit_count() == count:
        return free
    if not (free + lowest_run) & free:
        # One run only: the common case of an empty node.
        return span(lowest_run.bit_length() - 1, count)
    best = min(_long_enough(free, count), default=None)
    if best:
        return span(best[1], count)
    return free & ((1 << _prefix(free, count)) - 1)


def _long_enough(free: int, count: int) -> Iterator[tuple[int, int]]:
    return ((length, first) for first, length in runs(free) if length >= count)


def _prefix(free: int, count: int) -> int:
    """The shortest prefix of the mask with ``count`` set bits; there are that many."""
    low, high = count, free.bit_length()
    while low < high:
        middle = (low + high) // 2
        if (free & ((1 << middle) - 1)).bit_count() < count:
            low = middle + 1
        else:
            high = middle
    return low
