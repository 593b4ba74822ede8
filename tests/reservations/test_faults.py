"""What goes wrong stays where it went wrong: broken rows, time lost in a queue, races of a call with its own answer."""

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from django.db import connection, connections, transaction
from django.test.utils import CaptureQueriesContext
from structlog.testing import capture_logs

from computeplatform.clock import compute_now
from computeplatform.models import Event
from fleet.locks import lock_pools
from fleet.models import Offer, Pool
from quotas.models import Quota
from reservations import reconcilers
from reservations.models import Booking, Reservation
from reservations.operations.admission import admit_decided, decide_drafts
from reservations.operations.lifecycle import advance_due
from tests.reservations.conftest import event_types
from tests.support.api import Answer, Api, admit_all, settle
from tests.support.clock import Clock
from tests.support.world import HOUR, World, request


class Crashed(Exception):
    """The call's web process died."""


def die() -> None:
    raise Crashed


def leave_draft(api: Api, asked: dict[str, Any]) -> Reservation:
    """The draft of a call whose web process died while it was parked."""
    with pytest.raises(Crashed):
        Api(api.token, api.tenant_id, work=die)("reservations/create", **asked)
    return Reservation.objects.get(idempotency_key=asked["idempotencyKey"])


def refusal(row: Reservation) -> str:
    """The code that a resting draft was answered."""
    row.refresh_from_db()
    assert row.call_open_until is None
    return str((row.outcome or {})["refusal"]["code"])


# --- One broken row -----------------------------------------------------------------------------------------------

BREAKS = [
    pytest.param({"context": {}}, id="cannot be decided"),
    pytest.param({"conditions": [{"type": "Broken"}]}, id="cannot be placed"),
]


@pytest.mark.clause("API-7", "a draft that cannot be worked on is answered INTERNAL_ERROR; the others go on")
@pytest.mark.parametrize("broken", BREAKS)
def test_a_broken_draft_stops_nobody(world: World, pool: str, clock, broken: dict[str, Any]):
    asked = [request(pool) for _ in range(4)]
    drafts = [leave_draft(world.ann.api, one) for one in asked]
    Reservation.objects.filter(id=drafts[1].id).update(**broken)
    clock.advance(seconds=1)
    reconcilers.admission_tick()
    assert refusal(drafts[1]) == "INTERNAL_ERROR"
    for index in (0, 2, 3):
        drafts[index].refresh_from_db()
        assert drafts[index].state == "placed"
    assert Quota.objects.get(tenant_id="acme", pool_id=pool, resource="gpu").used == 3
    # Its key can be retried, and once it is whole it goes through.
    Reservation.objects.filter(id=drafts[1].id).update(conditions=[])
    assert world.ann.api("reservations/create", **asked[1]).data["reservation"]["state"] == "placed"
    assert event_types(drafts[1].id) == ["placed"]


@pytest.mark.clause("API-7", "nothing of the inside is told")
def test_the_answer_of_a_broken_draft_says_nothing_of_the_inside(world: World, pool: str, left):
    def break_and_admit() -> None:
        Reservation.objects.update(conditions=[{"type": "Broken"}])
        admit_all()

    world.ann.api.work = break_and_admit
    error = world.ann.api("reservations/create", **request(pool)).refused("INTERNAL_ERROR")
    assert set(error) == {"code", "message", "requestId", "fix", "docs"}
    assert left() == {"drafts": 1, "decisions": 1}


@pytest.mark.clause("REC-3", "one that cannot be placed does not keep the others from their turn")
def test_a_broken_pending_one_stops_nobody(world: World, pool: str):
    first = world.ann.api("reservations/create", **request(pool, 8)).data["reservation"]
    waiting = [world.ann.api("reservations/create", **request(pool, 2)).data["reservation"] for _ in range(3)]
    kept = Reservation.objects.get(id=waiting[0]["id"]).conditions
    Reservation.objects.filter(id=waiting[0]["id"]).update(conditions=[{"type": "Broken"}])
    world.ann.api("reservations/release", reservationId=first["id"])
    reconcilers.place(pool_id=pool)
    states = {row.id: row.state for row in Reservation.objects.all()}
    assert [states[made["id"]] for made in waiting] == ["pending", "placed", "placed"]
    Reservation.objects.filter(id=waiting[0]["id"]).update(conditions=kept)
    reconcilers.placement_tick()
    assert Reservation.objects.get(id=waiting[0]["id"]).state == "placed"


