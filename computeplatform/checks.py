"""Checks of the machine that Django runs at start; `computeplatform.apps` registers them."""

from collections.abc import Sequence
from typing import Any

from django.core.checks import CheckMessage, Error
from django.db import connections

OLDEST_POSTGRESQL = 150_000


def postgresql_is_new_enough(*, databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """Runs with `migrate`, and with `check --database default`: those may connect."""
    found: list[CheckMessage] = []
    for alias in databases or ():
        with connections[alias].cursor() as cursor:
            cursor.execute("SELECT current_setting('server_version_num')::int, current_setting('server_version')")
            number, version = cursor.fetchone()
        if number < OLDEST_POSTGRESQL:
            found.append(Error(f"PostgreSQL {version} is too old; 15 or newer is needed.", id="computeplatform.E001"))
    return found
