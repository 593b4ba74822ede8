"""Draining and removing nodes, and their maintenance, as reservations feel them (NOD-1, NOD-7)."""

from typing import Any

import pytest

from computeplatform.models import Event
from fleet.models import Maintenance, Node
from iam.models import ApiKey, Principal
from quotas.models import Quota
from reservations.models import Booking, Reservation
from tests.reservations.conftest import event_types
from tests.support.api import settle
from tests.support.nodes import condition, lose, on, pass_time, tick
from tests.support.world import HOUR, SimNode, World, request


def create(world: World, pool: str, gpus: int = 8, **changed: Any) -> dict[str, Any]:
    return dict(world.ann.api("reservations/create", **request(pool, gpus, **changed)).data["reservation"])


def get(world: World, made: dict[str, Any]) -> dict[str, Any]:
    return dict(world.ann.api("reservations/get", reservationId=made["id"]).data["reservation"])


def drain(world: World, node: SimNode, **fields: Any) -> dict[str, Any]:
    return dict(world.admin("nodes/drain", nodeId=node.id, **fields).data["node"])


# --- Draining ---------------------------------------------------------------------------------------------------------


@pytest.mark.clause("NOD-1", "drain: cordon, under one event; repeated: unchanged; uncordon ends it")
def test_drain_and_uncordon(world: World, pool: str):
    (node,) = world.nodes
    version = world.admin("nodes/get", nodeId=node.id).data["node"]["version"]
    drained = drain(world, node, reason="new disks", version=version)
    assert (drained["cordoned"], drained["draining"], drained["cordonReason"]) == (True, True, "new disks")
    assert drain(world, node, reason="new disks") == drained
    world.admin("nodes/drain", nodeId=node.id, version=version).refused("CONFLICT", reason="stale-version")
    again = world.admin("nodes/uncordon", nodeId=node.id).data["node"]
    assert (again["cordoned"], again["draining"]) == (False, False)
    told = Event.objects.filter(subject_id=node.id, type__in=["node.draining", "node.uncordoned"]).order_by("position")
    assert [(e.type, e.reason) for e in told] == [("node.draining", "new disks"), ("node.uncordoned", "")]


@pytest.mark.clause("NOD-1", "drain: nothing new is booked")
def test_nothing_new_is_booked_on_a_draining_node(world: World, pool: str):
    drain(world, world.nodes[0])
    made = create(world, pool, 1)
    assert (made["state"], condition(made, "Unschedulable")["reason"]) == ("pending", "NodesUnavailable")  # type: ignore[index]
    world.admin("nodes/uncordon", nodeId=world.nodes[0].id)
    settle()
    assert get(world, made)["state"] == "active"


@pytest.mark.clause("NOD-1", "drain: not-yet-started reservations move")
@pytest.mark.clause("REC-1", "placed to pending when a node of it is drained")
def test_what_has_not_started_moves_and_what_runs_stays(world: World, clock):
    pool = world.offered_pool(nodes=2)
    running = create(world, pool, 4)
    settle()
    (node,) = on(world, running)
    later = create(world, pool, 4, startsAt=clock.now + HOUR)
    assert on(world, later) == [node]
    drain(world, node)
    tick()
    moved = get(world, later)
    assert (moved["state"], on(world, moved)) == ("placed", [n for n in world.nodes if n is not node])
    assert get(world, running)["state"] == "active"
    assert get(world, running)["conditions"] == []
    pass_time(clock, *world.nodes, seconds=3600, step=900)
    assert get(world, running)["reason"] == "ended"


@pytest.mark.clause("NOD-1", "drain: what fits nowhere waits")
def test_what_fits_nowhere_waits_until_the_drain_ends(world: World, pool: str, clock):
    made = create(world, pool, startsAt=clock.now + HOUR)
    drain(world, world.nodes[0])
    tick()
    assert (get(world, made)["state"], get(world, made)["reason"]) == ("pending", "node-draining")
    assert Quota.objects.get(tenant_id="acme", pool_id=pool, resource="gpu").used == 8
    world.admin("nodes/uncordon", nodeId=world.nodes[0].id)
    settle()
    assert get(world, made)["state"] == "placed"