SENSELESS = [
    pytest.param({"count": -1}, id="fewer devices than none"),
    pytest.param({"nodes": 0}, id="no nodes"),
    pytest.param({"vcpu_milli": -1}, id="less of the host than nothing"),
    pytest.param({"duration": -HOUR}, id="over before it begins"),
    pytest.param({"requested_starts_at": 2**62}, id="later than any time"),
    pytest.param({"duration": 2**63 - 1}, id="longer than any time"),
]


@pytest.mark.clause("REC-3", "one whose shape or window makes no sense does not keep the others from their turn")
@pytest.mark.clause("REC-9", "nor is it the first in line")
@pytest.mark.parametrize("broken", SENSELESS)
def test_a_senseless_pending_one_is_in_nobodys_way(world: World, pool: str, clock, broken: dict[str, Any]):
    def create(gpus: int, **changed: Any) -> dict[str, Any]:
        clock.advance(milliseconds=1)
        return world.ann.api("reservations/create", **request(pool, gpus, **changed)).data

    first = create(7)["reservation"]
    bad, *waiting = [create(gpus)["reservation"] for gpus in (8, 6, 2)]
    Reservation.objects.filter(id=bad["id"]).update(**broken)
    # Admission, a dry run and availability look ahead past all that waits; and so does the pass over it.
    assert create(1, durationSeconds=60)["reservation"]["state"] == "placed"
    assert create(1, dryRun=True)["dryRun"]["outcome"] == "pending"
    asked = {"devices": {"class": "gpu", "count": 1}, "durationSeconds": 60, "from": clock.now, "to": clock.now + HOUR}
    assert world.ann.api("pools/availability", poolId=pool, **asked).status == 200
    world.ann.api("reservations/release", reservationId=first["id"])
    with capture_logs() as logs:
        reconcilers.place(pool_id=pool)
    assert [(line["event"], line["reservation_id"]) for line in logs] == [("reservation_skipped", bad["id"])]
    states = dict(Reservation.objects.values_list("id", "state"))
    assert [states[made["id"]] for made in (bad, *waiting)] == ["pending", "placed", "pending"]
    # It waits on, and is given up in its time.
    clock.advance(hours=168)
    settle()
    given_up = Reservation.objects.get(id=bad["id"])
    assert (given_up.state, given_up.reason) == ("cancelled", "pending-too-long")


@pytest.mark.clause("API-7", "a draft whose shape makes no sense is answered INTERNAL_ERROR; the others go on")
def test_a_senseless_draft_stops_nobody(world: World, pool: str, clock):
    drafts = [leave_draft(world.ann.api, request(pool)) for _ in range(3)]
    Reservation.objects.filter(id=drafts[1].id).update(duration=-HOUR)
    clock.advance(seconds=1)
    reconcilers.admission_tick()
    assert refusal(drafts[1]) == "INTERNAL_ERROR"
    assert Reservation.objects.filter(state="placed").count() == 2
    assert Quota.objects.get(tenant_id="acme", pool_id=pool, resource="gpu").used == 2


@pytest.mark.clause("CRE-7", "a cost outside the range of decimals denies, and only that request")
def test_a_cost_beyond_all_numbers_is_denied(world: World):
    price = {"perDeviceHour": "999999999", "currency": "EUR"}
    pool = world.offered_pool(policy={"price": price, "maxDurationHours": 87_600})
    dear = request(pool, 16, nodes=4096, durationSeconds=87_600 * 3600)
    draft, fine = leave_draft(world.ann.api, dear), leave_draft(world.ann.api, request(pool))
    admit_all()
    draft.refresh_from_db()
    fine.refresh_from_db()
    assert (draft.state, fine.state) == ("denied", "placed")
    world.ann.api("reservations/create", **dear).refused("ACCESS_DENIED")


