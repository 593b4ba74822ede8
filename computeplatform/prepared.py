"""Statements that PostgreSQL parses and plans once per connection, not each time (docs/performance.md)."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from django.db import connection
from django.db.backends.utils import CursorWrapper


@contextmanager
def prepared_cursor() -> Iterator[CursorWrapper]:
    """As ``connection.cursor()``, for the statements of every call.

    Values are bound by the server, so ``%s`` stands only where their type is plain (a cast says it otherwise), and the
    text of the statement must not vary: each one stays with the connection.
    """
    with connection.cursor() as cursor:
        # A log of queries shows their values, which only Django's own cursor can tell.
        if not connection.queries_logged:
            cursor.cursor.close()
            cursor.cursor = psycopg.Cursor(connection.connection)
        yield cursor