@pytest.mark.clause("NOD-1", "drain: spot work is preempted, non-spot runs on")
def test_spot_work_is_preempted(world: World, pool: str, clock):
    spot, other = create(world, pool, 2, spot=True), create(world, pool, 2)
    settle()
    clock.advance(seconds=60)
    drain(world, world.nodes[0])
    tick()
    ended = get(world, spot)
    assert (ended["state"], ended["reason"], ended["releasedAt"]) == ("released", "preempted", clock.now)
    assert get(world, other)["state"] == "active"
    assert Quota.objects.get(tenant_id="acme", pool_id=pool, resource="gpu").used == 2


@pytest.mark.clause("EVT-4", "a running victim has the pool's notice, also when its node is drained")
def test_spot_work_has_its_notice(world: World, clock):
    pool = world.offered_pool(policy={"spotNoticeSeconds": 120})
    spot, short = create(world, pool, 2, spot=True), create(world, pool, 2, spot=True, durationSeconds=60)
    settle()
    drain(world, world.nodes[0])
    tick()
    tick()
    cut = get(world, spot)
    assert (cut["state"], cut["endsAt"]) == ("active", clock.now + 120_000)
    assert condition(cut, "PreemptionScheduled") is not None
    assert event_types(spot["id"]).count("preemption-scheduled") == 1
    assert get(world, short)["endsAt"] == short["endsAt"]
    booking = Booking.objects.get(reservation_id=spot["id"])
    assert booking.during.upper == booking.billed.upper == cut["endsAt"]
    pass_time(clock, world.nodes[0], seconds=120)
    ended = get(world, spot)
    assert (ended["state"], ended["reason"], ended["releasedAt"]) == ("released", "preempted", cut["endsAt"])
    assert get(world, short)["reason"] == "ended"


# --- Removing ---------------------------------------------------------------------------------------------------------


def remove(world: World, node: SimNode, **fields: Any) -> Any:
    return world.admin("nodes/remove", nodeId=node.id, **fields)


@pytest.mark.clause("NOD-1", "remove: INVALID_STATE with counts while a booking or an allocation is live")
@pytest.mark.parametrize("when", ["running", "later"])
def test_remove_is_refused_while_something_is_booked(world: World, pool: str, clock, when: str):
    create(world, pool, 2, startsAt=clock.now + (HOUR if when == "later" else 0))
    create(world, pool, 1)
    settle()
    before = world.admin("nodes/get", nodeId=world.nodes[0].id).data
    error = remove(world, world.nodes[0]).refused("INVALID_STATE", reason="node-in-use", bookings=2, allocations=2)
    assert "2 bookings and 2 allocations" in error["message"]
    assert world.admin("nodes/get", nodeId=world.nodes[0].id).data == before
    assert not Event.objects.filter(type="node.removed").exists()


@pytest.mark.clause("NOD-1", "remove: an allocation that is not withdrawn yet is live, unless its node is lost")
@pytest.mark.parametrize("lost", [False, True])
def test_remove_waits_for_the_nodes_word_if_it_can_give_one(world: World, pool: str, clock, lost: bool):
    made = create(world, pool, 2, binding="node")
    settle()
    (node,) = world.nodes
    node.follow()
    settle()
    if lost:
        lose(world, clock, node)
    world.ann.api("reservations/release", reservationId=made["id"])
    if not lost:
        remove(world, node).refused("INVALID_STATE", bookings=0, allocations=1)
        node.follow()
        node.follow()
    assert remove(world, node).data["node"]["removedAt"] == clock.now