# --- What has come up while the draft waited ----------------------------------------------------------------------


@pytest.mark.clause("CRE-10", "a window that passes while the draft waits: refused before it is decided")
@pytest.mark.parametrize("limit", ["endsAt", "startBefore"])
def test_a_window_that_passes_while_the_draft_waits(world: World, pool: str, clock, left, limit: str):
    asked = request(pool) | {limit: clock.now + 30_000}
    if limit == "endsAt":
        del asked["durationSeconds"]
    draft = leave_draft(world.ann.api, asked)
    clock.advance(seconds=30)
    admit_all()
    assert refusal(draft) == "INVALID_INPUT"
    assert left() == {"drafts": 1}


@pytest.mark.clause("CRE-9", "archived, or withdrawn, while the draft waits")
@pytest.mark.parametrize("how", ["archived", "withdrawn"])
def test_a_pool_that_goes_while_the_draft_waits(world: World, pool: str, clock, how: str):
    draft = leave_draft(world.ann.api, request(pool))
    take_away(pool, how, at=clock.now)
    admit_all()
    assert refusal(draft) == "NOT_FOUND"
    assert Quota.objects.get(tenant_id="acme", pool_id=pool, resource="gpu").used == 0


@pytest.mark.clause("CRE-9", "an archived pool")
@pytest.mark.clause("CRE-21", "a replay survives archive and withdrawal")
@pytest.mark.parametrize("how", ["archived", "withdrawn"])
def test_a_replay_survives_what_a_new_request_does_not(world: World, pool: str, clock, left, how: str):
    asked = request(pool)
    made = world.ann.api("reservations/create", **asked).data["reservation"]
    take_away(pool, how, at=clock.now)
    there = left()
    assert world.ann.api("reservations/create", **asked).data["reservation"] == made
    world.ann.api("reservations/create", **request(pool)).refused("NOT_FOUND")
    assert left() == there


def take_away(pool: str, how: str, *, at: int) -> None:
    if how == "archived":
        Pool.objects.filter(id=pool).update(archived_at=at)
    else:
        Offer.objects.filter(pool_id=pool, tenant_id="acme").update(withdrawn_at=at)


@pytest.mark.clause("CRE-4", "a retry is decided at the priority that the offer allows now")
def test_a_retry_takes_the_offers_present_priority(world: World):
    pool = world.offered_pool(quota=0)
    asked = request(pool)
    world.ann.api("reservations/create", **asked).refused("QUOTA_EXCEEDED")
    world.offer(pool, "acme", gpu=8, maxPriority=20)
    made = world.ann.api("reservations/create", **asked).data["reservation"]
    assert made["priority"] == 20


# --- Whose event it is --------------------------------------------------------------------------------------------


@pytest.mark.clause("EVT-1", "the actor and the request id of a create")
@pytest.mark.clause("API-6", "the request id is stored on what the request created")
@pytest.mark.parametrize("outcome", ["placed", "pending"])
def test_the_event_of_a_create_names_its_caller_and_its_request(world: World, pool: str, outcome: str):
    made = create_with_id(world.ann.api, request(pool, 8 if outcome == "placed" else 9), "req-of-ann")
    event = Event.objects.get(subject_id=made["id"])
    assert (event.type, event.actor_id, event.request_id) == (f"reservation.{outcome}", world.ann.id, "req-of-ann")
    settle()
    later = Event.objects.filter(subject_id=made["id"]).exclude(pk=event.pk)
    assert {row.actor_id for row in later} == ({"system:capacity.reservations"} if outcome == "placed" else set())


def create_with_id(api: Api, asked: dict[str, Any], request_id: str) -> dict[str, Any]:
    body = json.dumps({"tenantId": api.tenant_id} | asked)
    return api.raw("/api/compute/reservations/create", body, x_request_id=request_id).data["reservation"]


# --- A call and its own answer ------------------------------------------------------------------------------------

