"""One transaction, tried again a bounded number of times when PostgreSQL asks for it."""

import functools
import random
import time
from collections.abc import Callable
from typing import Any, TypeVar

from django.db import DatabaseError, connection, transaction

from computeplatform.errors import TryAgain

# deadlock_detected, serialization_failure, lock_not_available
_AGAIN = {"40P01", "40001", "55P03"}
_TRIES = 5


F = TypeVar("F", bound=Callable[..., Any])


def sqlstate(error: BaseException) -> str | None:
    """The SQLSTATE of a database error, however deep Django has wrapped it."""
    cause: BaseException | None = error
    while cause is not None:
        state = getattr(cause, "sqlstate", None)
        if state:
            return str(state)
        cause = cause.__cause__
    return None


def in_transaction(function: F) -> F:
    """Run the operation in one transaction, again on a deadlock or lost race, with jitter, at most five times.

    Inside another transaction it is a savepoint and is not repeated: only the outermost one can start afresh.
    """

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        outermost = not connection.in_atomic_block
        for attempt in range(1, _TRIES + 1):
            try:
                with transaction.atomic():
                    return function(*args, **kwargs)
            except (DatabaseError, TryAgain) as error:
                again = isinstance(error, TryAgain) or sqlstate(error) in _AGAIN
                if not outermost or attempt == _TRIES or not again:
                    raise
                time.sleep(random.uniform(0, 0.02 * 2**attempt))  # noqa: S311 - jitter, no secret
        raise AssertionError("unreachable")

    return run  # type: ignore[return-value]
