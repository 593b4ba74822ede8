"""Which spot reservations make way for a demand that does not fit: a pure function of a pool's snapshot (PRE-1).

The nodes with the fewest victims come first, on them those of the lowest priority, then the youngest; whoever turns out
not to be needed is let go again. All or nothing: without enough victims for the whole demand there are none.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import reduce
from heapq import heappop, heappush
from itertools import accumulate
from operator import or_
from typing import TypeVar

from reservations.domain.demands import Demand
from reservations.domain.hosts import Busy, Host, Use

# On a host with more of them, and once so much work was done for one demand, not every set is tried: the victims
# suffice and are all needed, but there may be a smaller set. Whole GPUs stay far below: a node has 8 or 16 of them.
CROWD = 64
WORK = 500_000

# Comes after whatever was found.
LAST = 1_000_000

Rank = tuple[int, int, str]
T = TypeVar("T")


@dataclass(frozen=True)
class Part:
    """What a reservation has on one host: just what the host's own ``busy`` and ``used`` say of it."""

    busy: tuple[Busy, ...]
    used: tuple[Use, ...] = ()


@dataclass(frozen=True)
class Victim:
    """A spot reservation that could make way, and what it has, by host."""

    id: str
    priority: int
    created_at: int
    parts: Mapping[str, Part]

    @property
    def rank(self) -> Rank:
        """Who goes first: the lowest priority, then the youngest."""
        return self.priority, -self.created_at, self.id


def choose_victims(demand: Demand, hosts: Sequence[Host], candidates: Iterable[Victim]) -> tuple[Victim, ...]:
    """Who has to go so that the demand fits, most dispensable first; nobody if it fits, or cannot be made to fit.

    ``hosts``: the snapshot with everything that is booked, the candidates too.
    """
    by_host: dict[str, list[Victim]] = {}
    for victim in sorted(candidates, key=lambda v: v.rank):
        for host_id in victim.parts:
            by_host.setdefault(host_id, []).append(victim)
    seats = [_Seat(host, demand, by_host.get(host.id, ())) for host in hosts]
    seats = [seat for seat in seats if seat.possible]
    if len(seats) < demand.nodes:
        return ()
    return _needed(_Search(seats).take(demand.nodes), seats, demand.nodes)


def runs_until(window: tuple[int, int], start: int, *, now: int, notice: int) -> int | None:
    """When one with this window, in the way of ``start``, has to end if it may run till then; None: it goes at once.

    What runs has its notice; what has not begun, and could not have it, does not begin.
    """
    starts_at, ends_at = window
    if starts_at <= now:
        until = max(start, now + notice)
        return min(until, ends_at) if until > now else None
    return start if starts_at < start and start - now >= notice else None


def cut(victim: Victim, at: int) -> Victim:
    """What is left of the victim if it ends at ``at``."""
    parts = {}
    for host_id, part in victim.parts.items():
        busy = tuple(one._replace(ends_at=min(one.ends_at, at)) for one in part.busy if one.starts_at < at)
        used = tuple(use._replace(ends_at=min(use.ends_at, at)) for use in part.used if use.starts_at < at)
        parts[host_id] = Part(busy, used)
    return replace(victim, parts=parts)


def exchanged(hosts: Iterable[Host], gone: Collection[Victim], left: Collection[Victim] = ()) -> list[Host]:
    """The hosts without those who have gone, and with what is left of some of them."""
    changed = []
    for host in hosts:
        away = [victim.parts[host.id] for victim in gone if host.id in victim.parts]
        back = [victim.parts[host.id] for victim in left if host.id in victim.parts]
        changed.append(_occupied(vacated(host, away), back) if away or back else host)
    return changed


def vacated(host: Host, parts: Iterable[Part]) -> Host:
    """The host without these parts; what is not there need not go."""
    found = list(parts)
    busy = _without(host.busy, (one for part in found for one in part.busy))
    used = _without(host.used, (use for part in found for use in part.used))
    return host._replace(busy=busy, used=used)


