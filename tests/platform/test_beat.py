"""The beat: one of many leads, another takes over, and the schedule is what the code says within what may be edited."""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest
from django.conf import settings
from django.db import connection
from django_celery_beat.models import PeriodicTask

from computeplatform.beat import interval_of, write_schedule

TICKS = {
    "one": {"task": "tests.one", "queue": "maintenance", "every": 30, "bounds": (10, 60)},
    "two": {"task": "tests.two", "queue": "reconcile", "every": 5, "bounds": (1, 60)},
}


@contextmanager
def beat():
    """A real beat process on this test's database and Redis."""
    environment = os.environ | {
        "DJANGO_SETTINGS_MODULE": "tests.platform.beat_settings",
        "DATABASE_URL": os.environ["DATABASE_URL"].rpartition("/")[0] + "/" + connection.settings_dict["NAME"],
    }
    command = [sys.executable, "-m", "celery", "--quiet", "-A", "computeplatform.celery:app", "beat", "--pidfile="]
    process = subprocess.Popen(command, env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def leader() -> int | None:
    """The process id of the beat that holds the lock."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT a.application_name FROM pg_locks l JOIN pg_stat_activity a USING (pid)"
            " WHERE l.locktype = 'advisory' AND l.granted AND a.datname = current_database()"
            " AND a.application_name LIKE 'compute-beat %'"
        )
        row = cursor.fetchone()
    return int(row[0].rpartition(":")[2]) if row else None


def wait_for(question, seconds=30.0):
    late = time.monotonic() + seconds
    while not (answer := question()):
        assert time.monotonic() < late, "it did not happen in time"
        time.sleep(0.05)
    return answer


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
@pytest.mark.clause("OPS-3", "beats: one leads, another takes over")
def test_two_beats_tick_once_and_survive_the_death_of_the_leader(redis_client):
    def ticks() -> int:
        return redis_client.llen("maintenance")

    with beat() as first, beat() as second:
        wait_for(lambda: ticks() >= 1)
        wait_for(leader)
        time.sleep(1.5)  # both have started: from here on two schedules would tick twice as often
        before, since = ticks(), time.monotonic()
        wait_for(lambda: ticks() >= before + 4)
        elapsed = time.monotonic() - since
        assert elapsed > 2.5, f"4 ticks of 1 s came within {elapsed:.1f} s"

        dead = leader()
        os.kill(dead, signal.SIGKILL)
        before, since = ticks(), time.monotonic()
        wait_for(lambda: ticks() >= before + 2, seconds=10)
        assert leader() == ({first.pid, second.pid} - {dead}).pop()


@pytest.mark.django_db
@pytest.mark.clause("OPS-1", "the beat schedule is written from code")
def test_the_schedule_is_written_from_code(settings):
    settings.COMPUTE_BEAT = TICKS
    PeriodicTask.objects.create(name="not ours", task="celery.backend_cleanup", interval=interval_of(60))
    write_schedule()
    PeriodicTask.objects.filter(name="two").update(enabled=False, task="evil.task", queue="elsewhere", args="[1]")
    write_schedule()
    rows = PeriodicTask.objects.order_by("name").values_list(
        "name", "task", "queue", "args", "interval__every", "expire_seconds", "enabled"
    )
    assert list(rows) == [
        ("one", "tests.one", "maintenance", "[]", 30, 30, True),
        ("two", "tests.two", "reconcile", "[]", 5, 5, True),
    ]


@pytest.mark.django_db
@pytest.mark.clause("OPS-1", "only intervals can be edited, within bounds")
@pytest.mark.parametrize(("edited", "kept"), [(20, 20), (10, 10), (9, 10), (60, 60), (3600, 60)])
def test_an_edited_interval_stays_within_its_bounds(settings, edited, kept):
    settings.COMPUTE_BEAT = TICKS
    write_schedule()
    PeriodicTask.objects.filter(name="one").update(interval=interval_of(edited))
    write_schedule()
    assert PeriodicTask.objects.get(name="one").interval.every == kept


def test_every_tick_of_the_product_names_a_queue_that_is_read():
    for name, tick in settings.COMPUTE_BEAT.items():
        assert tick["queue"] in settings.QUEUES, name
        lowest, highest = tick["bounds"]
        assert 1 <= lowest <= tick["every"] <= highest, name
