"""Where a request goes: a pure function of a pool's snapshot (CRE-14, DESIGN §5).

Choice: as many nodes as asked for and no more, of these the fullest that still fit, then a stable order; on a node the
shortest run of adjacent free devices that is long enough, else the lowest free positions. A request fits a device only
if its whole window lies in one free gap of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import NamedTuple


class Busy(NamedTuple):
    """Devices of one host (bit per position) that are taken in ``[starts_at, ends_at)``.

    A named tuple, not a dataclass, and so is Host: a snapshot holds thousands of them and they are made faster.
    """

    mask: int
    starts_at: int
    ends_at: int


class Host(NamedTuple):
    """A node as placement sees it.

    ``devices``: the positions that hold a device at all; ``bookable``: those that may be booked now (healthy, and the
    node ready, not cordoned, without a NoSchedule taint).
    """

    id: str
    devices: int
    bookable: int
    busy: Sequence[Busy] = ()

    def free(self, starts_at: int, ends_at: int) -> int:
        """The bookable positions that are free during the whole window."""
        taken = 0
        for mask, begins, ends in self.busy:
            if begins < ends_at and starts_at < ends:
                taken |= mask
        return self.bookable & ~taken


@dataclass(frozen=True)
class Demand:
    """``count`` devices on each of ``nodes`` distinct nodes for ``[starts_at, ends_at)``."""

    id: str
    count: int
    nodes: int
    starts_at: int
    ends_at: int
    resource: str = "gpu"

    def asks_as_much_as(self, other: "Demand") -> bool:
        """Whether wherever this fits, ``other`` would have fitted too."""
        return (
            self.count >= other.count
            and self.nodes >= other.nodes
            and self.starts_at <= other.starts_at
            and self.ends_at >= other.ends_at
        )


@dataclass(frozen=True)
class Assignment:
    """The positions (bit mask) on each host."""

    demand: Demand
    hosts: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Shortfall:
    """Why a demand does not fit: a reason from the contract's fixed list, and words with the numbers."""

    demand: Demand
    reason: str
    message: str


Outcome = Assignment | Shortfall


@dataclass
class Placer:
    """Places demands one after the other into a snapshot, which fills up as it goes.

    Equal or larger shapes than one that has failed fail without another scan: the snapshot only gets fuller.
    """

    hosts: Sequence[Host]
    _failed: list[Shortfall] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._hosts = {host.id: host for host in sorted(self.hosts, key=lambda h: h.id)}

    def place(self, demand: Demand) -> Outcome:
        """Place one demand, or say why not."""
        for failure in self._failed:
            if failure.reason != "NeverFits" and demand.asks_as_much_as(failure.demand):
                known = self._never(demand)
                return known or replace(failure, demand=demand, message=_words(demand, failure.message))
        candidates = self._candidates(demand)
        if len(candidates) < demand.nodes:
            shortfall = self._never(demand) or self._explain(demand)
            self._failed.append(shortfall)
            return shortfall
        chosen = sorted(candidates)[: demand.nodes]
        placed = tuple((host_id, choose(free, demand.count)) for _, host_id, free in chosen)
        for host_id, mask in placed:
            host = self._hosts[host_id]
            busy = Busy(mask, demand.starts_at, demand.ends_at)
            self._hosts[host_id] = host._replace(busy=(*host.busy, busy))
        return Assignment(demand, placed)

    def _candidates(self, demand: Demand) -> list[tuple[int, str, int]]:
        found = []
        for host in self._hosts.values():
            if host.bookable.bit_count() < demand.count:
                continue
            free = host.free(demand.starts_at, demand.ends_at)
            if (left := free.bit_count()) >= demand.count:
                found.append((left, host.id, free))
        return found

    def _never(self, demand: Demand) -> Shortfall | None:
        sizes = [host.devices.bit_count() for host in self._hosts.values()]
        if sum(size >= demand.count for size in sizes) >= demand.nodes:
            return None
        text = f"{_needs(demand)}; the pool has {len(sizes)} nodes, the largest with {max(sizes, default=0)}"
        if demand.nodes == 1 and sum(sizes) >= demand.count:
            text += "; a gang over several nodes can be asked for with 'nodes'"
        return Shortfall(demand, "NeverFits", text)

    def _explain(self, demand: Demand) -> Shortfall:
        hosts = self._hosts.values()
        usable = sum(host.bookable.bit_count() >= demand.count for host in hosts)
        if usable < demand.nodes:
            away = sum(host.devices != host.bookable for host in hosts)
            text = f"{_needs(demand)}; {away} nodes take no bookings or have unhealthy devices just now"
            return Shortfall(demand, "NodesUnavailable", text)
        free = [(host.free(demand.starts_at, demand.ends_at).bit_count(), host) for host in hosts]
        most, freest = max(free, key=lambda pair: (pair[0], pair[1].id))
        total = sum(count for count, _ in free)
        reason = "Fragmented" if total >= demand.count * demand.nodes else "NoFreeDevices"
        if demand.nodes == 1:
            text = f"{_needs(demand)}; the freest node has {most}{_until(freest, demand)}"
        else:
            ready = sum(count >= demand.count for count, _ in free)
            text = f"{_needs(demand)}; {ready} of {len(free)} nodes have that many free"
        if reason == "Fragmented":
            text += f"; {total} are free in all"
        return Shortfall(demand, reason, text)


def choose(free: int, count: int) -> int:
    """``count`` of the free positions: the tightest run of adjacent ones, else the lowest."""
    best: tuple[int, int] | None = None
    for start, length in runs(free):
        if length >= count and (best is None or length < best[1]):
            best = (start, length)
    if best:
        return ((1 << count) - 1) << best[0]
    mask = 0
    for position in positions(free):
        mask |= 1 << position
        if mask.bit_count() == count:
            break
    return mask


def positions(mask: int) -> list[int]:
    """The set bits, lowest first."""
    return [i for i in range(mask.bit_length()) if mask >> i & 1]


def runs(mask: int) -> list[tuple[int, int]]:
    """The runs of adjacent set bits as (first position, length), lowest first."""
    found: list[tuple[int, int]] = []
    for position in positions(mask):
        if found and sum(found[-1]) == position:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((position, 1))
    return found


def _needs(demand: Demand) -> str:
    where = "on one node" if demand.nodes == 1 else f"on each of {demand.nodes} nodes"
    return f"needs {demand.count} {demand.resource} {where}"


def _words(demand: Demand, message: str) -> str:
    """The explanation of a smaller demand, told of this one."""
    return f"{_needs(demand)};{message.partition(';')[2]}"


def _until(host: Host, demand: Demand) -> str:
    """When the host's free devices next change: the first end of a booking in the window."""
    ends = [b.ends_at for b in host.busy if b.starts_at < demand.ends_at and demand.starts_at < b.ends_at]
    if not ends:
        return ""
    moment = datetime.fromtimestamp(min(ends) / 1000, tz=UTC)
    return f" until {moment:%Y-%m-%d %H:%M} UTC"
