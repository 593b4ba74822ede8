"""The pool-lease placer: create joins the queue, the holder of the pool's lease places it (CRE-14, CRE-15, CRE-17)."""

import threading
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.db import connection, connections

from computeplatform.clock import compute_now
from quotas.models import Charge
from reservations import reconcilers
from reservations.models import Booking, Reservation
from reservations.operations import placing, queueing
from tests.reservations.conftest import event_types
from tests.support.api import Api, admit_all, settle
from tests.support.threads import at_once
from tests.support.world import HOUR, World, request


def create(api: Api, pool: str, gpus: int = 1, **changed: Any) -> dict[str, Any]:
    return api("reservations/create", **request(pool, gpus, **changed)).data["reservation"]


def stored(api: Api, made: dict[str, Any]) -> dict[str, Any]:
    return api("reservations/get", reservationId=made["id"]).data["reservation"]


def condition_types(shown: dict[str, Any]) -> list[str]:
    return [condition["type"] for condition in shown["conditions"]]


@pytest.fixture
def pool(world: World) -> str:
    """One node of eight GPUs whose pool has a placer of its own."""
    return world.offered_pool(policy={"placer": "pool-lease"})


@pytest.mark.clause("CRE-14", "pool-lease: create charges and answers pending with Queued")
@pytest.mark.clause("CRE-17", "queued")
def test_create_charges_and_queues(world: World, pool: str, clock, left: Callable[..., dict[str, int]]):
    made = create(world.ann.api, pool, 4)
    assert left() == {"reservations": 1, "decisions": 1, "charges": 1, "events": 1}
    assert made["state"] == "pending"
    [condition] = made["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("Queued", "True", "AwaitingPlacer")
    assert condition["lastTransitionAt"] == clock.now
    assert "placement" not in made
    assert "startsAt" not in made
    assert event_types(made["id"]) == ["queued"]


@pytest.mark.clause("CRE-14", "pool-lease: the holder of the lease places the queue")
def test_the_queue_is_placed(world: World, pool: str, clock):
    made = create(world.ann.api, pool, 4)
    clock.advance(seconds=2)
    reconcilers.place(pool_id=pool)
    found = stored(world.ann.api, made)
    assert (found["state"], found["conditions"]) == ("placed", [])
    assert (found["startsAt"], found["endsAt"]) == (clock.now, clock.now + HOUR)
    assert event_types(made["id"]) == ["queued", "placed"]
    assert Charge.objects.filter(reservation_id=made["id"]).count() == 1


@pytest.mark.clause("CRE-14", "pool-lease: what it cannot place becomes Unschedulable")
@pytest.mark.clause("CRE-17", "exactly one of placed, pending and queued at admission")
def test_what_does_not_fit_leaves_the_queue(world: World, pool: str, clock):
    create(world.ann.api, pool, 5)
    clock.advance(seconds=1)
    made = create(world.ann.api, pool, 8)
    reconcilers.place(pool_id=pool)
    found = stored(world.ann.api, made)
    assert found["state"] == "pending"
    [condition] = found["conditions"]
    assert (condition["type"], condition["reason"]) == ("Unschedulable", "NoFreeDevices")
    assert found["version"] > made["version"]
    assert event_types(made["id"]) == ["queued"]


@pytest.mark.clause("CRE-14", "pool-lease: in order")
def test_the_queue_is_placed_in_order(world: World, pool: str, clock):
    order = []
    for priority, api in ((50, world.ann.api), (10, world.ann.api), (50, world.gil.api), (50, world.bob.api)):
        order.append(create(api, pool, 3, priority=priority))
        clock.advance(seconds=1)
    reconcilers.place(pool_id=pool)
    states = [Reservation.objects.get(id=made["id"]).state for made in order]
    # The first of acme, then globex that holds nothing; two devices are left, too few for the others.
    assert states == ["placed", "pending", "placed", "pending"]


@pytest.mark.clause("CRE-14", "default inline: create places")
def test_without_the_policy_create_places(world: World):
    pool = world.offered_pool()
    assert create(world.ann.api, pool)["state"] == "placed"


@pytest.mark.clause("CRE-14", "pool-lease: a lost wake is made good by the tick")
@pytest.mark.parametrize("tick", [reconcilers.queue_tick, reconcilers.placement_tick])
def test_a_lost_wake_is_made_good(world: World, pool: str, clock, redis_client, tick: Callable[[], None]):
    made = create(world.ann.api, pool)
    redis_client.flushdb()  # whoever was woken has died
    clock.advance(milliseconds=1_001)
    tick()
    assert stored(world.ann.api, made)["state"] == "placed"


@pytest.mark.clause("CRE-14", "pool-lease: create wakes the placer")
def test_create_wakes_the_placer(world: World, pool: str, redis_client, django_capture_on_commit_callbacks):
    with django_capture_on_commit_callbacks(execute=True):
        create(world.ann.api, pool)
    assert redis_client.exists(f"compute:wake:placement:{pool}")


@pytest.mark.clause("CRE-15", "wait holds the answer while it is Queued")
def test_wait_covers_the_queue(world: World, pool: str):
    works = iter([admit_all, admit_all, reconcilers.placement_tick])

    def work() -> None:
        next(works)()

    ann = Api(world.ann.api.token, "acme", work=work, looks=10)
    made = create(ann, pool, wait={"timeoutMs": 30_000})
    assert (made["state"], made["conditions"]) == ("placed", [])
    assert next(works, None) is None


@pytest.mark.clause("CRE-15", "Queued that becomes Unschedulable is waited for, NeverFits is not")
@pytest.mark.parametrize(("gpus", "parked"), [(8, 5), (9, 2)])
def test_wait_goes_on_while_it_can_come(world: World, pool: str, gpus: int, parked: int):
    create(world.bob.api, pool)
    settle()
    looks = []

    def work() -> None:
        looks.append(1)
        settle()

    ann = Api(world.ann.api.token, "acme", work=work, looks=4)
    made = create(ann, pool, gpus, wait={"timeoutMs": 30_000})
    assert condition_types(made) == ["Unschedulable"]
    assert len(looks) <= parked


@pytest.mark.clause("CRE-15", "a timeout returns it still queued, not an error")
def test_when_the_time_is_up_it_is_still_queued(world: World, pool: str):
    made = create(world.ann.api, pool, wait={"timeoutMs": 100})
    assert (made["state"], condition_types(made)) == ("pending", ["Queued"])


@pytest.mark.clause("CRE-3", "the stored reservation")
@pytest.mark.clause("CRE-14", "pool-lease: a replay answers what is stored")
def test_a_replay_finds_it_placed(world: World, pool: str):
    asked = request(pool, 2)
    first = world.ann.api("reservations/create", **asked).data["reservation"]
    reconcilers.place(pool_id=pool)
    again = world.ann.api("reservations/create", **asked).data["reservation"]
    assert (first["id"], first["state"], again["state"]) == (again["id"], "pending", "placed")


@pytest.mark.clause("CRE-14", "pool-lease: QUOTA_EXCEEDED is answered by create")
@pytest.mark.clause("CRE-12", "nothing is charged in part")
def test_the_quota_is_checked_before_it_queues(world: World, left: Callable[..., dict[str, int]]):
    pool = world.offered_pool(quota=3, policy={"placer": "pool-lease"})
    create(world.ann.api, pool, 2)
    world.ann.api("reservations/create", **request(pool, 2)).refused("QUOTA_EXCEEDED", resource="gpu", used=2, max=3)
    assert left() == {"drafts": 1, "reservations": 1, "decisions": 2, "charges": 1, "events": 1}


@pytest.mark.clause("REL-1", "pending: cancelled instead")
@pytest.mark.clause("CAN-1", "pending")
@pytest.mark.parametrize("ending", ["release", "cancel"])
def test_a_queued_one_can_be_withdrawn(world: World, pool: str, ending: str):
    made = create(world.ann.api, pool)
    ended = world.ann.api(f"reservations/{ending}", reservationId=made["id"]).data["reservation"]
    assert (ended["state"], ended["reason"], ended["conditions"]) == ("cancelled", ending, [])
    reconcilers.place(pool_id=pool)
    assert stored(world.ann.api, made)["state"] == "cancelled"
    assert event_types(made["id"]) == ["queued", "cancelled"]


@pytest.mark.clause("CRE-16", "a pending one that can no longer start")
def test_a_queued_one_is_given_up_in_time(world: World, pool: str, clock):
    made = create(world.ann.api, pool, startBefore=clock.now + 1_000)
    clock.advance(seconds=1)
    settle()
    ended = stored(world.ann.api, made)
    assert (ended["state"], ended["reason"], ended["conditions"]) == ("cancelled", "window-passed", [])


@pytest.mark.clause("CRE-14", "pool-lease: what fails in the queue keeps nobody else from it")
def test_one_that_fails_does_not_hold_the_queue(world: World, pool: str):
    bad = create(world.ann.api, pool)
    good = create(world.ann.api, pool)
    kept = Reservation.objects.get(id=bad["id"]).conditions
    Reservation.objects.filter(id=bad["id"]).update(conditions=[{"type": "Broken"}])
    reconcilers.place(pool_id=pool)
    assert stored(world.ann.api, good)["state"] == "placed"
    Reservation.objects.filter(id=bad["id"]).update(conditions=kept)
    reconcilers.place(pool_id=pool)
    assert stored(world.ann.api, bad)["state"] == "placed"


# --- One holder at a time ---------------------------------------------------------------------------------------------


@pytest.fixture
def committed(transactional_db: None) -> None:
    """Threads see only what is committed."""


@pytest.mark.clause("CRE-14", "pool-lease: one holder per pool")
@pytest.mark.django_db(transaction=True)
def test_the_queue_is_placed_once_by_many_workers(committed: None, world: World, pool: str, clock):
    made = []
    for _ in range(6):
        made.append(create(world.ann.api, pool, 2))
        clock.advance(seconds=1)
    at_once([partial(reconcilers.place, pool_id=pool)] * 4)
    states = [Reservation.objects.get(id=one["id"]).state for one in made]
    assert states == ["placed"] * 4 + ["pending"] * 2
    assert Booking.objects.count() == 4
    assert not Reservation.objects.exclude(queued_at=None).exists()
    for one in made[:4]:
        assert event_types(one["id"]) == ["queued", "placed"]


@pytest.mark.clause("CRE-14", "pool-lease: while one holds the lease, one waits and the others have nothing to do")
@pytest.mark.django_db(transaction=True)
def test_one_waits_for_the_lease(committed: None, world: World, pool: str):
    made = create(world.ann.api, pool)
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with queueing.placer_lease(pool) as mine:
            assert mine
            entered.set()
            assert leave.wait(10)
        connections.close_all()

    def place() -> None:
        reconcilers.place(pool_id=pool)
        connections.close_all()

    holder, waiting = threading.Thread(target=hold), threading.Thread(target=place)
    holder.start()
    assert entered.wait(10)
    waiting.start()
    until_waiting_for_a_lock()
    # A third one leaves it to the one that waits, instead of waiting too.
    placing.place_waiting(pool, now=compute_now())
    assert stored(world.ann.api, made)["state"] == "pending"
    leave.set()
    holder.join(10)
    waiting.join(10)
    assert stored(world.ann.api, made)["state"] == "placed"


@pytest.mark.clause("CRE-14", "pool-lease: a killed holder's lease is taken over")
@pytest.mark.django_db(transaction=True)
def test_a_killed_holder_is_succeeded(committed: None, world: World, pool: str):
    made = create(world.ann.api, pool)
    name, entered, ended = uuid.uuid4().hex, threading.Event(), threading.Event()

    def hold_until_killed() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT set_config('application_name', %s, false)", [name])
        try:
            with queueing.placer_lease(pool):
                entered.set()
                with connection.cursor() as cursor:
                    cursor.execute("SELECT pg_sleep(15)")
        except Exception:  # noqa: BLE001 - whatever it says of its lost connection
            ended.set()
        connections.close_all()

    holder = threading.Thread(target=hold_until_killed)
    holder.start()
    assert entered.wait(10)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s", [name])
    assert ended.wait(10)
    reconcilers.place(pool_id=pool)
    assert stored(world.ann.api, made)["state"] == "placed"
    holder.join(10)


def until_waiting_for_a_lock() -> None:
    """Until some session of this database waits for an advisory lock."""
    with connection.cursor() as cursor:
        for _ in range(10_000):
            cursor.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND wait_event = 'advisory'"
                " AND datname = current_database()"
            )
            if cursor.fetchone()[0]:
                return
    raise AssertionError("nobody waits")
