"""Entries, their digests, and the sealer that chains them (IAM-7)."""

import json
import logging
import threading
from dataclasses import fields, replace
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from computeplatform.db.ticks import last_tick
from computeplatform.ids import new_id
from iam import reconcilers
from iam.domain.audit import BATCH, CONTENT, Batch, Waiting, canonical, digest_of, next_batches, sha256, text_of
from iam.models import Decision, DecisionBatch, DelegatedSession, UnsealedDecision
from iam.operations.audit import seal
from iam.queries.audit import batch_of
from tests.iam.auditing import chain, entry, problems, sealed, written
from tests.kernel.conftest import session
from tests.support.clock import Clock
from tests.support.threads import at_once
from tests.support.world import World, request

# What PostgreSQL can store: no NUL, no half of a pair.
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20)
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([1.0, -0.0, 1e22, 1e300])
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(TEXT, VALUES, max_size=5)


@pytest.mark.django_db
@pytest.mark.clause("IAM-7", "an entry's digest is the same from its row")
@given(
    attributes=OBJECTS,
    context=OBJECTS,
    policies=st.lists(VALUES, max_size=3),
    resource_id=TEXT,
    at=st.integers(-(2**63), 2**63 - 1),
    cost=st.decimals(allow_nan=False, allow_infinity=False, places=4),
)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_digest_outlives_the_database(attributes, context, policies, resource_id, at, cost):
    attributes["estimatedCost"] = str(cost)
    row = entry(at=at, attributes=attributes, context=context, policies=policies, resource_id=resource_id)
    with transaction.atomic():
        row.save(force_insert=True)
        assert digest_of(Decision.objects.get(id=row.id)) == row.digest
        transaction.set_rollback(True)


@given(OBJECTS)
def test_one_content_has_one_text(value):
    shuffled = dict(reversed(value.items()))
    assert canonical(shuffled) == canonical(value) == canonical(json.loads(canonical(value)))
    assert canonical(value).isascii()


def test_what_is_no_json_has_no_text():
    for wrong in ({"a": Decimal(1)}, {1: "a"}, {"a": float("nan")}, {"a": {1, 2}}):
        with pytest.raises((TypeError, ValueError)):
            canonical(wrong)


def test_true_is_not_one_and_one_is_one():
    assert len({canonical(value) for value in (True, 1, "1", None, [1], 1.5)}) == 6
    assert canonical([1.0, 1, 100.0, -0.0]) == "[1,1,100,0]"


@pytest.mark.clause("IAM-7", "the digest covers every column")
def test_every_column_counts():
    assert set(CONTENT) == {field.attname for field in Decision._meta.concrete_fields} - {"digest"}
    row = entry()
    before = {row.digest}
    for name in CONTENT:
        kept = getattr(row, name)
        setattr(
            row, name, kept + 1 if isinstance(kept, int) else [kept, "x"] if not isinstance(kept, str) else kept + "x"
        )
        before.add(digest_of(row))
        setattr(row, name, kept)
    assert len(before) == len(CONTENT) + 1
    assert sha256(text_of(row)) == digest_of(row) == row.digest


@pytest.mark.clause("IAM-7", "sealed batches are chained")
def test_everything_that_a_batch_is_counts():
    batch = Batch("ash", 2, "before", 1, 3, 5, (("dec_1", "one"), ("dec_2", "two")))
    others = {
        "tenant_id": "elm",
        "number": 3,
        "previous": "",
        "first_at": 2,
        "last_at": 4,
        "sealed_at": 6,
        "entries": (("dec_2", "two"), ("dec_1", "one")),
    }
    assert others.keys() == {field.name for field in fields(Batch)}
    changed = [replace(batch, **{name: value}).hash for name, value in others.items()]
    assert len({batch.hash, *changed}) == len(others) + 1


@pytest.mark.clause("IAM-7", "decisions are written with their digest")
def test_a_call_leaves_an_entry_that_fits_its_digest(world: World) -> None:
    world.ann.api("reservations/create", **request(world.offered_pool())).data  # noqa: B018 - asserts success
    world.vic.api("pools/create", name="p", region="eu", gpuModel="m", deviceClass="gpu").refused("ACCESS_DENIED")
    rows = Decision.objects.filter(tenant_id="acme")
    assert {row.outcome for row in rows} == {"allow", "deny"}
    assert [row.id for row in rows if row.digest != digest_of(row)] == []
    assert problems() == []


