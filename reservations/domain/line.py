"""Who is the first in line, and who stands behind it (REC-9)."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from reservations.domain.demands import Assignment, Demand, Outcome, Shortfall
from reservations.domain.order import Rank, Waiting, rank
from reservations.domain.placement import Placer

# How many that could not be helped in time are looked at before it is said that nobody is the first.
_MOST_LOOKED_AT = 32


@dataclass(frozen=True)
class InLine:
    """One that waits, with what would be placed for it now, and the last start that is of use to it."""

    waiting: Waiting
    demand: Demand
    latest_start: int


class Line:
    """The order of REC-3 over those that wait, and the placer that keeps devices for the first of them that could fit.

    The first is looked for when somebody comes who would fit, not before: where nothing fits, it does not matter who
    is. ``held`` is read then too. ``before``: whoever comes ends by then, so that a later start of the first is of no
    interest; the placer's snapshot reaches so far, and beyond that by the longest window of those that wait.
    ``in_order``: all come one after the other in the order of REC-3, so each is behind those that came before.
    """

    def __init__(
        self,
        placer: Placer,
        entries: Iterable[InLine],
        held: Callable[[], Mapping[str, int]],
        *,
        before: int,
        in_order: bool = False,
    ) -> None:
        self._placer = placer
        self._entries = {entry.waiting.id: entry for entry in entries}
        self._read_held = held
        self._held: Mapping[str, int] | None = None
        self._taken: Counter[str] = Counter()
        self._before = before
        self._in_order = in_order
        self._looked_at = 0
        self._first: Waiting | None = None

    def place(self, item: Waiting, demand: Demand) -> Outcome:
        """Place one that comes now, without delaying the first in line if it stands behind that."""
        if not self._entries:
            return self._placer.place(demand, behind=False)
        if self._first is None and isinstance(found := self._placer.try_place(demand, behind=False), Shortfall):
            return found
        return self._placer.place(demand, behind=self.stands_before(item))

    def stands_before(self, item: Waiting) -> bool:
        """Whether somebody who could ever fit comes before ``item``; the placer then keeps devices for the first."""
        first = self._find_first() if self._entries else None
        return first is not None and first.id != item.id and self._precedes(first, item)

    def joins(self, entry: InLine) -> None:
        """This one waits from now on."""
        if self._first is None or not self._precedes(self._first, entry.waiting):
            self._entries[entry.waiting.id] = entry

    def took(self, item: Waiting, found: Assignment) -> None:
        """``item`` was placed. If it came before the first in line, that one is looked at anew."""
        self._entries.pop(item.id, None)
        first = self._first
        # What came after it leaves its devices alone.
        before_it = first is not None and (first.id == item.id or not self._precedes(first, item))
        self._taken[item.tenant_id] += item.devices
        if before_it and self._placer.touches_shadow(found):
            self._forget()

    def _find_first(self) -> Waiting | None:
        entries = list(self._entries.values())
        if not self._in_order:
            entries.sort(key=lambda e: self._rank(e.waiting))
        for entry in entries:
            item = entry.waiting
            if self._first is not None and self._first.id == item.id:
                return self._first
            if self._looked_at < _MOST_LOOKED_AT:
                self._looked_at += 1
                if self._placer.keep_for_head(entry.demand, latest_start=entry.latest_start, before=self._before):
                    self._first = item
                    return item
            # It will not fit later either: the snapshot only gets fuller.
            del self._entries[item.id]
        self._forget()
        return None

    def _precedes(self, first: Waiting, item: Waiting) -> bool:
        return self._in_order or self._rank(first) < self._rank(item)

    def _rank(self, item: Waiting) -> Rank:
        if self._held is None:
            self._held = self._read_held()
        tenant = item.tenant_id
        return rank(item, {tenant: self._held.get(tenant, 0) + self._taken[tenant]})

    def _forget(self) -> None:
        self._first = None
        self._placer.forget_head()
