"""Moving time: the database's ``compute_now()`` is replaced, so every process that asks sees the same."""

from django.db import connection

from computeplatform.db.gaps import WATCHED

_REAL = "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"


class Clock:
    """Time that stands still until it is moved."""

    def __init__(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute(_REAL)
            self.now = int(cursor.fetchone()[0])
        self._jump(self.now)

    def set(self, now: int) -> None:
        """It is ``now``, epoch milliseconds. The ticks have run meanwhile, so that this is no gap in our service."""
        self._jump(now)
        with connection.cursor() as cursor:
            cursor.execute("UPDATE computeplatform_tick SET last_at = %s WHERE name = %s", [now, WATCHED])

    def advance(self, *, milliseconds: int = 0, seconds: int = 0, hours: int = 0) -> int:
        """Time goes on; returns what it is then."""
        self.set(self.now + milliseconds + 1_000 * seconds + 3_600_000 * hours)
        return self.now

    def outage(self, *, milliseconds: int = 0, seconds: int = 0, hours: int = 0) -> int:
        """Time goes on and no tick runs (REC-8); returns what it is then."""
        self._jump(self.now + milliseconds + 1_000 * seconds + 3_600_000 * hours)
        return self.now

    def _jump(self, now: int) -> None:
        self.now = now
        _define(f"SELECT {int(now)}::bigint")

    @staticmethod
    def restore() -> None:
        """Time runs again."""
        _define(_REAL)


def _define(body: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE OR REPLACE FUNCTION compute_now() RETURNS bigint LANGUAGE sql VOLATILE AS $$ {body} $$")
