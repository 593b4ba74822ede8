"""What is asked of placement, and what it answers."""

from collections.abc import Mapping
from dataclasses import dataclass

from reservations.domain.hosts import NOTHING, Amounts


@dataclass(frozen=True)
class Demand:
    """``count`` devices and the amounts ``need`` on each of ``nodes`` distinct nodes for ``[starts_at, ends_at)``.

    Placed later, one that ``slides`` keeps its length, another its end (CRE-16).
    """

    id: str
    count: int
    nodes: int
    starts_at: int
    ends_at: int
    resource: str = "gpu"
    need: Amounts = NOTHING
    slides: bool = True

    @property
    def shape(self) -> tuple[object, ...]:
        """What two demands have in common that fit or do not fit together."""
        return self.count, self.nodes, self.starts_at, self.ends_at, self.need

    def asks_as_much_as(self, other: "Demand") -> bool:
        """Whether wherever this fits, ``other`` would have fitted too."""
        mine, others = self.need, other.need
        return (
            self.count >= other.count
            and self.nodes >= other.nodes
            and self.starts_at <= other.starts_at
            and self.ends_at >= other.ends_at
            and mine[0] >= others[0]
            and mine[1] >= others[1]
            and mine[2] >= others[2]
        )

    def at(self, start: int) -> "Demand":
        """The same, starting at ``start``."""
        end = start + self.ends_at - self.starts_at if self.slides else self.ends_at
        return Demand(self.id, self.count, self.nodes, start, end, self.resource, self.need, self.slides)


# Times beyond this are no times: numbers on the wire end there (API-4).
_END_OF_TIME = 2**53


def checked(demand: Demand) -> Demand:
    """The demand, if its shape and window make sense; else ValueError says what does not."""
    if demand.count < 1 or demand.nodes < 1:
        raise ValueError(f"asks for {demand.count} devices on each of {demand.nodes} nodes")
    if not 0 <= demand.starts_at < demand.ends_at <= _END_OF_TIME:
        raise ValueError(f"asks for the window [{demand.starts_at}, {demand.ends_at})")
    if min(demand.need) < 0:
        raise ValueError(f"asks for host amounts {tuple(demand.need)}")
    return demand


@dataclass(frozen=True)
class Assignment:
    """The grains (bit mask) on each host."""

    demand: Demand
    hosts: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Shortfall:
    """Why a demand does not fit: a reason from the contract's fixed list, and words with the numbers."""

    demand: Demand
    reason: str
    message: str


Outcome = Assignment | Shortfall


@dataclass(frozen=True)
class Kept:
    """Devices and amounts of a host that are kept for one demand, and so are busy for all others: what preemption has
    freed for it (PRE-2), or the shadow of the first in line (REC-9)."""

    owner: str
    mask: int
    starts_at: int
    ends_at: int
    amounts: Amounts = NOTHING


# By host.
Keeps = Mapping[str, tuple[Kept, ...]]
