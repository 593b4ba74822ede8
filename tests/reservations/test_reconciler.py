"""What happens by itself: start, bind, end, time out, retry (REC-2, REC-3, REC-7)."""

from typing import Any

import pytest
from django.db import IntegrityError, transaction

from computeplatform.models import Event
from fleet.models import Allocation, Pool, Taint
from quotas.models import Quota
from reservations import reconcilers
from reservations.models import Booking, Reservation
from tests.reservations.conftest import event_types
from tests.support.api import Api, settle
from tests.support.world import HOUR, SimNode, World, request


def create(api: Api, pool: str, gpus: int = 8, **changed: Any) -> dict[str, Any]:
    return api("reservations/create", **request(pool, gpus, **changed)).data["reservation"]


def shown(world: World, made: dict[str, Any]) -> dict[str, Any]:
    return world.acme.api("reservations/get", reservationId=made["id"]).data["reservation"]


@pytest.mark.clause("REC-2", "a hold goes through binding to active, never before startsAt")
@pytest.mark.clause("REC-2", "released, reason ended, at endsAt")
def test_the_life_of_a_hold(world: World, pool: str, clock):
    made = create(world.ann.api, pool, startsAt=clock.now + HOUR)
    clock.advance(milliseconds=HOUR - 1)
    settle()
    assert shown(world, made)["state"] == "placed"
    clock.advance(milliseconds=1)
    settle()
    assert shown(world, made)["state"] == "active"
    clock.advance(milliseconds=HOUR - 1)
    settle()
    assert shown(world, made)["state"] == "active"
    # The tick is late: the end counts from its own time all the same.
    clock.advance(seconds=25)
    settle()
    ended = shown(world, made)
    assert (ended["state"], ended["reason"], ended["releasedAt"]) == ("released", "ended", made["endsAt"])
    assert event_types(made["id"]) == ["placed", "binding", "active", "ending", "released"]
    versions = (
        Event.objects.filter(subject_id=made["id"]).order_by("position").values_list("subject_version", flat=True)
    )
    assert list(versions) == [1, 2, 3, 3, 4]
    assert Booking.objects.get(reservation_id=made["id"]).billed.upper == made["endsAt"]
    assert Quota.objects.get(tenant_id="acme", pool_id=pool, resource="gpu").used == 0


@pytest.mark.clause("REC-2", "active once every node reported bound")
@pytest.mark.clause("GET-1", "binding, once a node reported bound")
@pytest.mark.clause("NOD-2", "an allocation is bound, reported, and withdrawn at the end")
def test_the_life_of_a_node_binding(world: World, clock):
    pool = world.offered_pool(nodes=2)
    made = create(world.ann.api, pool, nodes=2, binding="node")
    settle()
    assert shown(world, made)["state"] == "binding"
    first, second = world.nodes
    first.follow()
    settle()
    got = world.ann.api("reservations/get", reservationId=made["id"]).data
    assert got["reservation"]["state"] == "binding"
    assert [b["nodeId"] for b in got["binding"]] == [first.id]
    assert got["operation"]["step"] == "bind"
    second.follow()
    settle_pool(pool)
    got = world.ann.api("reservations/get", reservationId=made["id"]).data
    assert got["reservation"]["state"] == "active"
    assert {b["nodeId"] for b in got["binding"]} == {first.id, second.id}
    world.ann.api("reservations/release", reservationId=made["id"])
    operation = world.ann.api("reservations/get", reservationId=made["id"]).data["operation"]
    assert (operation["kind"], operation["status"], operation["step"]) == ("end", "running", "withdraw")
    for node in (first, second):
        node.follow()
    assert not Allocation.objects.filter(reservation_id=made["id"]).exists()
    operation = world.ann.api("reservations/get", reservationId=made["id"]).data["operation"]
    assert (operation["status"], operation["step"]) == ("done", "release")


def settle_pool(pool: str) -> None:
    """What the worker does that a node's report has woken."""
    reconcilers.reconcile(pool_id=pool)


@pytest.mark.clause("REC-2", "run twice it does the same")
def test_ticking_again_changes_nothing(world: World, pool: str, clock):
    made = create(world.ann.api, pool, binding="node")
    settle()
    before = list(Reservation.objects.order_by("id").values())
    settle()
    settle_pool(pool)
    after = list(Reservation.objects.order_by("id").values())
    assert [{**r, "due_at": 0} for r in after] == [{**r, "due_at": 0} for r in before]
    assert event_types(made["id"]) == ["placed", "binding"]


def bind_timed_out() -> dict[str, Any]:
    return {t.node_id: t.effect for t in Taint.objects.filter(key="BindTimedOut")}


