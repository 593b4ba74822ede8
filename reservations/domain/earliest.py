"""When a demand could start: a pure function over the known ends of bookings, maintenance and claims (POL-2, REC-9).

On its devices a booking of ``[a, b)`` forbids a window of length ``d`` exactly the starts in ``(a - d, b)``. So each
host is swept once over the starts that its bookings forbid, and no window is ever tried: the work is that of sorting
the bookings, whatever the length of the search. Host amounts come in as the times at which they are short.
"""

from collections.abc import Iterable, Iterator, Sequence

from reservations.domain.demands import Demand
from reservations.domain.hosts import Busy, Host, shortages
from reservations.domain.masks import ALL

Ranges = list[tuple[int, int]]

# Up to so many devices of a host are looked at one by one; beyond that all at once, as masks.
_FEW_BITS = 64


def earliest_start(hosts: Iterable[Host], demand: Demand, *, before: int) -> int | None:
    """The first start in ``[demand.starts_at, before)`` at which the demand fits; None if there is none."""
    if demand.nodes > 1:
        ranges = start_ranges(hosts, demand, before=before, limit=1)
        return ranges[0][0] if ranges else None
    best: int | None = None
    for host in hosts:
        found = _host_ranges(host, demand, before if best is None else best)
        if found:
            best = found[0][0]
            if best == demand.starts_at:
                break
    return best


def start_ranges(hosts: Iterable[Host], demand: Demand, *, before: int, limit: int | None = None) -> Ranges:
    """The starts in ``[demand.starts_at, before)`` at which the demand fits: up to ``limit`` ranges ``(first, last)``,
    both included, in order."""
    steps: dict[int, int] = {}
    for host in hosts:
        for begin, end in _host_ranges(host, demand, before):
            steps[begin] = steps.get(begin, 0) + 1
            steps[end] = steps.get(end, 0) - 1
    found: Ranges = []
    ready, since = 0, None
    for moment in sorted(steps):
        ready += steps[moment]
        if ready >= demand.nodes:
            since = moment if since is None else since
        elif since is not None:
            found.append((since, moment - 1))
            since = None
            if len(found) == limit:
                break
    return found


def free_over_time(hosts: Iterable[Host], *, starts_at: int, ends_at: int) -> list[tuple[int, int, int]]:
    """How many devices of all hosts are free: ``(from, to, devices)`` for each stretch of the window, in order."""
    changes = {starts_at: 0}
    for host in hosts:
        before = 0
        for moment, _, taken in _levels(((b.mask, b.starts_at, b.ends_at) for b in host.busy), starts_at, ends_at):
            now = (host.bookable & ~taken).bit_count()
            if now != before:
                changes[moment] = changes.get(moment, 0) + now - before
                before = now
    found: list[tuple[int, int, int]] = []
    free = 0
    for moment in sorted(changes):
        if found and changes[moment]:
            found[-1] = (found[-1][0], moment, found[-1][2])
        free += changes[moment]
        if not found or changes[moment]:
            found.append((moment, ends_at, free))
    return found


def _host_ranges(host: Host, demand: Demand, before: int) -> Ranges:
    """The starts at which the host has the devices and amounts, as half-open ranges before ``before``, in order."""
    first = demand.starts_at
    if not demand.slides:
        before = min(before, demand.ends_at)
    if host.bookable.bit_count() < demand.count or first >= before:
        return []
    search = _by_bits if host.bookable.bit_length() <= _FEW_BITS else _by_levels
    found = search(host.bookable, host.busy, demand, before)
    # Amounts are looked at only where there are devices: most hosts of a full pool have none.
    if found and (short := shortages(host.capacity, host.used, demand.need)):
        closed = [Busy(ALL, begin, end) for begin, end in short]
        found = search(host.bookable, [*host.busy, *closed], demand, before)
    return found


def _forbidden(busy: Iterable[Busy], demand: Demand) -> Iterator[tuple[int, int, int]]:
    """The starts that each booking forbids on its devices: (mask, first, after the last)."""
    if demand.slides:
        length = demand.ends_at - demand.starts_at - 1
        return ((mask, begin - length, end) for mask, begin, end in busy)
    return ((mask, demand.starts_at, end) for mask, begin, end in busy if begin < demand.ends_at)


