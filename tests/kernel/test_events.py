"""Events: in the transaction of their change, numbered without gaps after commit, read by sequence."""

import random
import threading
from collections import defaultdict
from typing import Any

import pytest
from django.db import connection, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from computeplatform.db.locks import lock_rows
from computeplatform.db.ticks import last_tick, record_tick
from computeplatform.events.models import Event, TenantSequence
from computeplatform.events.outbox import NewEvent, emit, stamp
from computeplatform.events.tasks import stamp_events
from computeplatform.models import Tick
from tests.kernel.conftest import at_once, rows, session, stored
from tests.support.clock import Clock
from tests.support.world import World

committing = pytest.mark.django_db(transaction=True)


def event(tenant: str = "acme", subject: str = "s", version: int = 1, **changed: Any) -> NewEvent:
    fields: dict[str, Any] = {
        "type": "pool.created",
        "at": 1_000,
        "actor_id": "usr_1",
        "subject_type": "pool",
    } | changed
    return NewEvent(tenant_id=tenant, subject_id=subject, subject_version=version, **fields)


def written(*events: NewEvent) -> None:
    with transaction.atomic():
        emit(events)


def sequences(tenant: str) -> list[int | None]:
    return list(Event.objects.filter(tenant_id=tenant).order_by("position").values_list("sequence", flat=True))


def in_order(tenant: str = "acme") -> list[tuple[str, int]]:
    found = Event.objects.filter(tenant_id=tenant, sequence__isnull=False).order_by("sequence")
    return list(found.values_list("subject_id", "subject_version"))


# --- Written with the change ----------------------------------------------------------------------


@committing
@pytest.mark.clause("EVT-1", "in the transaction of its change")
def test_what_is_rolled_back_leaves_no_event_and_what_is_committed_leaves_all():
    with transaction.atomic():
        emit([event()])
        transaction.set_rollback(True)
    assert Event.objects.count() == 0
    with transaction.atomic():
        emit(event(version=n) for n in (1, 2, 3))
        with session() as other:
            assert other.execute("SELECT count(*) FROM computeplatform_event").fetchone() == (0,)
    assert Event.objects.count() == 3


@committing
@pytest.mark.clause("EVT-1", "in the transaction of its change")
def test_an_event_outside_a_transaction_is_a_fault_of_the_code():
    with pytest.raises(RuntimeError):
        emit([event()])
    assert Event.objects.count() == 0


@pytest.mark.clause("EVT-1", "in the transaction of its change")
def test_a_refused_call_writes_no_event(world: World):
    before = stored()["computeplatform_event"]
    world.admin("nodes/register", name="n1", positions=8).data  # noqa: B018
    assert stored()["computeplatform_event"] == before + 1
    world.admin("nodes/register", name="n1", positions=8).refused("CONFLICT")
    assert stored()["computeplatform_event"] == before + 1


# --- Numbered -------------------------------------------------------------------------------------


@pytest.mark.django_db
@pytest.mark.clause("EVT-1", "a sequence without gaps per tenant")
def test_each_tenant_counts_from_one_and_on():
    written(event("acme", "a"), event("globex", "a"), event("acme", "b"))
    assert stamp() == 3
    written(event("acme", "c"), event("globex", "b"))
    written(event("acme", "d"))
    assert stamp() == 3
    assert stamp() == 0
    assert (sequences("acme"), sequences("globex")) == ([1, 2, 3, 4], [1, 2])
    assert dict(TenantSequence.objects.values_list("tenant_id", "last")) == {"acme": 4, "globex": 2}


@pytest.mark.django_db
@pytest.mark.clause("EVT-1", "a sequence without gaps per tenant")
def test_a_pass_is_bounded_and_the_next_goes_on():
    written(*(event(subject=f"s{n}") for n in range(25)))
    assert [stamp(limit=10) for _ in range(4)] == [10, 10, 5, 0]
    assert sequences("acme") == list(range(1, 26))


