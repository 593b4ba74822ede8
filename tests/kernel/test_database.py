"""Transactions that are tried again, constraints that become refusals, locks, ticks, the clock."""

import threading
from collections.abc import Callable

import pytest
from django.db import DatabaseError, IntegrityError, OperationalError, connection, transaction

from computeplatform.clock import compute_now
from computeplatform.db.constraints import refusing
from computeplatform.db.locks import claim_rows, lock_rows, notify, try_advisory_lock
from computeplatform.db.retry import in_transaction, sqlstate
from computeplatform.db.ticks import last_tick, record_tick
from computeplatform.errors import Conflict, TryAgain
from computeplatform.models import IdempotencyKey, Tick
from tests.kernel.conftest import at_once, session
from tests.support.clock import Clock

committing = pytest.mark.django_db(transaction=True)


def tick_names() -> set[str]:
    return set(Tick.objects.values_list("name", flat=True))


# --- Tried again ----------------------------------------------------------------------------------


class Attempts:
    """Counts, and fails as often as it is told."""

    def __init__(self, failures: int, error: Callable[[], Exception]) -> None:
        self.made = 0
        self.failures = failures
        self.error = error

    @in_transaction
    def run(self) -> str:
        self.made += 1
        record_tick(f"attempt-{self.made}", now=1)
        if self.made <= self.failures:
            raise self.error()
        return "done"


@committing
@pytest.mark.parametrize("failures", [1, 4])
def test_a_lost_race_is_run_afresh_and_leaves_nothing_of_the_attempts_before(failures: int):
    attempts = Attempts(failures, lambda: TryAgain("changed"))
    assert attempts.run() == "done"
    assert tick_names() == {f"attempt-{failures + 1}"}


@committing
def test_it_gives_up_after_five_attempts():
    attempts = Attempts(99, lambda: TryAgain("changed"))
    with pytest.raises(TryAgain):
        attempts.run()
    assert (attempts.made, tick_names()) == (5, set())


@committing
@pytest.mark.parametrize("error", [ValueError, Conflict, lambda: IntegrityError("x"), OperationalError])
def test_another_fault_is_not_repeated(error: Callable[[], Exception]):
    attempts = Attempts(1, error)
    with pytest.raises(Exception):  # noqa: B017 - whichever it is
        attempts.run()
    assert (attempts.made, tick_names()) == (1, set())


@committing
def test_inside_another_transaction_only_the_outermost_starts_afresh():
    inner = Attempts(1, lambda: TryAgain("changed"))
    outer_runs = []

    @in_transaction
    def outer() -> str:
        outer_runs.append(tick_names())
        record_tick("outer", now=1)
        return str(inner.run())

    assert outer() == "done"
    assert (len(outer_runs), inner.made) == (2, 2)
    assert outer_runs[1] == set()
    assert tick_names() == {"outer", "attempt-2"}


@committing
def test_two_that_deadlock_both_finish():
    for name in ("a", "b"):
        record_tick(name, now=0)
    tries = []
    both_hold_one = threading.Barrier(2, timeout=20)

    @in_transaction
    def touch(first: str, second: str) -> None:
        tries.append(first)
        Tick.objects.filter(name=first).update(last_at=compute_now())
        if tries.count(first) == 1:
            both_hold_one.wait()
        Tick.objects.filter(name=second).update(last_at=compute_now())

    assert at_once(lambda: touch("a", "b"), lambda: touch("b", "a")) == [None, None]
    assert len(tries) >= 3  # one of them was told to start afresh
    assert all(tick.last_at > 0 for tick in Tick.objects.all())


@committing
def test_a_lock_that_is_not_to_be_had_is_tried_five_times():
    record_tick("a", now=0)
    tries = []

    @in_transaction
    def touch() -> None:
        tries.append(1)
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL lock_timeout = '5ms'")
        lock_rows(Tick.objects.filter(name="a"))

    with session() as other, other.transaction():
        other.execute("SELECT 1 FROM computeplatform_tick FOR UPDATE")
        with pytest.raises(OperationalError) as caught:
            touch()
    assert (sqlstate(caught.value), len(tries)) == ("55P03", 5)
    touch()


