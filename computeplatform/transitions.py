"""State machines as data: a table of (state, event) to the next state; whatever is absent is refused."""

from collections.abc import Mapping
from dataclasses import dataclass


class IllegalTransition(Exception):
    """The machine has no such move; a fault of the code that asked, never of a caller."""


@dataclass(frozen=True)
class Machine:
    """One kind of object's legal moves. States and events are plain strings."""

    name: str
    table: Mapping[tuple[str, str], str]
    terminal: frozenset[str]

    @property
    def states(self) -> frozenset[str]:
        """Every state that the table names."""
        return frozenset(s for s, _ in self.table) | frozenset(self.table.values()) | self.terminal

    @property
    def events(self) -> frozenset[str]:
        """Every event that the table names."""
        return frozenset(e for _, e in self.table)

    def next(self, state: str, event: str) -> str:
        """The state after ``event``; raises IllegalTransition for a move that is not in the table."""
        try:
            return self.table[state, event]
        except KeyError:
            raise IllegalTransition(f"{self.name}: no move '{event}' from '{state}'") from None

    def sources(self, event: str) -> frozenset[str]:
        """The states from which ``event`` is legal."""
        return frozenset(s for s, e in self.table if e == event)
