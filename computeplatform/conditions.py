"""Conditions: what is true of an object beside its state, with a reason, words and the time it became so."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Condition:
    """``status`` is "True" or "False"; ``reason`` is one of a fixed list, ``message`` is for people."""

    type: str
    status: str
    reason: str
    message: str
    last_transition_at: int

    def as_json(self) -> dict[str, Any]:
        """The shape on the wire and in the row."""
        return {
            "type": self.type,
            "status": self.status,
            "reason": self.reason,
            "message": self.message,
            "lastTransitionAt": self.last_transition_at,
        }


def from_json(rows: Iterable[Mapping[str, Any]]) -> tuple[Condition, ...]:
    """Conditions as stored in a row."""
    return tuple(Condition(r["type"], r["status"], r["reason"], r["message"], r["lastTransitionAt"]) for r in rows)


def to_json(conditions: Iterable[Condition]) -> list[dict[str, Any]]:
    """Conditions as a row stores them."""
    return [c.as_json() for c in conditions]


def with_condition(conditions: tuple[Condition, ...], new: Condition) -> tuple[Condition, ...]:
    """The conditions with ``new`` in place of the one of its type; the time moves only when the status does."""
    kept = []
    for old in conditions:
        if old.type != new.type:
            kept.append(old)
        elif old.status == new.status:
            new = replace(new, last_transition_at=old.last_transition_at)
    return tuple(sorted([*kept, new], key=lambda c: c.type))


def without_condition(conditions: tuple[Condition, ...], *types: str) -> tuple[Condition, ...]:
    """The conditions without those of the given types: they no longer say anything about the object."""
    return tuple(c for c in conditions if c.type not in types)