def _without(all_: Iterable[T], some: Iterable[T]) -> tuple[T, ...]:
    """Each of ``some`` is taken away once."""
    gone = Counter(some)
    left = []
    for one in all_:
        if gone[one] > 0:
            gone[one] -= 1
        else:
            left.append(one)
    return tuple(left)


def _occupied(host: Host, parts: Iterable[Part]) -> Host:
    found = list(parts)
    busy = [one for part in found for one in part.busy]
    used = [use for part in found for use in part.used]
    return host._replace(busy=(*host.busy, *busy), used=(*host.used, *used))


class _Seat:
    """One host, and who may be sent away from it."""

    def __init__(self, host: Host, demand: Demand, victims: Iterable[Victim]) -> None:
        self.id = host.id
        self._demand = demand
        self._victims = [v for v in victims if any(_meets(busy, demand) for busy in v.parts[host.id].busy)]
        self._parts = {v.id: v.parts[host.id] for v in self._victims}
        self._bare = vacated(host, self._parts.values())
        free = _free(self._bare, demand)
        self._holds = {id_: (free & _mask(part, demand)).bit_count() for id_, part in self._parts.items()}
        self.possible = _fits(self._bare, demand)
        # What it costs to ask whether the demand fits.
        self.work = 1 + len(self._victims)

    def left(self, gone: AbstractSet[str]) -> list[Victim]:
        """Who is still here, most dispensable first."""
        return [v for v in self._victims if v.id not in gone]

    def fits(self, gone: AbstractSet[str]) -> bool:
        """Whether the demand fits here once these have gone."""
        return _fits(self._without(gone), self._demand)

    def largest(self, gone: AbstractSet[str]) -> list[Victim]:
        """Who is still here, whoever holds most of what could be had first."""
        return sorted(self.left(gone), key=lambda v: -self._holds[v.id])

    def at_least(self, gone: AbstractSet[str]) -> int:
        """So many more have to go for want of devices: those that hold most of them would have to do."""
        missing, size = self._missing(gone), 0
        for victim in self.largest(gone):
            if missing <= 0:
                break
            missing, size = missing - self._holds[victim.id], size + 1
        return size

    def sets(self, gone: AbstractSet[str], size: int) -> Iterator[tuple[Victim, ...]]:
        """Every set of that many more, the most dispensable first, that holds as many devices as are missing."""
        left = self.left(gone)
        holds = [self._holds[v.id] for v in left]
        # The most that any number of those from a place on hold together.
        most = [[0, *accumulate(sorted(holds[at:], reverse=True))] for at in range(len(left))]

        def extend(chosen: tuple[Victim, ...], start: int, missing: int) -> Iterator[tuple[Victim, ...]]:
            more = size - len(chosen)
            if more == 0:
                yield chosen
                return
            for at in range(start, len(left) - more + 1):
                if most[at][more] < missing:
                    return
                yield from extend((*chosen, left[at]), at + 1, missing - holds[at])

        return extend((), 0, self._missing(gone))

    def _missing(self, gone: AbstractSet[str]) -> int:
        return self._demand.count - _free(self._without(gone), self._demand).bit_count()

    def _without(self, gone: AbstractSet[str]) -> Host:
        return _occupied(self._bare, (part for id_, part in self._parts.items() if id_ not in gone))