_REOPEN = """
CREATE FUNCTION reopen() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    UPDATE reservations_reservation SET call_open_until = compute_now() + 60000, outcome = NULL WHERE id = NEW.id;
    RETURN NULL;
END $$;
CREATE TRIGGER reopen AFTER UPDATE ON reservations_reservation FOR EACH ROW
    WHEN (NEW.outcome -> 'refusal' ->> 'code' = 'UNAVAILABLE') EXECUTE FUNCTION reopen();
"""


@pytest.mark.clause("CRE-18", "another call opens the draft in the moment in which this one rests it")
def test_a_draft_that_is_opened_again_while_it_is_rested(world: World, pool: str, left):
    with connection.cursor() as cursor:
        cursor.execute(_REOPEN)
    world.ann.api.work = lambda: None
    error = world.ann.api("reservations/create", **request(pool)).refused("UNAVAILABLE")
    assert error["details"]["reservationId"] == Reservation.objects.get().id
    assert left() == {"drafts": 1}


_QUICK = """
CREATE FUNCTION rest() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    UPDATE reservations_reservation SET call_open_until = NULL, outcome =
        '{"refusal": {"code": "QUOTA_EXCEEDED", "message": "m", "details": {}}}' WHERE id = NEW.id;
    RETURN NULL;
END $$;
CREATE TRIGGER rest AFTER INSERT ON reservations_reservation FOR EACH ROW EXECUTE FUNCTION rest();
"""


@pytest.mark.clause("CRE-1", "a worker that is quicker than the call's own second look: one decision")
@pytest.mark.clause("CRE-20", "an answered draft rests until its key is retried, by another call")
def test_a_draft_that_is_answered_before_its_call_waits(world: World, pool: str, left):
    with connection.cursor() as cursor:
        cursor.execute(_QUICK)
    asked = request(pool)
    world.ann.api("reservations/create", **asked).refused("QUOTA_EXCEEDED")
    assert Reservation.objects.get().attempts == 1
    assert left() == {"drafts": 1}
    assert world.ann.api("reservations/create", **asked).data["reservation"]["state"] == "placed"


# --- Time lost in a queue -----------------------------------------------------------------------------------------


@pytest.fixture
def real_time(transactional_db: None, world: World) -> None:
    """Threads see only what is committed; and time runs, for a process does not notice a moved clock while it waits."""
    Clock.restore()


def behind_the_pools_lock(pool: str, work: Callable[[], Any], meanwhile: Callable[[], Any]) -> int:
    """Run ``work`` while somebody else holds the pool's lock, and ``meanwhile`` once it waits there; when that was."""

    def run() -> None:
        try:
            work()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as threads:
        with transaction.atomic():
            lock_pools([pool])
            waits = threads.submit(run)
            until_somebody_waits()
            then = compute_now()
            meanwhile()
        waits.result(timeout=30)
    return then


def until_somebody_waits() -> None:
    for _ in range(1_000):
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))"
            )
            if cursor.fetchone()[0]:
                return
        time.sleep(0.005)
    raise AssertionError("nobody waits for the lock")


@pytest.mark.clause("CRE-16", "never placed into the past, however long the pool's lock was waited for")
@pytest.mark.usefixtures("real_time")
@pytest.mark.django_db(transaction=True)
def test_admission_that_waited_starts_when_its_turn_came(world: World, pool: str):
    draft = leave_draft(world.ann.api, request(pool))
    then = behind_the_pools_lock(pool, partial(reconcilers.admit, pool_id=pool), lambda: None)
    draft.refresh_from_db()
    assert draft.state == "placed"
    assert (draft.starts_at or 0) >= then


@pytest.mark.clause("CRE-20", "a minute that runs out at the pool's lock")
@pytest.mark.usefixtures("real_time")
@pytest.mark.django_db(transaction=True)
def test_a_minute_that_runs_out_at_the_lock(world: World, pool: str):
    draft = leave_draft(world.ann.api, request(pool))

    def run_out() -> None:
        Reservation.objects.filter(id=draft.id).update(call_open_until=compute_now())

    behind_the_pools_lock(pool, partial(reconcilers.admit, pool_id=pool), run_out)
    draft.refresh_from_db()
    assert (draft.state, draft.decided) == ("draft", True)


