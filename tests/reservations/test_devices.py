"""MIG instances by profile and shared slots: placed, shown, told to the node, and never booked twice with their GPU."""

from typing import Any

import pytest
from django.db import IntegrityError, transaction

from fleet.models import Allocation, Pool
from quotas.models import Quota
from reservations import reconcilers
from reservations.models import Booking
from tests.reservations.conftest import event_types
from tests.support.api import settle
from tests.support.world import World, request

SEVEN = ("1g.10gb",) * 7
MIG: dict[str, Any] = {"class": "mig", "profile": "1g.10gb"}
SLOT: dict[str, Any] = {"class": "slot"}


def mig_pool(world: World, *, nodes: int = 1, gpus: int = 2, mig: tuple[str, ...] = SEVEN, **of: Any) -> str:
    pool = world.pool(deviceClass="mig", profile="1g.10gb", **of)
    world.admin("pools/offer", poolId=pool, toTenantId="acme", resources={"mig:1g.10gb": 100, "vcpu": 8})
    for _ in range(nodes):
        world.node(pool, gpus=gpus, mig=mig)
    return pool


def slot_pool(world: World, *, nodes: int = 1, gpus: int = 2, slots: int = 4, **of: Any) -> str:
    pool = world.pool(deviceClass="slot", **of)
    world.admin("pools/offer", poolId=pool, toTenantId="acme", resources={"slot": 20_000})
    for _ in range(nodes):
        world.node(pool, gpus=gpus, slots=slots)
    return pool


def create(world: World, pool: str, devices: dict[str, Any], **changed: Any) -> dict[str, Any]:
    return world.ann.api("reservations/create", **request(pool, devices=devices, **changed)).data["reservation"]


def used(pool: str, resource: str) -> int:
    return Quota.objects.get(tenant_id="acme", pool_id=pool, resource=resource).used