class _Search:
    """Takes host after host, each time the one on which the fewest more have to go."""

    def __init__(self, seats: Sequence[_Seat]) -> None:
        self._seats = {seat.id: seat for seat in seats}
        self._gone: dict[str, Victim] = {}
        self._work = WORK
        # (how many have to go, whether that is proved, who, host), and the search that the entry belongs to.
        self._heap: list[tuple[int, bool, list[Rank], str, int]] = []
        self._turn = dict.fromkeys(self._seats, 0)

    def take(self, nodes: int) -> list[Victim]:
        """Everybody who has to go from that many hosts."""
        for seat in self._seats.values():
            self._look(seat, seat.at_least(frozenset()))
        for _ in range(nodes):
            self._take_one()
        return list(self._gone.values())

    def _look(self, seat: _Seat, size: int) -> None:
        heappush(self._heap, (size, False, [], seat.id, self._turn[seat.id]))

    def _take_one(self) -> None:
        while True:
            size, proved, ranks, host_id, turn = heappop(self._heap)
            if host_id not in self._seats or turn != self._turn[host_id]:
                continue
            if proved:
                self._choose(host_id, ranks)
                return
            self._try(self._seats[host_id], size)

    def _try(self, seat: _Seat, size: int) -> None:
        """Prove that so many suffice, or that it takes one more."""
        if self._work < 0 and size < LAST:
            # Whatever was found on other hosts will do.
            return self._look(seat, size + LAST)
        if self._work < 0 or seat.work > CROWD:
            return self._settle(seat)
        for chosen in seat.sets(self._gone.keys(), size):
            self._work -= seat.work
            if self._work < 0:
                break
            if self._fits(seat, chosen):
                return self._found(seat, chosen)
        return self._look(seat, size + 1)

    def _settle(self, seat: _Seat) -> None:
        """Too many sets to try them all: those who hold most go, as many as it takes, but for who is not needed."""
        largest = seat.largest(self._gone.keys())
        size = bisect_left(range(len(largest)), x=True, key=lambda n: self._fits(seat, largest[:n]))
        self._work -= seat.work * (size + 10)
        self._found(seat, _needed(largest[:size], [seat], 1, gone=self._gone.keys()))

    def _fits(self, seat: _Seat, chosen: Collection[Victim]) -> bool:
        return seat.fits(self._gone.keys() | {v.id for v in chosen})

    def _found(self, seat: _Seat, chosen: Sequence[Victim]) -> None:
        ranks = [victim.rank for victim in chosen]
        heappush(self._heap, (len(ranks), True, ranks, seat.id, self._turn[seat.id]))

    def _choose(self, host_id: str, ranks: Sequence[Rank]) -> None:
        """The host is taken. Where else its victims were, fewer may have to go now."""
        seat = self._seats.pop(host_id)
        wanted = {id_ for _, _, id_ in ranks}
        victims = [v for v in seat.left(self._gone.keys()) if v.id in wanted]
        self._gone |= {v.id: v for v in victims}
        for other in {name for v in victims for name in v.parts if name in self._seats}:
            self._turn[other] += 1
            self._look(self._seats[other], self._seats[other].at_least(self._gone.keys()))


def _needed(
    chosen: Collection[Victim], seats: Sequence[_Seat], nodes: int, *, gone: AbstractSet[str] = frozenset()
) -> tuple[Victim, ...]:
    """Those without whom the demand would not fit; whoever is least dispensable is let go first."""
    away = gone | {v.id for v in chosen}
    room = {seat.id: seat.fits(away) for seat in seats}
    by_id = {seat.id: seat for seat in seats}
    needed = []
    for victim in sorted(chosen, key=lambda v: v.rank, reverse=True):
        without_it = away - {victim.id}
        changed = {name: by_id[name].fits(without_it) for name in victim.parts if room.get(name)}
        if sum(room.values()) - sum(not fits for fits in changed.values()) >= nodes:
            away, room = without_it, room | changed
        else:
            needed.append(victim)
    return tuple(reversed(needed))


def _meets(busy: Busy, demand: Demand) -> bool:
    return busy.starts_at < demand.ends_at and demand.starts_at < busy.ends_at


def _mask(part: Part, demand: Demand) -> int:
    return reduce(or_, (busy.mask for busy in part.busy if _meets(busy, demand)), 0)


def _free(host: Host, demand: Demand) -> int:
    return host.free(demand.starts_at, demand.ends_at)


def _fits(host: Host, demand: Demand) -> bool:
    return host.free(demand.starts_at, demand.ends_at, demand.need).bit_count() >= demand.count
