"""Doing much at once without one row's fault stopping the others (API-7)."""

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

import structlog
from django.db import InterfaceError, OperationalError

from computeplatform.errors import TryAgain

log = structlog.get_logger(__name__)


class Work(Protocol):
    """One transaction over all that is due (``only`` None) or over these reservations; returns how many it saw to."""

    def __call__(self, *, only: Collection[str] | None) -> int: ...


def is_passing(error: Exception) -> bool:
    """Whether the fault lies with the database or with a crowd, not with a row: the same again may well succeed."""
    return isinstance(error, OperationalError | InterfaceError | TryAgain)


def isolated(work: Work, *, due: Callable[[], list[str]], give_up: Callable[[str], None]) -> int:
    """Do the work in one go; where that fails, halve ``due`` until the rows that fail are alone, and give those up.

    So a broken row costs the others a second try and nothing else. A passing fault is raised: the next tick goes on.
    Returns how many rows were seen to, given up ones too.
    """
    try:
        return work(only=None)
    except Exception as error:
        if is_passing(error):
            raise
        log.warning("pass_failed", error=repr(error))
    return _by_halves(work, due(), give_up)


def _by_halves(work: Work, ids: Sequence[str], give_up: Callable[[str], None]) -> int:
    if not ids:
        return 0
    try:
        return work(only=ids)
    except Exception as error:
        if is_passing(error):
            raise
        if len(ids) == 1:
            log.exception("reservation_given_up", reservation_id=ids[0])
            give_up(ids[0])
            return 1
    middle = len(ids) // 2
    return _by_halves(work, ids[:middle], give_up) + _by_halves(work, ids[middle:], give_up)