@pytest.mark.clause("NOD-1", "remove: its key is revoked, it is in no list and no pool, its name is free")
@pytest.mark.clause("NOD-4", "its span of units is its own for ever")
def test_a_removed_node_is_gone(world: World, pool: str, clock):
    (node,) = world.nodes
    base = Node.objects.get(id=node.id).unit_base
    version = world.admin("nodes/get", nodeId=node.id).data["node"]["version"]
    remove(world, node, version=version + 1).refused("CONFLICT", reason="stale-version")
    gone = remove(world, node, version=version).data["node"]
    assert (gone["removedAt"], gone["version"]) == (clock.now, version + 1)
    assert "poolId" not in gone
    assert remove(world, node).data["node"] == gone
    assert world.admin("nodes/get", nodeId=node.id).data["node"] == gone
    assert world.admin("nodes/list").data["nodes"] == []
    service = Principal.objects.get(node_id=node.id)
    assert (service.status, ApiKey.objects.get(principal=service).status) == ("suspended", "revoked")
    node.api("nodes/sync", nodeId=node.id).refused("UNAUTHENTICATED")
    for method, fields in {
        "nodes/cordon": {},
        "nodes/uncordon": {},
        "nodes/drain": {},
        "nodes/assign": {"poolId": pool},
        "nodes/maintenance": {"from": clock.now, "until": clock.now + 1},
    }.items():
        world.admin(method, nodeId=node.id, **fields).refused("INVALID_STATE", reason="node-removed")
    again = world.admin("nodes/register", name=node.name, poolId=pool, positions=8).data["node"]
    assert Node.objects.get(id=again["id"]).unit_base != base
    event = Event.objects.get(type="node.removed")
    assert (event.data["poolIdBefore"], event.subject_version) == (pool, gone["version"])
    made = create(world, pool, 1)
    assert made["state"] == "pending"


def test_a_lost_node_is_removed_once_what_ran_there_is_released(world: World, pool: str, clock):
    made = create(world, pool, 2, binding="node")
    settle()
    (node,) = world.nodes
    node.follow()
    settle()
    lose(world, clock, node)
    remove(world, node).refused("INVALID_STATE", bookings=1, allocations=1)
    pass_time(clock, seconds=300)
    assert get(world, made)["reason"] == "node-lost"
    remove(world, node)
    assert Reservation.objects.get().state == "released"


# --- Maintenance ------------------------------------------------------------------------------------------------------


def maintain(world: World, node: SimNode, begin: int, end: int, **fields: Any) -> Any:
    return world.admin("nodes/maintenance", nodeId=node.id, **({"from": begin, "until": end} | fields))


@pytest.mark.clause("NOD-7", "bookings already made there stay, and the answer lists them")
def test_maintenance_lists_what_is_booked_there(world: World, pool: str, clock):
    (node,) = world.nodes
    inside = create(world, pool, 2, startsAt=clock.now + HOUR)
    outside = create(world, pool, 1, startsAt=clock.now + 5 * HOUR)
    planned = maintain(world, node, clock.now + HOUR, clock.now + 3 * HOUR, reason="bios").data
    assert planned["bookings"] == [
        {
            "reservationId": inside["id"],
            "tenantId": "acme",
            "devices": 2,
            "startsAt": inside["startsAt"],
            "endsAt": inside["endsAt"],
        }
    ]
    (shown,) = planned["node"]["maintenance"]
    assert shown == planned["maintenance"]
    assert shown | {"id": ""} == {
        "id": "",
        "startsAt": clock.now + HOUR,
        "endsAt": clock.now + 3 * HOUR,
        "reason": "bios",
    }
    tick()
    assert [get(world, one)["state"] for one in (inside, outside)] == ["placed", "placed"]
    event = Event.objects.get(type="node.maintenance-planned")
    assert (event.data["maintenanceId"], event.reason) == (shown["id"], "bios")