def _by_bits(bookable: int, busy: Iterable[Busy], demand: Demand, before: int) -> Ranges:
    """For few devices: device by device the gaps between bookings that are long enough, then how many at once."""
    first = demand.starts_at
    steps: list[tuple[int, int]] = []
    free_from = dict.fromkeys(_bits(bookable), first)
    for begin, end, mask in sorted((begin, end, mask) for mask, begin, end in _forbidden(busy, demand) if end > first):
        left = mask & bookable
        while left:
            bit = left & -left
            left ^= bit
            since = free_from[bit]
            if begin > since < before:
                steps.append((since, 1))
                steps.append((begin, -1))
            if end > since:
                free_from[bit] = end
    steps += [(since, 1) for since in free_from.values() if since < before]
    steps.sort()
    return _enough(steps, demand.count, before)


def _enough(steps: Iterable[tuple[int, int]], count: int, before: int) -> Ranges:
    """The ranges in which at least ``count`` are there, out of when one more or one fewer is."""
    found: Ranges = []
    ready, since, last = 0, None, None
    for moment, change in steps:
        if moment != last:
            # What happens at one moment counts as a whole.
            since = _turn(found, ready >= count, since, last)
            last = moment
        if moment >= before:
            break
        ready += change
    else:
        since = _turn(found, ready >= count, since, last)
    if since is not None:
        found.append((since, before))
    return found


def _turn(found: Ranges, enough: bool, since: int | None, moment: int | None) -> int | None:  # noqa: FBT001
    if enough:
        return moment if since is None else since
    if since is not None and moment is not None:
        found.append((since, moment))
    return None


def _bits(mask: int) -> Iterator[int]:
    while mask:
        bit = mask & -mask
        mask ^= bit
        yield bit


def _by_levels(bookable: int, busy: Iterable[Busy], demand: Demand, before: int) -> Ranges:
    """For many devices: stretch by stretch what is forbidden of all of them together."""
    found: Ranges = []
    since: int | None = None
    for moment, until, taken in _levels(_forbidden(busy, demand), demand.starts_at, before):
        if (bookable & ~taken).bit_count() >= demand.count:
            since = moment if since is None else since
            if until == before:
                found.append((since, before))
        elif since is not None:
            found.append((since, moment))
            since = None
    return found


def _levels(intervals: Iterable[tuple[int, int, int]], starts_at: int, ends_at: int) -> Iterator[tuple[int, int, int]]:
    """Stretches ``(from, to, taken)`` of ``[starts_at, ends_at)``, in order: the union of the masks that hold there.

    How often each bit is taken is counted in bit-sliced numbers: ``planes[i]`` holds bit ``i`` of every count, so that
    an interval costs a few operations, however many devices it is of.
    """
    begins: list[tuple[int, int]] = []
    ends: list[tuple[int, int]] = []
    planes: list[int] = []
    for mask, begin, end in intervals:
        if end <= starts_at or begin >= ends_at:
            continue
        ends.append((end, mask))
        if begin <= starts_at:
            _add(planes, mask)
        else:
            begins.append((begin, mask))
    begins.sort()
    ends.sort()
    begins.append((ends_at, 0))
    ends.append((ends_at, 0))
    moment, b, e = starts_at, 0, 0
    while moment < ends_at:
        until = min(begins[b][0], ends[e][0])
        if until > moment:
            yield moment, until, _union(planes)
            moment = until
        while begins[b][0] == moment < ends_at:
            _add(planes, begins[b][1])
            b += 1
        while ends[e][0] == moment < ends_at:
            _take(planes, ends[e][1])
            e += 1


def _add(planes: list[int], mask: int) -> None:
    for i, plane in enumerate(planes):
        planes[i] = plane ^ mask
        mask &= plane
        if not mask:
            return
    planes.append(mask)


def _take(planes: list[int], mask: int) -> None:
    for i, plane in enumerate(planes):
        planes[i] = plane ^ mask
        mask &= ~plane
        if not mask:
            return


def _union(planes: Sequence[int]) -> int:
    taken = 0
    for plane in planes:
        taken |= plane
    return taken