@pytest.mark.django_db
@pytest.mark.clause("EVT-1", "order of one subject")
def test_events_keep_their_order_over_subjects_and_follow_the_version_within_one():
    written(event(subject="a", version=1), event(subject="b", version=1))
    written(event(subject="c", version=3), event(subject="a", version=2))
    written(event(subject="c", version=2), event(subject="b", version=2))
    stamp()
    assert in_order() == [("a", 1), ("b", 1), ("a", 2), ("c", 2), ("c", 3), ("b", 2)]


@pytest.mark.django_db
@pytest.mark.clause("EVT-1", "order of one subject")
def test_two_events_of_one_version_keep_the_order_in_which_they_were_written():
    written(event(type="reservation.released"), event(type="reservation.ending"), event(type="reservation.active"))
    stamp()
    kinds = Event.objects.order_by("sequence").values_list("type", flat=True)
    assert list(kinds) == ["reservation.released", "reservation.ending", "reservation.active"]


@pytest.mark.django_db
@pytest.mark.clause("EVT-1", "order of one subject")
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    batches=st.lists(
        st.lists(st.tuples(st.sampled_from(["acme", "globex"]), st.sampled_from("abc")), max_size=5), max_size=5
    ),
    chance=st.randoms(use_true_random=False),
    limit=st.integers(1, 6),
)
def test_whatever_is_written_is_numbered_without_gaps_and_in_order(
    batches: list[list[tuple[str, str]]], chance: random.Random, limit: int
):
    """Versions rise with each transaction; within one they may be written in any order."""
    with transaction.atomic():
        versions: dict[tuple[str, str], int] = defaultdict(int)
        for batch in batches:
            events = []
            for tenant, subject in batch:
                versions[tenant, subject] += 1
                events.append(event(tenant, subject, versions[tenant, subject]))
            chance.shuffle(events)
            written(*events)
            while stamp(limit=max(limit, len(events))):
                pass
        for tenant in ("acme", "globex"):
            found = in_order(tenant)
            count = sum(n for (of, _), n in versions.items() if of == tenant)
            assert sorted(s for s in sequences(tenant) if s) == list(range(1, count + 1))
            for subject in "abc":
                mine = [version for name, version in found if name == subject]
                assert mine == list(range(1, versions[tenant, subject] + 1))
        transaction.set_rollback(True)


@committing
@pytest.mark.clause("EVT-1", "a sequence without gaps per tenant")
@pytest.mark.clause("EVT-1", "order of one subject")
def test_many_writers_and_stampers_at_once_leave_neither_gap_nor_disorder():
    subjects = [("acme", "a"), ("acme", "b"), ("globex", "a")]
    for tenant, subject in subjects:
        record_tick(f"{tenant}/{subject}", now=0)  # a row to lock, whose time is the version
    writing = threading.Event()
    writing.set()

    def write(seed: int) -> None:
        chance = random.Random(seed)
        for turn in range(25):
            tenant, subject = chance.choice(subjects)
            with transaction.atomic():
                (row,) = lock_rows(Tick.objects.filter(name=f"{tenant}/{subject}"))
                record_tick(row.name, now=row.last_at + 1)
                emit([event(tenant, subject, row.last_at + 1)])
                if turn % 7 == 6:
                    transaction.set_rollback(True)

    def keep_stamping() -> None:
        while writing.is_set():
            stamp(limit=random.randint(1, 20))

    def write_all() -> None:
        at_once(*(lambda seed=seed: write(seed) for seed in range(6)))
        writing.clear()

    assert at_once(write_all, *[keep_stamping] * 3) == [None] * 4
    while stamp():
        pass
    assert Event.objects.filter(sequence=None).count() == 0
    total = 0
    for tenant in ("acme", "globex"):
        found = sorted(sequences(tenant))
        assert found == list(range(1, len(found) + 1))
        total += len(found)
    assert total == 6 * (25 - 3)
    for tenant, subject in subjects:
        mine = [version for name, version in in_order(tenant) if name == subject]
        assert mine == list(range(1, len(mine) + 1))