@pytest.mark.clause("NOD-7", "a busy interval for placement")
def test_nothing_is_placed_into_a_maintenance(world: World, pool: str, clock):
    (node,) = world.nodes
    maintain(world, node, clock.now + HOUR, clock.now + 2 * HOUR)
    assert create(world, pool, 1, startsAt=clock.now + HOUR)["state"] == "pending"
    assert create(world, pool, 1, durationSeconds=3601)["state"] == "pending"
    assert create(world, pool, 1)["state"] == "placed"
    assert create(world, pool, 1, startsAt=clock.now + 2 * HOUR)["state"] == "placed"


def test_what_was_booked_there_starts_in_the_maintenance(world: World, pool: str, clock):
    made = create(world, pool, startsAt=clock.now + HOUR)
    maintain(world, world.nodes[0], clock.now, clock.now + 9 * HOUR)
    clock.advance(hours=1)
    settle()
    assert get(world, made)["state"] == "active"


@pytest.mark.parametrize(("begin", "end"), [(5, 5), (6, 5), (-10, 0), (-10, -5)])
def test_a_maintenance_has_a_time_to_come(world: World, pool: str, clock, begin: int, end: int):
    maintain(world, world.nodes[0], clock.now + begin, clock.now + end).refused_at("until")
    assert not Maintenance.objects.exists()


def test_a_repeated_key_answers_the_same_maintenance(world: World, pool: str, clock):
    (node,) = world.nodes
    first = maintain(world, node, clock.now, clock.now + HOUR, idempotencyKey="m").data
    assert maintain(world, node, clock.now, clock.now + HOUR, idempotencyKey="m").data == first
    maintain(world, node, clock.now, clock.now + 2 * HOUR, idempotencyKey="m").refused("CONFLICT")
    assert Maintenance.objects.count() == 1


def test_a_maintenance_is_cancelled(world: World, pool: str, clock):
    (node,) = world.nodes
    begun = maintain(world, node, clock.now, clock.now + 2 * HOUR).data["maintenance"]["id"]
    to_come = maintain(world, node, clock.now + 5 * HOUR, clock.now + 6 * HOUR).data["maintenance"]["id"]
    waiting = create(world, pool, 1)
    assert waiting["state"] == "pending"
    clock.advance(seconds=60)
    for one in (to_come, begun):
        answer = world.admin("nodes/cancelMaintenance", nodeId=node.id, maintenanceId=one).data["node"]
        assert one not in [m["id"] for m in answer["maintenance"]]
    assert [m.ends_at for m in Maintenance.objects.all()] == [clock.now]
    settle()
    assert get(world, waiting)["state"] == "active"
    assert world.admin("nodes/cancelMaintenance", nodeId=node.id, maintenanceId=begun).status == 200
    world.admin("nodes/cancelMaintenance", nodeId=node.id, maintenanceId=to_come).refused("NOT_FOUND")
    other = world.node(pool)
    world.admin("nodes/cancelMaintenance", nodeId=other.id, maintenanceId=begun).refused("NOT_FOUND")
    assert Event.objects.filter(type="node.maintenance-cancelled").count() == 2


METHODS: dict[str, dict[str, Any]] = {
    "nodes/drain": {},
    "nodes/remove": {},
    "nodes/maintenance": {"from": 1, "until": 10**15},
    "nodes/cancelMaintenance": {"maintenanceId": "mnt_none"},
}


@pytest.mark.clause("IAM-4", "no tenant's administrator is a fleet administrator")
@pytest.mark.parametrize("method", METHODS)
def test_who_may_do_that(world: World, pool: str, method: str):
    fields = METHODS[method] | {"nodeId": world.nodes[0].id}
    before = list(Node.objects.values())
    for person in (world.acme, world.ann, world.vic):
        person.api(method, **fields).refused("NOT_FOUND")
    world.acme.api(method, **fields, tenantId="platform").refused("ACCESS_DENIED")
    plain = world.person(type(world.acme)("", world.admin), "plain", "reserver")
    plain.api(method, **fields).refused("ACCESS_DENIED")
    world.admin(method, **(fields | {"nodeId": "node_none"})).refused("NOT_FOUND")
    assert list(Node.objects.values()) == before
    assert not Maintenance.objects.exists()