@pytest.mark.django_db
@pytest.mark.clause("IAM-7", "sealed batches are chained")
def test_each_tenant_has_a_chain_of_its_own() -> None:
    Decision.objects.bulk_create([entry(at=at) for at in (3, 1, 2)] + [entry("elm", at=9)])
    last = entry(at=2, id="dec_z")
    Decision.objects.bulk_create([last])
    sealed(now=77)
    Decision.objects.bulk_create([entry(at=1)])
    sealed(now=78)

    first, second = chain()
    (elm,) = chain("elm")
    rows = sorted(
        Decision.objects.filter(tenant_id="ash", id__in=dict(first.entries)), key=lambda row: (row.at, row.id)
    )
    assert first.entries == [[row.id, row.digest] for row in rows]
    assert [row.at for row in rows] == [1, 2, 2, 3]
    assert (first.number, first.previous, first.first_at, first.last_at, first.sealed_at) == (1, "", 1, 3, 77)
    assert (second.number, second.previous, second.sealed_at) == (2, first.hash, 78)
    assert (elm.number, elm.previous) == (1, "")
    assert all(row.hash == batch_of(row).hash for row in (first, second, elm))
    assert len({first.hash, second.hash, elm.hash}) == 3
    assert not UnsealedDecision.objects.exists()
    assert seal(now=79, limit=10) == 0


@pytest.mark.django_db
@pytest.mark.clause("IAM-7", "batches of at most 1,000 entries")
def test_a_backlog_is_sealed_in_batches_the_oldest_first() -> None:
    sealed()
    written(2 * BATCH + 1)
    assert seal(now=5_000, limit=BATCH + 2) == BATCH + 2
    assert [len(row.entries) for row in chain()] == [BATCH, 2]
    assert [(row.first_at, row.last_at) for row in chain()] == [(1_000, 1_999), (2_000, 2_001)]
    sealed()
    assert [len(row.entries) for row in chain()] == [BATCH, 2, BATCH - 1]
    assert problems() == []


@pytest.mark.clause("IAM-7", "sealed batches are chained")
def test_entries_stand_in_a_batch_in_the_order_of_their_time():
    waiting = [Waiting(at, id_, f"digest of {id_}") for at, id_ in ((3, "c"), (1, "b"), (1, "a"), (2, "d"))]
    (batch,) = next_batches("ash", 4, "before", waiting, sealed_at=9)
    assert [id_ for id_, _ in batch.entries] == ["a", "b", "d", "c"]
    assert (batch.number, batch.previous, batch.first_at, batch.last_at) == (5, "before", 1, 3)


@pytest.mark.django_db
@pytest.mark.clause("IAM-7", "the heads are logged outside the database")
def test_the_heads_are_logged_however_quiet_the_log_is(caplog: pytest.LogCaptureFixture) -> None:
    sealed()
    caplog.clear()
    written(1)
    written(BATCH + 1, "elm")
    assert logging.getLogger().level > logging.INFO
    sealed()
    lines: list[Any] = [record.msg for record in caplog.records if record.name == "iam.audit"]
    assert [(line["event"], line["tenant"], line["number"], line["hash"]) for line in lines] == [
        ("audit_sealed", row.tenant_id, row.number, row.hash) for row in (*chain(), *chain("elm"))
    ]


@pytest.mark.django_db
def test_the_number_of_questions_does_not_grow_with_the_entries(django_assert_num_queries: Any) -> None:
    sealed()
    for count in (2, 30):
        written(count)
        written(count, "elm")
        # Begin, the lock, the queue, the last batches, the new ones, commit.
        with django_assert_num_queries(6):
            seal(now=5_000, limit=10_000)


def test_the_tick_seals_and_leaves_a_trace(world: World, clock: Clock) -> None:
    assert UnsealedDecision.objects.exists()
    reconcilers.seal_tick()
    assert not UnsealedDecision.objects.exists()
    assert last_tick("audit") == clock.now
    assert {row.sealed_at for row in DecisionBatch.objects.all()} == {clock.now}


