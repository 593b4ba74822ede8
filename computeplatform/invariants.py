"""A registry of read-only checks over the stored state; ``manage.py verify_invariants`` runs them all (REC-5)."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Violation:
    """What does not hold: the check's name, the object, and what differs from what."""

    check: str
    subject: str
    message: str


# A check gets the pools to look at; None means everything.
Check = Callable[[Collection[str] | None], Iterable[tuple[str, str]]]

_checks: dict[str, Check] = {}


def invariant(name: str) -> Callable[[Check], Check]:
    """Register a check. It yields ``(subject, message)`` for each thing that does not hold."""

    def register(check: Check) -> Check:
        _checks[name] = check
        return check

    return register


def violations(pools: Collection[str] | None = None) -> list[Violation]:
    """Everything that does not hold, in the order of the checks' names, and each check's in that of its subjects."""
    found = []
    for name in sorted(_checks):
        for subject, message in sorted(_checks[name](pools)):
            found.append(Violation(name, subject, message))
    return found


def check_names() -> list[str]:
    """The names of all registered checks."""
    return sorted(_checks)
