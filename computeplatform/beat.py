"""The beat: sends the ticks. Any number may run; the one that holds a PostgreSQL session lock leads, the others wait.

The lock belongs to a session, so a killed leader loses it at once and a cut-off one as soon as the server's keepalives
give up. Two leaders for a moment would be harmless all the same: a tick claims rows.

The schedule is written from `settings.COMPUTE_BEAT` by each new leader. An operator may edit the interval of a tick in
the admin; the edit stays, within the tick's bounds. Everything else in the tables is put back.
"""

import os
import socket
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import structlog
from celery import schedules
from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection, transaction
from django_celery_beat.models import IntervalSchedule, PeriodicTask, PeriodicTasks
from django_celery_beat.schedulers import DatabaseScheduler, ModelEntry

log = structlog.get_logger(__name__)

LOCK_KEY = 0x62656174  # "beat"; advisory locks are per database
STANDBY_SECONDS = 1.0  # how often a waiting beat tries to become the leader
NEVER_RAN = datetime(2000, 1, 1, tzinfo=UTC)  # a new tick runs at once instead of after its first interval

# A dead peer is noticed by both ends: the server frees the lock after about 20 s, and the old leader's next statement
# fails after 10 s, before anybody else can lead.
SERVER_KEEPALIVES = "-c tcp_keepalives_idle=5 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3"
CLIENT_KEEPALIVES = {"keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 2, "tcp_user_timeout": 10_000}


def write_schedule() -> None:
    """Make the schedule's rows what the code says, except for intervals that are within their bounds."""
    with transaction.atomic():
        PeriodicTask.objects.exclude(name__in=settings.COMPUTE_BEAT).delete()
        for name, tick in settings.COMPUTE_BEAT.items():
            row = PeriodicTask.objects.filter(name=name).select_related("interval").first()
            row = row or PeriodicTask(name=name, last_run_at=NEVER_RAN)
            seconds = seconds_of(row.interval) if row.interval else tick["every"]
            row.interval = interval_of(within(tick["bounds"], seconds))
            row.task, row.queue = tick["task"], tick["queue"]
            row.args, row.kwargs, row.headers = "[]", "{}", "{}"
            row.crontab = row.solar = row.clocked = None
            row.enabled, row.one_off, row.start_time, row.expires = True, False, None, None
            # A tick that still waits in its queue when the next one is sent has nothing to add.
            row.expire_seconds = row.interval.every
            row.description = "Every {every} s by default; {bounds[0]} to {bounds[1]} s are allowed.".format(**tick)
            row.save()
        PeriodicTasks.update_changed()


def interval_of(seconds: int) -> IntervalSchedule:
    """The shared row for an interval of so many seconds."""
    found = IntervalSchedule.objects.filter(every=seconds, period=IntervalSchedule.SECONDS).first()
    return found or IntervalSchedule.objects.create(every=seconds, period=IntervalSchedule.SECONDS)


def seconds_of(interval: IntervalSchedule) -> float:
    return timedelta(**{interval.period: interval.every}).total_seconds()


def within(bounds: tuple[int, int], seconds: float) -> int:
    """The nearest whole number of seconds inside the bounds."""
    lowest, highest = bounds
    return max(lowest, min(highest, round(seconds)))


class BoundedEntry(ModelEntry):  # type: ignore[misc]
    """A tick as it is sent: whatever the row's interval says, its bounds hold."""

    def __init__(self, model: PeriodicTask, app: Any = None) -> None:
        super().__init__(model, app=app)
        bounds = settings.COMPUTE_BEAT[model.name]["bounds"]
        self.schedule = schedules.schedule(within(bounds, seconds_of(model.interval)), app=self.app)


class LeaderScheduler(DatabaseScheduler):  # type: ignore[misc]
    """Sends ticks while it holds the lock; otherwise looks for it every `STANDBY_SECONDS`."""

    Entry = BoundedEntry

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._session: psycopg.Connection[Any] | None = None
        self._leading = False
        super().__init__(*args, **kwargs)

    def setup_schedule(self) -> None:
        """Nothing: only a leader writes the schedule, and it does so when it becomes one."""

    def enabled_models(self) -> list[PeriodicTask]:
        return [model for model in super().enabled_models() if model.name in settings.COMPUTE_BEAT and model.interval]

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Send at most one due tick; the seconds until the next call. A database that is away is waited for."""
        try:
            if self._lead():
                return float(super().tick(*args, **kwargs))
        except (DatabaseError, InterfaceError) as error:
            log.warning("beat_database_away", error=str(error))
            connection.close()
            self._resign()
        return STANDBY_SECONDS

    def close(self) -> None:
        super().close()
        self._resign()

    def _lead(self) -> bool:
        """Whether we hold the lock, asked of the server each time; takes it when it is free."""
        try:
            if self._session is None:
                self._session = open_session()
            if self._leading:
                self._session.execute("SELECT 1")  # fails when the session, and the lock with it, is gone
                return True
            row = self._session.execute("SELECT pg_try_advisory_lock(%s)", [LOCK_KEY]).fetchone()
            if row is None or not row[0]:
                return False
        except psycopg.Error as error:
            log.warning("beat_lock_lost" if self._leading else "beat_lock_unreachable", error=str(error))
            self._resign()
            return False
        self._take_over()
        return True

    def _take_over(self) -> None:
        write_schedule()
        self._schedule = self._heap = None  # what an earlier leadership has read is out of date
        self._initial_read = True
        self._dirty: set[str] = set()
        self._leading = True
        log.info("beat_leads")

    def _resign(self) -> None:
        self._leading = False
        if self._session is not None:
            self._session.close()
            self._session = None


def open_session() -> psycopg.Connection[Any]:
    """A connection of our own: Celery and Django close theirs whenever they like, and the lock would go with it."""
    name = f"compute-beat {socket.gethostname()}:{os.getpid()}"  # in pg_stat_activity, which tells who leads
    params = connection.get_connection_params() | CLIENT_KEEPALIVES
    params |= {"options": SERVER_KEEPALIVES, "application_name": name}
    return psycopg.connect(**params, autocommit=True)