@pytest.mark.clause("CRE-14", "MIG instances by profile")
@pytest.mark.clause("QTA-1", "mig:<profile>")
@pytest.mark.clause("HST-3", "MIG requests without resources book none")
def test_mig_instances_are_booked_by_their_place(world: World, left):
    pool = mig_pool(world)
    made = create(world, pool, {**MIG, "count": 9})
    name = world.nodes[0].name
    assert made["devices"] == {"class": "mig", "count": 9, "profile": "1g.10gb", "sharing": "mig"}
    assert made["resources"] == {}
    [part] = made["placement"]
    assert part["devices"] == [
        {"position": i // 7, "uuid": f"MIG-{name}-{i // 7}-{i % 7}", "index": i % 7} for i in range(9)
    ]
    first, second = Booking.objects.filter(reservation_id=made["id"]).order_by("units")
    assert (first.devices, first.units.upper - first.units.lower) == (7, 7 * 32)
    assert (second.devices, second.units.lower % 256, second.units.upper % 256) == (2, 0, 64)
    [told] = Allocation.objects.get(reservation_id=made["id"]).devices[:1]
    assert told == {"position": 0, "uuid": f"MIG-{name}-0-0", "class": "mig", "index": 0}
    assert used(pool, "mig:1g.10gb") == 9
    assert create(world, pool, {**MIG, "count": 5})["state"] == "placed"
    full = create(world, pool, {**MIG, "count": 1})
    assert full["conditions"][0]["message"].startswith("needs 1 mig:1g.10gb on one node; the freest node has 0 until ")


@pytest.mark.clause("CRE-14", "MIG instances by profile")
def test_only_instances_of_the_pools_profile_are_booked(world: World):
    pool = mig_pool(world, gpus=1, mig=("3g.40gb", "1g.10gb", "1g.10gb"))
    made = create(world, pool, {**MIG, "count": 2})
    assert [d["index"] for d in made["placement"][0]["devices"]] == [1, 2]
    assert create(world, pool, {**MIG, "count": 3})["conditions"][0]["reason"] == "NeverFits"


@pytest.mark.clause("CRE-14", "shared slots")
@pytest.mark.clause("HST-3", "slot requests without resources book none")
def test_slots_are_booked_one_by_one(world: World):
    pool = slot_pool(world, gpus=2, slots=4)
    made = create(world, pool, {**SLOT, "count": 6})
    name = world.nodes[0].name
    assert made["devices"] == {"class": "slot", "count": 6, "sharing": "timeslice"}
    [part] = made["placement"]
    assert part["devices"] == [{"position": i // 4, "uuid": f"GPU-{name}-{i // 4}", "slot": i % 4} for i in range(6)]
    runs = [(b.units.lower % 256, b.units.upper % 256, b.devices) for b in Booking.objects.order_by("units")]
    assert runs == [(0, 4, 4), (0, 2, 2)]
    assert Allocation.objects.get().devices[5] == {"position": 1, "uuid": f"GPU-{name}-1", "class": "slot", "slot": 1}
    assert create(world, pool, {**SLOT, "count": 2})["state"] == "placed"
    assert create(world, pool, {**SLOT, "count": 1})["conditions"][0]["reason"] == "NoFreeDevices"
    assert used(pool, "slot") == 9


@pytest.mark.clause("CRE-14", "slots: 16,384 of a node")
def test_a_node_can_have_every_slot_that_has_a_unit(world: World):
    pool = slot_pool(world, gpus=64, slots=256)
    made = create(world, pool, {**SLOT, "count": 4_096})
    assert len(made["placement"][0]["devices"]) == 4_096
    # Slots of neighbouring GPUs are adjacent: one run.
    assert Booking.objects.get().devices == 4_096


@pytest.mark.clause("CRE-2", "gangs of any class")
@pytest.mark.parametrize("kind", ["mig", "slot"])
def test_gangs_of_parts(world: World, kind: str):
    pool = mig_pool(world, nodes=3) if kind == "mig" else slot_pool(world, nodes=3)
    devices = {**(MIG if kind == "mig" else SLOT), "count": 8}
    made = create(world, pool, devices, nodes=2)
    assert len({part["nodeId"] for part in made["placement"]}) == 2
    assert all(len(part["devices"]) == 8 for part in made["placement"])
    assert create(world, pool, devices, nodes=2)["state"] == "pending"


@pytest.mark.clause("REC-6", "a GPU and its own MIG instance never double-book each other")
@pytest.mark.parametrize("kind", ["mig", "slot"])
def test_the_database_keeps_a_gpu_and_its_parts_apart(world: World, kind: str):
    pool = mig_pool(world) if kind == "mig" else slot_pool(world)
    create(world, pool, {**(MIG if kind == "mig" else SLOT), "count": 1})
    part = Booking.objects.get()
    base = part.units.lower
    whole = Booking.objects.get()
    whole.pk, whole.units = None, (base, base + 256)
    with pytest.raises(IntegrityError, match="booking_no_overlap"), transaction.atomic():
        whole.save()


@pytest.mark.clause("REC-6", "a GPU and its own MIG instance never double-book each other")
@pytest.mark.parametrize(("devices", "free"), [({**MIG, "count": 7}, 7), ({**SLOT, "count": 4}, 4)])
def test_placement_keeps_a_gpu_and_its_parts_apart(world: World, devices: dict[str, Any], free: int):
    """A booking of a whole GPU, as from before the pool was divided, covers all its instances or slots."""
    pool = mig_pool(world) if devices["class"] == "mig" else slot_pool(world)
    made = create(world, pool, devices)
    booking = Booking.objects.get()
    Booking.objects.filter(pk=booking.pk).update(units=(booking.units.lower, booking.units.lower + 256))
    more = create(world, pool, devices)
    assert {d["position"] for d in more["placement"][0]["devices"]} == {1}
    Booking.objects.filter(pk=booking.pk).update(units=booking.units)
    assert made["placement"][0]["devices"][0]["position"] == 0


@pytest.mark.clause("CRE-14", "a GPU that reports MIG instances is no whole GPU")
def test_a_divided_gpu_is_not_booked_as_a_whole(world: World):
    pool = world.offered_pool(gpus=3)
    node = world.nodes[0]
    instances = [{"uuid": "MIG-1", "profile": "1g.10gb", "index": 0}]
    node.sync(devices=[node.device(0), node.device(1, mig=instances), node.device(2)])
    made = world.ann.api("reservations/create", **request(pool, 2)).data["reservation"]
    assert [d["position"] for d in made["placement"][0]["devices"]] == [0, 2]
    assert (
        world.ann.api("reservations/create", **request(pool, 3)).data["reservation"]["conditions"][0]["reason"]
        == "NeverFits"
    )


@pytest.mark.clause("NOD-4", "units: what has none is refused")
@pytest.mark.parametrize(
    ("changed", "path"),
    [
        ({"mig": [{"uuid": "a", "profile": "1g.10gb", "index": 8}]}, "devices.0.mig.0.index"),
        ({"mig": [{"uuid": u, "profile": "1g.10gb", "index": 3} for u in "ab"]}, "devices.0.mig.1.index"),
        ({"mig": [{"uuid": "a", "profile": "1g.10gb", "index": i} for i in (1, 2)]}, "devices.0.mig.1.uuid"),
        ({"slots": 257}, "devices.0.slots"),
    ],
)
def test_a_report_that_units_cannot_express_is_refused(world: World, changed: dict[str, Any], path: str):
    world.node(world.pool())
    node = world.nodes[0]
    report: dict[str, Any] = {
        "nodeId": node.id,
        "bootId": node.boot_id,
        "session": node.session,
        "sequence": 99,
        "software": {"version": "1"},
        "devices": [node.device(0, **changed)],
        "allocations": [],
    }
    node.api("nodes/sync", **report).refused_at(path)
    # Nothing of it was applied: the node still has its eight.
    assert len(world.admin("nodes/get", nodeId=node.id).data["node"]["devices"]) == 8


@pytest.mark.clause("CRE-10", "class, profile or sharing differs from the pool's")
@pytest.mark.parametrize(
    ("devices", "path"),
    [
        ({"class": "gpu", "count": 1}, "devices.class"),
        ({"class": "mig", "count": 1, "profile": "2g.20gb"}, "devices.profile"),
        ({**MIG, "count": 1, "sharing": "timeslice"}, "devices.sharing"),
        ({"class": "slot", "count": 1}, "devices.class"),
    ],
)
def test_what_differs_from_a_mig_pool_is_refused(world: World, left, devices: dict[str, Any], path: str):
    pool = mig_pool(world)
    there = left()
    world.ann.api("reservations/create", **request(pool, devices=devices)).refused_at(path)
    assert left() == there


@pytest.mark.clause("CRE-10", "sharing modes of slots")
def test_sharing_is_the_pools(world: World):
    pool = slot_pool(world, sharing="mps")
    assert create(world, pool, {**SLOT, "count": 1})["devices"]["sharing"] == "mps"
    assert create(world, pool, {**SLOT, "count": 1, "sharing": "mps"})["state"] == "placed"
    world.ann.api(
        "reservations/create", **request(pool, devices={**SLOT, "count": 1, "sharing": "timeslice"})
    ).refused_at("devices.sharing")
    assert Pool.objects.get(id=pool).sharing == "mps"


@pytest.mark.clause("NOD-2", "the node is told the instance, and binds it")
def test_a_mig_reservation_lives(world: World, clock):
    pool = mig_pool(world)
    made = create(world, pool, {**MIG, "count": 2}, binding="node")
    settle()
    world.nodes[0].follow()
    reconcilers.reconcile(pool_id=pool)
    got = world.ann.api("reservations/get", reservationId=made["id"]).data
    assert got["reservation"]["state"] == "active"
    assert [d["index"] for d in got["binding"][0]["devices"]] == [0, 1]
    world.ann.api("reservations/release", reservationId=made["id"])
    assert event_types(made["id"]) == ["placed", "binding", "active", "released"]
    assert used(pool, "mig:1g.10gb") == 0
    assert create(world, pool, {**MIG, "count": 14})["state"] == "placed"


@pytest.mark.clause("REC-3", "at once when capacity of their pool is freed")
def test_new_instances_are_capacity(world: World):
    pool = mig_pool(world, gpus=1)
    made = create(world, pool, {**MIG, "count": 9})
    assert made["conditions"][0]["reason"] == "NeverFits"
    world.node(pool, gpus=2, mig=SEVEN)
    settle()
    assert world.ann.api("reservations/get", reservationId=made["id"]).data["reservation"]["state"] != "pending"
