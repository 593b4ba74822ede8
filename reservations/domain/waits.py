"""What a caller of ``get`` can wait for (GET-2)."""

from reservations.domain import states

ACTIVE = "active"
TERMINAL = "terminal"
CHANGED = "changed"
UNTIL = (ACTIVE, TERMINAL, CHANGED)


def holds(until: str, *, state: str, version: int, known: int) -> bool:
    """Whether the wait is over: ``active`` is also met by an end, since nothing more can come of it.

    ``known``: the version that ``changed`` is measured against.
    """
    match until:
        case "active":
            return state == states.ACTIVE or state in states.TERMINAL
        case "terminal":
            return state in states.TERMINAL
        case _:
            return version != known