@pytest.mark.clause("REC-3", "at once when capacity is freed, also by what ended while the lock was waited for")
@pytest.mark.usefixtures("real_time")
@pytest.mark.django_db(transaction=True)
def test_placement_that_waited_sees_what_ended_meanwhile(world: World, pool: str):
    first = world.ann.api("reservations/create", **request(pool, 8)).data["reservation"]
    waiting = world.ann.api("reservations/create", **request(pool, 8)).data["reservation"]
    end = partial(world.ann.api, "reservations/release", reservationId=first["id"])
    then = behind_the_pools_lock(pool, partial(reconcilers.place, pool_id=pool), end)
    placed = Reservation.objects.get(id=waiting["id"])
    assert placed.state == "placed"
    assert (placed.starts_at or 0) >= then


# --- Nodes that do not bind ---------------------------------------------------------------------------------------


@pytest.mark.clause("REC-7", "a node that binds too late is told to withdraw, and stays tainted until it has")
@pytest.mark.clause("GET-1", "binding shows the present placement alone")
def test_a_node_that_binds_too_late(world: World, clock):
    pool = world.offered_pool(nodes=2)
    made = world.ann.api("reservations/create", **request(pool, 8, binding="node")).data["reservation"]
    settle()
    late = next(n for n in world.nodes if n.id == made["placement"][0]["nodeId"])
    other = next(n for n in world.nodes if n is not late)
    late.sync()
    clock.advance(seconds=300)
    settle()
    settle()
    late.holds[made["id"]] = "bound"
    told = {a["reservationId"]: a["desired"] for a in late.sync()["allocations"]}
    assert told == {made["id"]: "withdrawn"}
    reconcilers.reconcile(pool_id=pool)
    shown = world.ann.api("reservations/get", reservationId=made["id"]).data
    assert shown["reservation"]["state"] == "binding"
    assert "binding" not in shown
    assert [t["key"] for t in late.sync()["taints"]] == ["BindTimedOut"]
    other.follow()
    reconcilers.reconcile(pool_id=pool)
    shown = world.ann.api("reservations/get", reservationId=made["id"]).data
    assert shown["reservation"]["state"] == "active"
    assert [part["nodeId"] for part in shown["binding"]] == [other.id]
    late.follow()
    assert late.sync()["taints"] == []


def test_nodes_are_locked_in_order_whatever_the_order_of_their_reservations(world: World, clock):
    """Two passes that time out different reservations on the same nodes must not wait for each other."""
    pool = world.offered_pool(nodes=3)
    for _ in world.nodes:
        world.ann.api("reservations/create", **request(pool, 8, binding="node"))
    settle()
    clock.advance(seconds=300)
    with CaptureQueriesContext(connection) as queries:
        advance_due(now=clock.now)
    locking = [q["sql"] for q in queries if "FOR NO KEY UPDATE" in q["sql"] and 'FROM "fleet_node"' in q["sql"]]
    assert all(node.id in locking[0] for node in world.nodes)


@pytest.mark.clause("REL-1", "binding: bookings end now, the nodes withdraw")
def test_releasing_what_binds(world: World, pool: str, clock):
    made = world.ann.api("reservations/create", **request(pool, 8, binding="node")).data["reservation"]
    settle()
    node = world.nodes[0]
    node.sync()
    node.holds[made["id"]] = "bound"
    node.sync()
    clock.advance(seconds=10)
    shown = world.ann.api("reservations/release", reservationId=made["id"]).data["reservation"]
    assert (shown["state"], shown["releasedAt"]) == ("released", clock.now)
    assert event_types(made["id"]) == ["placed", "binding", "released"]
    assert Booking.objects.get().during.upper == clock.now
    assert [a["desired"] for a in node.sync()["allocations"]] == ["withdrawn"]
    # What comes next gets the devices at once; the node binds it only after it has withdrawn (NOD-8).
    assert world.ann.api("reservations/create", **request(pool, 8)).data["reservation"]["state"] == "placed"


# --- What a call says, and in which order it is looked at ---------------------------------------------------------