# --- Constraints ----------------------------------------------------------------------------------


def key(name: str) -> None:
    IdempotencyKey.objects.create(
        tenant_id="acme", identity="usr", method="m", key=name, digest="", object_id="", created_at=0
    )


@pytest.mark.django_db
def test_a_violated_constraint_becomes_its_refusal_and_the_transaction_lives_on():
    key("a")

    def write_both() -> None:
        with refusing({"idempotency_key_unique": Conflict("taken")}):
            key("b")
            key("a")

    with pytest.raises(Conflict, match="taken"):
        write_both()
    assert list(IdempotencyKey.objects.values_list("key", flat=True)) == ["a"]
    key("c")


@pytest.mark.django_db
def test_a_constraint_that_nobody_named_is_a_fault():
    key("a")
    with pytest.raises(IntegrityError), refusing({"another": Conflict("taken")}):
        key("a")
    with pytest.raises(DatabaseError), refusing({"idempotency_key_unique": Conflict("taken")}):
        Tick.objects.create(name="a", last_at=None)


# --- Locks ----------------------------------------------------------------------------------------


@committing
def test_rows_are_locked_against_writers_and_claims_pass_by_what_is_locked():
    for name in ("a", "b", "c"):
        record_tick(name, now=0)
    with session() as other, other.transaction():
        other.execute("SELECT 1 FROM computeplatform_tick WHERE name = 'b' FOR UPDATE")
        with transaction.atomic():
            claimed = claim_rows(Tick.objects.all(), limit=5, order=("-name",))
            assert [tick.name for tick in claimed] == ["c", "a"]
            assert [t.name for t in claim_rows(Tick.objects.all(), limit=1, order=("name",))] == ["a"]
            with session() as third:
                third.execute("SET lock_timeout = '10ms'")
                with pytest.raises(Exception, match="lock timeout"):
                    third.execute("UPDATE computeplatform_tick SET last_at = 1 WHERE name = 'a'")


@committing
def test_a_named_lock_has_one_holder_until_its_transaction_ends():
    with transaction.atomic():
        assert try_advisory_lock("the-stamper")
        assert at_once(_try_once("the-stamper"), _try_once("another")) == [False, True]
    assert at_once(_try_once("the-stamper")) == [True]


def _try_once(name: str) -> Callable[[], bool]:
    def run() -> bool:
        with transaction.atomic():
            return try_advisory_lock(name)

    return run


@committing
def test_notifications_come_at_commit_and_not_at_all_after_a_rollback():
    with session() as other:
        other.execute("LISTEN kernel_test")

        def heard() -> list[str]:
            return sorted(note.payload for note in other.notifies(timeout=0.05))

        with transaction.atomic():
            notify("kernel_test", ["a", "b"])
            notify("kernel_test", [])
            assert heard() == []
        assert heard() == ["a", "b"]
        with transaction.atomic():
            notify("kernel_test", ["c"])
            transaction.set_rollback(True)
        assert heard() == []


# --- Clock and ticks ------------------------------------------------------------------------------


@pytest.mark.django_db
def test_a_tick_keeps_its_latest_time():
    assert last_tick("loop") is None
    for now, kept in ((5, 5), (9, 9), (7, 9)):
        record_tick("loop", now=now)
        assert last_tick("loop") == kept


@committing
def test_the_clock_is_the_databases_and_moves_for_every_connection(clock: Clock):
    def asked() -> int:
        with session() as other:
            return int(other.execute("SELECT compute_now()").fetchone()[0])  # type: ignore[index]

    assert compute_now() == asked() == clock.now
    later = clock.advance(seconds=90)
    assert compute_now() == asked() == later
    Clock.restore()
    with connection.cursor() as cursor:
        cursor.execute("SELECT extract(epoch FROM clock_timestamp()) * 1000")
        assert abs(float(cursor.fetchone()[0]) - compute_now()) < 5_000
