"""A violated constraint becomes a typed refusal by its name: the database is the referee, not a check before it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from django.db import IntegrityError, transaction

from computeplatform.errors import Refusal


def constraint_name(error: IntegrityError) -> str | None:
    """The name of the constraint that was violated, if PostgreSQL said one."""
    diagnosis = getattr(error.__cause__, "diag", None)
    return getattr(diagnosis, "constraint_name", None)


@contextmanager
def refusing(errors: Mapping[str, Refusal]) -> Iterator[None]:
    """Run the writes in a savepoint; a violation of a named constraint raises its refusal, any other passes on."""
    try:
        with transaction.atomic():
            yield
    except IntegrityError as error:
        refusal = errors.get(constraint_name(error) or "")
        if refusal is None:
            raise
        raise refusal from error
