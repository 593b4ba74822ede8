"""How many statements a call costs: counted in the server's own log, whoever sends them."""

import re
import time
from collections.abc import Callable
from pathlib import Path

import psycopg

CALLS = 20
_LINE = re.compile(r"duration: [\d.]+ ms  (?:statement|execute[^:]*): (\w+)")


def statements(database_url: str, state_dir: Path, call: Callable[[], None]) -> str:
    """In words: statements and commits per call, over ``CALLS`` of them, one after the other."""
    [log] = state_dir.rglob("postgres*.log")
    call()
    with psycopg.connect(database_url, autocommit=True) as connection:
        _log_all(connection, "0")
        before = log.stat().st_size
        for _ in range(CALLS):
            call()
        _log_all(connection, "-1")
    with log.open() as lines:
        lines.seek(before)
        words = [match[1].upper() for line in lines if (match := _LINE.search(line))]
    commits = words.count("COMMIT")
    return f"{(len(words) - words.count('BEGIN') - commits) / CALLS:.0f} statements, {commits / CALLS:.0f} commits"


def _log_all(connection: psycopg.Connection, milliseconds: str) -> None:
    # The name and the values are ours; ALTER SYSTEM takes no parameters.
    connection.execute(f"ALTER SYSTEM SET log_min_duration_statement = {milliseconds}")
    connection.execute("SELECT pg_reload_conf()")
    until = time.monotonic() + 10
    while time.monotonic() < until:
        row = connection.execute("SELECT current_setting('log_min_duration_statement')").fetchone()
        if row and row[0] == milliseconds:
            return
    raise TimeoutError("the server did not take its setting")