@committing
@pytest.mark.clause("EVT-1", "a sequence without gaps per tenant")
def test_a_stamper_that_is_rolled_back_leaves_no_gap_and_no_number():
    written(event(subject="a"), event(subject="b"))
    with transaction.atomic():
        assert stamp() == 2
        transaction.set_rollback(True)
    assert sequences("acme") == [None, None]
    assert stamp() == 2
    assert sequences("acme") == [1, 2]


@committing
@pytest.mark.clause("EVT-1", "a sequence without gaps per tenant")
def test_while_one_stamps_another_leaves_it_alone_and_a_late_commit_gets_the_next_number():
    written(event(subject="a"))
    late = threading.Event()
    stamped = threading.Event()

    def commit_late() -> None:
        with transaction.atomic():
            emit([event(subject="late")])  # written before the next one, committed after it was numbered
            late.set()
            assert stamped.wait(10)

    thread = threading.Thread(target=lambda: at_once(commit_late))
    thread.start()
    assert late.wait(10)
    written(event(subject="b"))
    with transaction.atomic():
        assert stamp() == 2
        assert at_once(stamp) == [0]
    stamped.set()
    thread.join()
    assert stamp() == 1
    assert [subject for subject, _ in in_order()] == ["a", "b", "late"]


@committing
@pytest.mark.clause("API-9", "the tick runs")
def test_the_task_stamps_everything_and_leaves_its_trace(clock: Clock):
    written(event())
    assert last_tick("events") is None
    stamp_events.run()
    assert (sequences("acme"), last_tick("events")) == ([1], clock.now)
    stamp_events.run(key="anything", more=1)


# --- Read -----------------------------------------------------------------------------------------


@pytest.fixture
def told(world: World) -> World:
    """A world whose acme has thirty numbered events, beside those of the others."""
    stamp()
    Event.objects.all().delete()
    TenantSequence.objects.all().delete()
    kinds = ("pool.created", "pool.archived", "reservation.placed", "reservationist.x")
    written(*(event("acme", f"s{n}", n + 1, type=kinds[n % 4]) for n in range(30)))
    written(event("globex"), event("platform"), event("globex", version=2))
    stamp()
    return world


def listed(world: World, **fields: Any) -> list[int]:
    answer = world.acme.api("events/list", **fields).data
    found = [e["sequence"] for e in answer["events"]]
    assert answer["next"] == (found[-1] if found else fields.get("after", 0))
    return found


@pytest.mark.clause("EVT-2", "by sequence")
def test_events_are_listed_by_sequence_past_a_place(told: World):
    assert listed(told) == list(range(1, 31))
    assert listed(told, after=28) == [29, 30]
    assert listed(told, after=30) == []
    assert listed(told, after=2**53 - 1) == []
    assert listed(told, limit=7) == list(range(1, 8))
    assert listed(told, after=7, limit=1) == [8]


@pytest.mark.clause("EVT-2", "by sequence")
@pytest.mark.parametrize("limit", [1, 7, 30, 1000])
def test_paging_neither_repeats_nor_skips_while_more_is_written(told: World, limit: int):
    seen: list[int] = []
    place = 0
    for turn in range(100):
        if turn < 3:
            written(event("acme", f"new{turn}"))
            stamp()
        answer = told.acme.api("events/list", after=place, limit=limit).data
        place = answer["next"]
        seen += [e["sequence"] for e in answer["events"]]
        if not answer["events"] and turn >= 3:
            break
    assert seen == list(range(1, 34))


@pytest.mark.clause("EVT-2", "types")
def test_types_and_families_of_types_are_picked(told: World):
    def kinds(*types: str) -> set[str]:
        return {e["type"] for e in told.acme.api("events/list", types=list(types)).data["events"]}

    assert kinds("pool.created") == {"pool.created"}
    assert kinds("pool.*") == {"pool.created", "pool.archived"}
    assert kinds("reservation.*") == {"reservation.placed"}
    assert kinds("pool.archived", "reservation.*") == {"pool.archived", "reservation.placed"}
    assert kinds("node.*") == kinds("pool.creat") == kinds("pool.nothing") == set()
    assert len(listed(told, types=["pool.*"], limit=3, after=1)) == 3
    assert listed(told, types=[]) == list(range(1, 31))


