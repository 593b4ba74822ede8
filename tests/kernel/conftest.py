"""What the kernel's tests share: looking at what is stored, and connections of their own."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.db import connection, connections


def rows(sql: str, *params: Any) -> list[tuple[Any, ...]]:
    """What the database holds."""
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return list(cursor.fetchall())


def count(table: str) -> int:
    return int(rows(f"SELECT count(*) FROM {table}")[0][0])


def stored() -> dict[str, int]:
    """How many rows each table of the product has; a refused call changes none but the audit's.

    Without the queue of entries to be sealed: the database fills it by itself.
    """
    tables = rows(
        "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
        " AND relname <> 'iam_unsealeddecision'"
        " AND relname ~ '^(computeplatform|iam|quotas|fleet|reservations|releases)_' ORDER BY 1"
    )
    return {name: count(name) for (name,) in tables}


@contextmanager
def session(**options: Any) -> Iterator[psycopg.Connection[Any]]:
    """A second connection to the test's database, outside Django."""
    database = settings.DATABASES["default"]
    params = {"host": "HOST", "port": "PORT", "user": "USER", "password": "PASSWORD", "dbname": "NAME"}
    known = {k: database[v] for k, v in params.items() if database[v]} | options
    with psycopg.connect(**known, autocommit=True) as opened:
        yield opened


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """Run the calls in threads that start together, each with its own connection; their results or exceptions."""
    barrier = threading.Barrier(len(calls), timeout=20)
    results: list[Any] = [None] * len(calls)

    def run(place: int) -> None:
        try:
            barrier.wait()
            results[place] = calls[place]()
        except Exception as error:  # noqa: BLE001 - it is what the call came to, and the test asserts it
            results[place] = error
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    return results


@pytest.fixture
def log_lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[dict[str, Any]]]:
    """The structured lines that were logged so far."""
    caplog.set_level("INFO")
    return lambda: [record.msg for record in caplog.records if isinstance(record.msg, dict)]