def test_housekeeping_forgets_old_sessions(world: World, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = world.ann.api.iam("agents/create", name="bot").data["agent"]["id"]
    token = world.ann.api.iam("keys/create", principalId=agent).data["token"]
    given_ = world.ann.api.iam("delegations/grant", agentId=agent, scopes=["*"]).data["delegation"]["id"]
    bot = type(world.ann.api)(token, "acme")
    for _ in range(3):
        bot.iam("delegations/assume", delegationId=given_).data  # noqa: B018 - asserts success
    monkeypatch.setattr(reconcilers, "FORGOTTEN", 2)
    reconcilers.housekeeping()
    assert DelegatedSession.objects.count() == 3
    clock.advance(hours=24 * 40)
    reconcilers.housekeeping()
    assert DelegatedSession.objects.count() == 0


# --- Several at once --------------------------------------------------------------------------------------------------

INSERT = (
    "INSERT INTO iam_decision (id, tenant_id, at, principal_id, principal_kind, agent_id, delegation_id, key_id,"
    " subject, action, resource_type, resource_id, attributes, context, outcome, reason, policies, errors, request_id)"
    " VALUES (%s, 'ash', 1, 'u', 'user', '', '', '', '{}', 'a', 'r', 'r', '{}', '{}', 'deny', 'no', '[]', '[]', '')"
)


@pytest.mark.django_db(transaction=True)
@pytest.mark.clause("IAM-7", "decisions do not queue behind each other")
def test_no_insert_waits_for_another_and_what_is_not_committed_is_sealed_later() -> None:
    with session() as one, session() as other:
        for each in (one, other):
            each.execute("SET lock_timeout = 2000; SET statement_timeout = 5000")
            each.execute("BEGIN")
        one.execute(INSERT, ["dec_one"])
        other.execute(INSERT, ["dec_other"])
        written(1)
        # The sealer waits for neither, and takes what is committed.
        sealed(now=10)
        assert [len(row.entries) for row in chain()] == [1]
        other.execute("COMMIT")
        sealed(now=11)
        one.execute("COMMIT")
        sealed(now=12)
    assert [row.entries[0][0] for row in chain()[1:]] == ["dec_other", "dec_one"]
    assert problems() == []


@pytest.mark.django_db(transaction=True)
@pytest.mark.clause("IAM-7", "inserts do not wait for the sealer")
def test_an_insert_does_not_wait_for_a_sealer_in_the_middle_of_its_work() -> None:
    written(5)
    with transaction.atomic():
        assert seal(now=10, limit=100) == 5
        with session() as other:
            other.execute("SET lock_timeout = 2000; SET statement_timeout = 5000")
            other.execute(INSERT, ["dec_other"])
            # And a second sealer has nothing to do.
            assert at_once([lambda: seal(now=11, limit=100)]) == [0]
    sealed(now=12)
    assert [len(row.entries) for row in chain()] == [5, 1]
    assert problems() == []


@pytest.mark.django_db(transaction=True)
@pytest.mark.clause("IAM-7", "sealing and decisions at once lose nothing")
def test_sealers_and_writers_at_once_lose_nothing() -> None:
    done = threading.Event()
    left = [4]

    def write(tenant_id: str) -> int:
        try:
            for n in range(40):
                with transaction.atomic():
                    Decision.objects.bulk_create([entry(tenant_id, at=n, id=new_id("dec")) for _ in range(3)])
                    transaction.set_rollback(n % 10 == 9)
            return 0
        finally:
            left[0] -= 1
            if not left[0]:
                done.set()

    def seal_on() -> int:
        total = 0
        while not done.is_set():
            total += seal(now=1, limit=7)
        return total

    counts = at_once([*(lambda t=tenant: write(t) for tenant in ("ash", "ash", "elm", "elm")), seal_on, seal_on])
    sealed(now=2)
    assert sum(counts) > 0
    assert Decision.objects.count() == 4 * 36 * 3
    assert sum(len(row.entries) for row in DecisionBatch.objects.all()) == 4 * 36 * 3
    assert not UnsealedDecision.objects.exists()
    assert problems() == []
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()")
        assert cursor.fetchone() == (0,)