@pytest.mark.clause("EVT-2", "types")
@pytest.mark.parametrize("name", ["pool", "%.%", "_.x", "*", "pool.*.*", "", "POOL.x", "pool.%"])
def test_a_type_that_has_not_the_form_is_refused(told: World, name: str):
    assert told.acme.api("events/list", types=[name]).refused_at("types.0")


@pytest.mark.clause("EVT-2", "limits")
@pytest.mark.parametrize(
    ("field", "value"), [("limit", 0), ("limit", 1001), ("after", -1), ("after", "1"), ("after", None)]
)
def test_a_place_or_limit_out_of_range_is_refused(told: World, field: str, value: Any):
    told.acme.api("events/list", **{field: value}).refused_at(field)


@pytest.mark.clause("EVT-1", "only stamped events are shown")
def test_an_event_without_a_number_is_not_shown(told: World):
    written(event("acme", "new"))
    assert 31 not in listed(told)
    stamp()
    assert listed(told, after=30) == [31]


@pytest.mark.clause("EVT-2", "other tenants")
def test_another_tenants_events_are_invisible(told: World):
    assert {e["tenantId"] for e in told.acme.api("events/list").data["events"]} == {"acme"}
    assert [e["sequence"] for e in told.globex.api("events/list").data["events"]] == [1, 2]
    told.acme.api("events/list", tenantId="globex").refused("ACCESS_DENIED")
    told.admin("events/list", tenantId="acme").refused("ACCESS_DENIED")


@pytest.mark.clause("EVT-1", "what an event holds")
def test_an_event_says_what_when_who_and_why(world: World):
    made = world.admin.raw(
        "/api/compute/pools/create",
        '{"tenantId": "platform", "name": "h", "region": "eu", "gpuModel": "h", "deviceClass": "gpu"}',
        x_request_id="told-1",
    ).data["pool"]
    stamp()
    (shown,) = world.admin("events/list", types=["pool.created"]).data["events"]
    actor = world.admin.iam("session/whoami").data["principal"]["id"]
    assert {k: v for k, v in shown.items() if k not in ("id", "sequence", "data")} == {
        "type": "pool.created",
        "tenantId": "platform",
        "at": made["createdAt"],
        "subject": {"type": "pool", "id": made["id"], "version": 1},
        "actor": {"principal": actor},
        "requestId": "told-1",
    }
    assert shown["id"].startswith("evt_")


@pytest.mark.clause("EVT-1", "what an event holds")
def test_reason_and_agent_are_shown_where_there_are_some(world: World):
    written(event(reason="ended", agent_id="agt_1", actor_id="system:capacity.reservations", data={"a": [None]}))
    stamp()
    (shown,) = [e for e in world.acme.api("events/list").data["events"] if e["subject"]["id"] == "s"]
    assert (shown["reason"], shown["actor"]) == (
        "ended",
        {"principal": "system:capacity.reservations", "agent": "agt_1"},
    )
    assert shown["data"] == {"a": [None]}
    assert "requestId" not in shown


@pytest.mark.django_db
@pytest.mark.clause("EVT-1", "a sequence without gaps per tenant")
def test_the_database_itself_refuses_a_number_twice():
    written(event(subject="a"), event(subject="b"))
    stamp()
    with pytest.raises(Exception, match="event_sequence_unique"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("UPDATE computeplatform_event SET sequence = 1")


@pytest.mark.django_db
@pytest.mark.clause("EVT-1", "within a second")
def test_finding_what_is_to_be_numbered_does_not_read_the_history():
    written(*(event(subject=f"s{n}") for n in range(300)))
    stamp()
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE computeplatform_event")
        cursor.execute("SET LOCAL enable_seqscan = off")
    sql = "SELECT * FROM computeplatform_event WHERE sequence IS NULL ORDER BY position LIMIT 5000"
    plan = " ".join(line for (line,) in rows(f"EXPLAIN {sql}"))
    assert "event_unstamped" in plan