@pytest.mark.clause("CRE-3", "decimal text is a number too")
@pytest.mark.parametrize(("first", "again"), [("4.4", "4.40"), ("4.40", "4.4000"), ("100", "100.00"), ("0", "0.0")])
def test_another_spelling_of_the_cost_is_no_difference(world: World, pool: str, first: str, again: str):
    asked = request(pool)
    made = world.ann.api("reservations/create", **asked, maxCost=first).data["reservation"]
    assert world.ann.api("reservations/create", **asked, maxCost=again).data["reservation"]["id"] == made["id"]


@pytest.mark.clause("CRE-19", "the key of a stored reservation is not read")
def test_a_dry_run_does_not_read_the_key(world: World, pool: str, left):
    asked = request(pool, 8)
    made = world.ann.api("reservations/create", **asked).data["reservation"]
    there = left()
    # Answered is what a new request would come to now, not what the key stands for.
    found = world.ann.api("reservations/create", **asked, dryRun=True).data
    assert set(found) == {"dryRun"}
    assert (made["state"], found["dryRun"]["outcome"]) == ("placed", "pending")
    assert left() == there | {"decisions": there["decisions"] + 1}


@pytest.mark.clause("CRE-21", "shape before tenant: what fields say together, then UNSUPPORTED")
def test_the_whole_shape_comes_before_the_tenant(world: World, pool: str, left):
    def asked(**changed: Any) -> Answer:
        fields = {name: value for name, value in (request(pool) | changed).items() if value is not None}
        return world.gil.api("reservations/create", tenantId="acme", **fields)

    assert asked(durationSeconds=None).refused_at("endsAt")
    assert asked(durationSeconds=None, binding="ssh").refused_at("endsAt")
    asked(binding="ssh").refused("UNSUPPORTED", field="binding")
    assert left() == {}
    asked().refused("ACCESS_DENIED")
    assert left() == {"decisions": 1}


# --- Lists --------------------------------------------------------------------------------------------------------


@pytest.mark.clause("LST-2", "hidden rows are not told by nextCursor")
def test_a_full_page_before_hidden_rows_is_the_last(world: World, pool: str, clock):
    world.bob.api("reservations/create", **request(pool))
    clock.advance(seconds=1)
    mine = world.ann.api("reservations/create", **request(pool)).data["reservation"]
    page = world.ann.api("reservations/list", scope="all", limit=1).data
    assert [row["id"] for row in page["reservations"]] == [mine["id"]]
    assert "nextCursor" not in page


@pytest.mark.clause("LST-1", "one state or several, not none")
def test_no_state_at_all_is_refused(world: World):
    assert world.ann.api("reservations/list", state=[]).refused_at("state")


@pytest.mark.clause("LST-3", "a draft that is admitted between two pages disturbs nothing")
def test_an_older_draft_admitted_between_the_pages(world: World, pool: str, clock):
    old = leave_draft(world.ann.api, request(pool))
    made = []
    for _ in range(3):
        clock.advance(seconds=1)
        world.ann.api.work = partial(admit_youngest, pool)
        made.append(world.ann.api("reservations/create", **request(pool)).data["reservation"]["id"])
    first = world.ann.api("reservations/list", limit=2).data
    admit_all()
    rest = world.ann.api("reservations/list", limit=2, cursor=first["nextCursor"]).data
    shown = [row["id"] for row in first["reservations"] + rest["reservations"]]
    assert shown == [*reversed(made), old.id]


def admit_youngest(pool: str) -> None:
    """A worker that sees to the youngest draft alone."""
    youngest = Reservation.objects.filter(state="draft").latest("created_at").id
    decide_drafts(pool_id=pool, now=compute_now(), only=[youngest])
    admit_decided(pool_id=pool, now=compute_now(), only=[youngest])


@pytest.mark.clause("REL-1", "an advance booking that was released leaves nothing behind")
def test_devices_of_a_released_advance_booking_are_free(world: World, pool: str, clock):
    made = world.ann.api("reservations/create", **request(pool, 8, startsAt=clock.now + HOUR)).data["reservation"]
    world.ann.api("reservations/release", reservationId=made["id"])
    again = world.ann.api("reservations/create", **request(pool, 8, startsAt=clock.now + HOUR)).data["reservation"]
    assert again["state"] == "placed"
