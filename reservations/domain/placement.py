"""Where a request goes: a pure function of a pool's snapshot (CRE-14, REC-9, DESIGN §5).

Choice: as many nodes as asked for and no more, of these the fullest that still fit, then a stable order; on a node the
shortest run of adjacent free devices that is long enough, else the lowest free ones. A request fits a device only if
its whole window lies in one free gap of it, and a node only if the host amounts are there at every instant of it.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from reservations.domain import earliest, shortfalls
from reservations.domain.demands import Assignment, Demand, Keeps, Kept, Outcome, Shortfall
from reservations.domain.hosts import NOTHING, Amounts, Busy, Host, Use, shortages
from reservations.domain.masks import ALL, choose, positions, runs

__all__ = [
    "ALL",
    "NOTHING",
    "Amounts",
    "Assignment",
    "Busy",
    "Demand",
    "Host",
    "Kept",
    "Outcome",
    "Placer",
    "Shortfall",
    "Use",
    "choose",
    "positions",
    "runs",
]

# How many failures, none of which explains another, are remembered.
_REMEMBERED = 128

# A host that fits: how many devices it would have left beside, its id, its free devices.
Candidate = tuple[int, str, int]


class Placer:
    """Places demands one after the other into a snapshot, which fills up as it goes.

    ``kept``, by host, are claims: busy for all but their owners. Equal or larger shapes than one that has failed fail
    without another scan: the snapshot only gets fuller.
    """

    def __init__(self, hosts: Iterable[Host], kept: Mapping[str, Sequence[Kept]] | None = None) -> None:
        self._hosts = {host.id: host for host in sorted(hosts, key=lambda h: h.id)}
        self._claims: Keeps = {name: tuple(items) for name, items in (kept or {}).items() if name in self._hosts}
        self._owners = {item.owner for items in self._claims.values() for item in items}
        self._shadow: dict[str, Kept] = {}
        self._head: Demand | None = None
        self._known: dict[tuple[object, ...], Shortfall] = {}
        self._failed: list[Shortfall] = []
        self._taken = _TakenFrom()
        self._short: dict[str, dict[Amounts, list[tuple[int, int]]]] = {}
        self._nevers: dict[tuple[int, int, Amounts], Shortfall | None] = {}

    @property
    def hosts(self) -> list[Host]:
        """The snapshot as it is by now, in the order of ids."""
        return list(self._hosts.values())

    @property
    def head(self) -> Demand | None:
        """The first in line, if there is one."""
        return self._head

    def place(self, demand: Demand, *, behind: bool = True) -> Outcome:
        """Place one demand, or say why not. ``behind``: it comes after the first in line, and must not delay it."""
        found = self.try_place(demand, behind=behind)
        if isinstance(found, Assignment):
            self._book(found)
        return found

    def try_place(self, demand: Demand, *, behind: bool = True) -> Outcome:
        """What `place` would answer; the snapshot stays as it is."""
        if never := self._never(demand):
            return never
        if failure := self._failure_of(demand, behind=behind):
            return shortfalls.shared(failure, demand)
        shadow = self._shadow if behind and not self._is_head(demand) else {}
        found = self._candidates(demand, shadow)
        if len(found) >= demand.nodes:
            chosen = sorted(found)[: demand.nodes]
            return Assignment(demand, tuple((host_id, choose(free, demand.count)) for _, host_id, free in chosen))
        if shadow and len(self._candidates(demand, {})) >= demand.nodes:
            return self._remember(shortfalls.behind_head(demand, min(kept.starts_at for kept in shadow.values())))
        return self._remember(self._explain(demand))

    def keep_for_head(self, demand: Demand, *, latest_start: int, before: int) -> bool:
        """Make this demand, which does not fit now, the first in line: keep the devices of its earliest fit for it.

        False if it could not fit in time as far as is known: then another may be the first (REC-9). ``latest_start`` is
        the last start that is of use to it. The snapshot need not reach beyond ``before`` plus the demand's length: one
        that fits later only delays nobody who ends by then.
        """
        self.forget_head()
        limit = min(before, latest_start + 1)
        start = self.earliest(demand, before=limit)
        if start is None:
            if latest_start < before or self._able_now(demand) < demand.nodes:
                return False
            self._head = demand
            return True
        later = demand.at(start)
        for _, host_id, free in sorted(self._candidates(later, {}))[: demand.nodes]:
            mask = choose(free, demand.count)
            self._shadow[host_id] = Kept(demand.id, mask, start, later.ends_at, demand.need)
        self._head = demand
        return True

    def forget_head(self) -> None:
        """There is no first in line, or it is another."""
        self._head, self._shadow = None, {}
        self._failed = [failure for failure in self._failed if failure.reason != shortfalls.BEHIND_HEAD]
        self._known = {s: f for s, f in self._known.items() if f.reason != shortfalls.BEHIND_HEAD}

    def seen_by(self, demand: Demand, *, behind: bool = True) -> list[Host]:
        """The hosts as this demand sees them: what is kept for others is busy."""
        shadow = self._shadow if behind and not self._is_head(demand) else {}
        return [self._with_kept(host, self._kept(host.id, demand, shadow)) for host in self._hosts.values()]

    def replace(self, hosts: Iterable[Host]) -> None:
        """Spot work makes way (PRE-1): these hosts have become emptier, so what has failed may fit now."""
        for host in hosts:
            self._hosts[host.id] = host
            self._taken.forget(host.id)
        self._short.clear()
        self._forget_failures()

    def keep(self, host_id: str, kept: Kept) -> None:
        """Keep devices for a demand that cannot have them yet (PRE-2)."""
        self._claims = {**self._claims, host_id: (*self._claims.get(host_id, ()), kept)}
        self._owners.add(kept.owner)

    def drop_claims(self, owner: str) -> None:
        """Nothing is kept for this demand any more."""
        self._claims = {name: tuple(k for k in items if k.owner != owner) for name, items in self._claims.items()}
        self._owners.discard(owner)
        self._forget_failures()

    def _forget_failures(self) -> None:
        self._known.clear()
        self._failed.clear()

    def touches_shadow(self, found: Assignment) -> bool:
        """Whether the assignment takes anything that is kept for the first in line."""
        return any(
            (kept := self._shadow.get(host_id))
            and kept.starts_at < found.demand.ends_at
            and found.demand.starts_at < kept.ends_at
            for host_id, _ in found.hosts
        )

    def earliest(self, demand: Demand, *, before: int) -> int | None:
        """The first start in ``[demand.starts_at, before)`` at which it fits; claims and the shadow count."""
        return earliest.earliest_start(self._as_seen_by(demand), demand, before=before)

    def start_ranges(self, demand: Demand, *, before: int, limit: int | None = None) -> list[tuple[int, int]]:
        """The starts at which it fits, as ranges of which both ends are included; claims and the shadow count."""
        return earliest.start_ranges(self._as_seen_by(demand), demand, before=before, limit=limit)

    def free_over_time(self, *, starts_at: int, ends_at: int) -> list[tuple[int, int, int]]:
        """How many devices are free when: ``(from, to, devices)``; claims and the shadow count."""
        hosts = (
            self._with_kept(host, [*self._claims.get(name, ()), *filter(None, [self._shadow.get(name)])])
            for name, host in self._hosts.items()
        )
        return earliest.free_over_time(hosts, starts_at=starts_at, ends_at=ends_at)

    def _is_head(self, demand: Demand) -> bool:
        return self._head is not None and self._head.id == demand.id

    def _as_seen_by(self, demand: Demand) -> Iterable[Host]:
        return (self._with_kept(host, self._kept(host.id, demand, self._shadow)) for host in self._hosts.values())

    def _kept(self, host_id: str, demand: Demand, shadow: Mapping[str, Kept]) -> list[Kept]:
        found = [kept for kept in self._claims.get(host_id, ()) if kept.owner != demand.id]
        if (kept := shadow.get(host_id)) and kept.owner != demand.id:
            found.append(kept)
        return found

    @staticmethod
    def _with_kept(host: Host, kept: Sequence[Kept]) -> Host:
        if not kept:
            return host
        busy = [Busy(item.mask, item.starts_at, item.ends_at) for item in kept]
        used = [Use(item.starts_at, item.ends_at, item.amounts) for item in kept if any(item.amounts)]
        return host._replace(busy=(*host.busy, *busy), used=(*host.used, *used))

    def _candidates(self, demand: Demand, shadow: Mapping[str, Kept]) -> list[Candidate]:
        found = []
        count, start, end = demand.count, demand.starts_at, demand.ends_at
        taken_until = self._taken.of(start)
        for host_id, host in self._hosts.items():
            if host.bookable.bit_count() < count:
                continue
            if host_id in self._claims or host_id in shadow:
                seen = self._with_kept(host, self._kept(host_id, demand, shadow))
                free = seen.free(start, end, demand.need)
            else:
                free = host.bookable & ~taken_until(host, end)
                if free.bit_count() >= count and self._is_short(host, demand):
                    continue
            if (left := free.bit_count()) >= count:
                found.append((left, host_id, free))
                if left == count and demand.nodes == 1:
                    # No host can be fuller, and those to come are later in the order.
                    break
        return found

    def _is_short(self, host: Host, demand: Demand) -> bool:
        if demand.need == NOTHING and not host.used:
            return False
        known = self._short.setdefault(host.id, {})
        short = known.get(demand.need)
        if short is None:
            short = known[demand.need] = shortages(host.capacity, host.used, demand.need)
        return any(begin < demand.ends_at and demand.starts_at < end for begin, end in short)

    def _book(self, found: Assignment) -> None:
        demand = found.demand
        for host_id, mask in found.hosts:
            host = self._hosts[host_id]
            busy = (*host.busy, Busy(mask, demand.starts_at, demand.ends_at))
            used = host.used
            if demand.need != NOTHING:
                used = (*used, Use(demand.starts_at, demand.ends_at, demand.need))
                self._short.pop(host_id, None)
            self._hosts[host_id] = host._replace(busy=busy, used=used)
            self._taken.forget(host_id)

    def _never(self, demand: Demand) -> Shortfall | None:
        """More than the pool could ever give, even if all its nodes were free and took bookings."""
        key = (demand.count, demand.nodes, demand.need)
        if key not in self._nevers:
            able = sum(
                host.devices.bit_count() >= demand.count and _covers(host.capacity, demand.need)
                for host in self._hosts.values()
            )
            never = shortfalls.never_fits(demand, self._hosts.values()) if able < demand.nodes else None
            self._nevers[key] = never
        known = self._nevers[key]
        return known and replace(known, demand=demand)

    def _able_now(self, demand: Demand) -> int:
        return sum(
            host.bookable.bit_count() >= demand.count and _covers(host.capacity, demand.need)
            for host in self._hosts.values()
        )

    def _explain(self, demand: Demand) -> Shortfall:
        taken = self._taken.of(demand.starts_at)
        seen = []
        for host_id, host in self._hosts.items():
            if kept := self._kept(host_id, demand, {}):
                shown = self._with_kept(host, kept)
                seen.append((shown, _taken(shown, demand.starts_at, demand.ends_at)))
            else:
                seen.append((host, taken(host, demand.ends_at)))
        return shortfalls.explain(demand, seen)

    def _failure_of(self, demand: Demand, *, behind: bool) -> Shortfall | None:
        if demand.id in self._owners or self._is_head(demand):
            return None
        failure = self._known.get(demand.shape)
        if failure is None:
            failure = next((known for known in self._failed if demand.asks_as_much_as(known.demand)), None)
        if failure is not None and failure.reason == shortfalls.BEHIND_HEAD and not behind:
            return None
        return failure

    def _remember(self, failure: Shortfall) -> Shortfall:
        """Of those that explain each other the smallest is kept."""
        if failure.demand.id not in self._owners:
            self._known[failure.demand.shape] = failure
            kept = [known for known in self._failed if not known.demand.asks_as_much_as(failure.demand)]
            self._failed = [*kept, failure][-_REMEMBERED:]
        return failure


def _covers(capacity: Amounts, need: Amounts) -> bool:
    return capacity[0] >= need[0] and capacity[1] >= need[1] and capacity[2] >= need[2]


class _TakenFrom:
    """What is taken of each host from a start on until some end: for a start that is asked about again and again, as
    ``now`` is in a pass, the union over all bookings up to each of their beginnings is kept, and looked up."""

    _MOST_STARTS = 64

    def __init__(self) -> None:
        self._asked: dict[int, dict[str, tuple[list[int], list[int]]]] = {}

    def of(self, start: int) -> Callable[[Host, int], int]:
        """``taken(host, end)``: the union of what is busy in ``[start, end)``."""
        unions = self._asked.get(start)
        if unions is None:
            # The first time nothing is built: one request looks at each host once.
            if len(self._asked) < self._MOST_STARTS:
                self._asked[start] = {}
            return lambda host, end: _taken(host, start, end)

        def taken(host: Host, end: int) -> int:
            known = unions.get(host.id)
            if known is None:
                known = unions[host.id] = _unions(host, start)
            begins, masks = known
            index = bisect_left(begins, end)
            return masks[index - 1] if index else 0

        return taken

    def forget(self, host_id: str) -> None:
        """The host has been booked."""
        for unions in self._asked.values():
            unions.pop(host_id, None)


def _taken(host: Host, start: int, end: int) -> int:
    taken = 0
    for mask, begin, until in host.busy:
        if begin < end and start < until:
            taken |= mask
    return taken


def _unions(host: Host, start: int) -> tuple[list[int], list[int]]:
    """When something more becomes taken after ``start``, and what is taken by then in all."""
    begins: list[int] = []
    masks: list[int] = []
    taken = 0
    for begin, mask in sorted((max(begin, start), mask) for mask, begin, until in host.busy if until > start):
        taken |= mask
        if begins and begins[-1] == begin:
            masks[-1] = taken
        else:
            begins.append(begin)
            masks.append(taken)
    return begins, masks