@pytest.mark.clause("REC-7", "nothing bound: placed elsewhere, the silent node is tainted")
@pytest.mark.clause("REC-7", "none of that time is billed")
def test_a_silent_node_is_left_for_another(world: World, clock):
    pool = world.offered_pool(nodes=2)
    made = create(world.ann.api, pool, binding="node")
    settle()
    silent = next(n for n in world.nodes if n.id == made["placement"][0]["nodeId"])
    other = next(n for n in world.nodes if n is not silent)
    clock.advance(milliseconds=299_999)
    settle()
    assert shown(world, made)["state"] == "binding"
    clock.advance(milliseconds=1)
    settle()
    assert bind_timed_out() == {silent.id: "NoSchedule"}
    settle()
    again = shown(world, made)
    assert again["placement"][0]["nodeId"] == other.id
    assert (again["startsAt"], again["endsAt"]) == (clock.now, clock.now + HOUR)
    assert event_types(made["id"]) == ["placed", "binding", "pending", "placed", "binding"]
    old = Booking.objects.get(reservation_id=made["id"], node_id=silent.id)
    assert old.billed.isempty
    assert old.during.upper == clock.now
    other.follow()
    settle_pool(pool)
    assert shown(world, made)["state"] == "active"
    assert Quota.objects.get(tenant_id="acme", pool_id=pool, resource="gpu").used == 8


@pytest.mark.clause("REC-7", "else pending")
def test_without_another_node_it_waits(world: World, pool: str, clock):
    made = create(world.ann.api, pool, binding="node")
    settle()
    clock.advance(seconds=300)
    settle()
    settle()
    waiting = shown(world, made)
    assert waiting["state"] == "pending"
    assert [c["reason"] for c in waiting["conditions"]] == ["NodesUnavailable"]
    assert "placement" not in waiting


@pytest.mark.clause("REC-7", "some bound: released, bind-failed")
def test_half_a_gang_is_released(world: World, clock):
    pool = world.offered_pool(nodes=2)
    made = create(world.ann.api, pool, nodes=2, binding="node")
    settle()
    good, silent = world.nodes
    good.follow()
    clock.advance(seconds=300)
    settle()
    ended = shown(world, made)
    assert (ended["state"], ended["reason"], ended["releasedAt"]) == ("released", "bind-failed", clock.now)
    assert bind_timed_out() == {silent.id: "NoSchedule"}
    assert all(b.billed.isempty for b in Booking.objects.filter(reservation_id=made["id"]))
    assert Quota.objects.get(tenant_id="acme", pool_id=pool, resource="gpu").used == 0


@pytest.mark.clause("REC-7", "the taint goes when the node reports the allocation withdrawn")
def test_the_taint_goes_with_the_report(world: World, pool: str, clock):
    create(world.ann.api, pool, binding="node")
    settle()
    node: SimNode = world.nodes[0]
    node.sync()
    clock.advance(seconds=300)
    settle()
    assert bind_timed_out() == {node.id: "NoSchedule"}
    node.follow()
    assert bind_timed_out() == {}


@pytest.mark.clause("REC-3", "tried again every 30 seconds")
def test_what_waits_is_tried_by_the_tick(world: World, pool: str, clock):
    create(world.gil.api, pool)
    made = create(world.ann.api, pool)
    clock.advance(hours=1)
    assert shown(world, made)["state"] == "pending"
    settle()
    assert shown(world, made)["state"] == "active"
    assert event_types(made["id"]) == ["pending", "placed", "binding", "active"]


@pytest.mark.clause("REC-3", "higher priority first, then who holds least, then older")
def test_the_order_of_those_that_wait(world: World, clock):
    pool = world.offered_pool(nodes=2)
    first = create(world.ann.api, pool)
    second = create(world.ann.api, pool, durationSeconds=7200)
    old = create(world.bob.api, pool, priority=40)
    clock.advance(seconds=1)
    acmes = create(world.ann.api, pool)
    clock.advance(seconds=1)
    globexs = world.gil.api("reservations/create", **request(pool, 8)).data["reservation"]
    world.ann.api("reservations/release", reservationId=first["id"])
    settle()
    # acme holds eight devices, globex none: its younger one is first.
    assert world.gil.api("reservations/get", reservationId=globexs["id"]).data["reservation"]["state"] != "pending"
    assert shown(world, acmes)["state"] == "pending"
    world.ann.api("reservations/release", reservationId=second["id"])
    settle()
    assert shown(world, acmes)["state"] != "pending"
    assert shown(world, old)["state"] == "pending"


@pytest.mark.clause("REC-6", "the database itself refuses an overlap")
def test_the_database_refuses_an_overlap(world: World, pool: str):
    create(world.ann.api, pool)
    booking = Booking.objects.get()
    booking.pk = None
    with pytest.raises(IntegrityError, match="booking_no_overlap"), transaction.atomic():
        booking.save()


def test_a_row_that_fails_does_not_keep_the_others_from_their_turn(world: World, pool: str, clock):
    """A reservation whose pool's policy cannot be read is put off; the one beside it starts."""
    other = world.offered_pool(name="other")
    broken = create(world.ann.api, pool, startsAt=clock.now + HOUR)
    fine = create(world.ann.api, other, startsAt=clock.now + HOUR)
    policy = Pool.objects.get(id=pool).policy
    Pool.objects.filter(id=pool).update(policy={"bindTimeoutSeconds": None})
    clock.advance(hours=1)
    reconcilers.reconcile_tick()
    assert shown(world, fine)["state"] == "active"
    Pool.objects.filter(id=pool).update(policy=policy)
    assert shown(world, broken)["state"] == "placed"
    clock.advance(seconds=60)
    reconcilers.reconcile_tick()
    assert shown(world, broken)["state"] == "active"
