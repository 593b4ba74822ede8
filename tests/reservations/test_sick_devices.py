"""Devices that fall sick under reservations (NOD-5): what has not started moves, what runs is told."""

from typing import Any

import pytest

from computeplatform.models import Event
from reservations.models import Booking, Downtime
from tests.reservations.conftest import event_types
from tests.support.api import settle
from tests.support.nodes import condition, devices, fall_sick, on, tick
from tests.support.world import HOUR, World, request


def create(world: World, pool: str, gpus: int = 8, **changed: Any) -> dict[str, Any]:
    return dict(world.ann.api("reservations/create", **request(pool, gpus, **changed)).data["reservation"])


def get(world: World, made: dict[str, Any]) -> dict[str, Any]:
    return dict(world.ann.api("reservations/get", reservationId=made["id"]).data["reservation"])


def positions(made: dict[str, Any]) -> list[int]:
    return [device["position"] for part in made["placement"] for device in part["devices"]]


def downtimes(made: dict[str, Any]) -> list[tuple[int, int | None]]:
    rows = Downtime.objects.filter(reservation_id=made["id"]).order_by("began_at")
    return list(rows.values_list("began_at", "ended_at"))


@pytest.fixture
def active(world: World, pool: str) -> dict[str, Any]:
    """Two devices of the node."""
    made = create(world, pool, 2)
    settle()
    return get(world, made)


@pytest.mark.clause("NOD-5", "an unhealthy device takes no new booking")
def test_a_sick_device_is_not_booked(world: World, pool: str):
    (node,) = world.nodes
    fall_sick(node, 0, 1, 2)
    assert set(positions(create(world, pool, 5))) == {3, 4, 5, 6, 7}
    assert create(world, pool, 1)["state"] == "pending"


@pytest.mark.clause("NOD-5", "a placed reservation moves off it")
@pytest.mark.clause("REC-1", "placed to pending when a device of it is unhealthy")
@pytest.mark.parametrize("health", ["unhealthy", "missing"])
def test_a_placed_one_moves_off(world: World, pool: str, clock, health: str):
    (node,) = world.nodes
    made = create(world, pool, 4, startsAt=clock.now + HOUR)
    assert positions(made) == [0, 1, 2, 3]
    if health == "missing":
        node.sync(devices=[node.device(p) for p in range(1, 8)])
    else:
        fall_sick(node, 0)
    tick()
    moved = get(world, made)
    assert (moved["state"], 0 in positions(moved)) == ("placed", False)
    assert event_types(made["id"])[-1] == "placed"
    if health == "missing":
        node.sync(devices=[node.device(p) for p in range(4, 8)])
    else:
        fall_sick(node, 0, 1, 2, 3)
    tick()
    assert positions(get(world, made)) == [4, 5, 6, 7]
    fall_sick(node, *range(5))
    tick()
    waiting = get(world, made)
    assert (waiting["state"], waiting["reason"]) == ("pending", "device-unhealthy")
    node.sync()
    settle()
    assert get(world, made)["state"] == "placed"


@pytest.mark.clause("NOD-5", "a running one gets DeviceUnhealthy, which names the devices, and an event")
@pytest.mark.clause("EVT-5", "reservation.device-unhealthy")
def test_a_running_one_is_told_which(world: World, clock, active):
    (node,) = on(world, active)
    first, second = positions(active)
    clock.advance(seconds=5)
    fall_sick(node, first, 7)
    tick()
    tick()
    shown = get(world, active)
    told = condition(shown, "DeviceUnhealthy")
    assert told is not None
    assert (shown["state"], told["status"], told["reason"]) == ("active", "True", "SomeDevices")
    assert f"GPU-{node.name}-{first} " in told["message"]
    assert "-7" not in told["message"]
    (event,) = Event.objects.filter(type="reservation.device-unhealthy")
    uuid = f"GPU-{node.name}-{first}"
    assert event.data == {
        "poolId": shown["poolId"],
        "state": "active",
        "devices": [{"nodeId": node.id, "position": first, "uuid": uuid, "health": "unhealthy"}],
        "down": False,
    }
    fall_sick(node, first, second)
    tick()
    told = condition(get(world, active), "DeviceUnhealthy")
    assert told is not None
    assert (told["reason"], told["lastTransitionAt"]) == ("AllDevices", clock.now)
    assert Event.objects.filter(type="reservation.device-unhealthy").count() == 2
    clock.advance(seconds=5)
    node.sync()
    tick()
    shown = get(world, active)
    assert (shown["state"], shown["conditions"]) == ("active", [])
    assert Event.objects.filter(type="reservation.device-unhealthy").count() == 2


def test_others_on_the_node_are_not_concerned(world: World, pool: str, active):
    other = create(world, pool, 2)
    settle()
    (node,) = on(world, active)
    version = get(world, other)["version"]
    fall_sick(node, *positions(active))
    tick()
    assert (get(world, other)["version"], get(world, other)["conditions"]) == (version, [])


@pytest.mark.clause("NOD-5", "unbilled if the whole reservation is down")
@pytest.mark.clause("QTA-5", "the time in which a whole reservation is down is unbilled")
def test_a_whole_reservation_that_is_down_is_unbilled(world: World, clock, active):
    (node,) = on(world, active)
    first, second = positions(active)
    clock.advance(seconds=10)
    fall_sick(node, first)
    tick()
    assert downtimes(active) == []
    down = clock.advance(seconds=10)
    fall_sick(node, first, second)
    clock.advance(milliseconds=700)  # the tick is late, and the report counts
    tick()
    tick()
    assert downtimes(active) == [(down, None)]
    up = clock.advance(seconds=60)
    fall_sick(node, second)
    clock.advance(milliseconds=700)
    tick()
    assert downtimes(active) == [(down, up)]
    booking = Booking.objects.get()
    assert (booking.billed.lower, booking.billed.upper) == (active["startsAt"], active["endsAt"])
    again = clock.advance(seconds=60)
    fall_sick(node, first, second)
    tick()
    clock.advance(seconds=60)
    ended = world.ann.api("reservations/release", reservationId=active["id"]).data["reservation"]
    assert downtimes(active) == [(down, up), (again, ended["releasedAt"])]
    assert ended["conditions"] == []


def test_a_gang_is_down_only_with_all_of_its_nodes(world: World, clock):
    pool = world.offered_pool(nodes=2, gpus=2)
    made = create(world, pool, 2, nodes=2)
    settle()
    one, other = on(world, made)
    fall_sick(one, 0, 1)
    tick()
    assert downtimes(made) == []
    began = clock.advance(seconds=10)
    fall_sick(other, 0, 1)
    tick()
    assert downtimes(made) == [(began, None)]


def test_one_that_starts_on_a_device_that_is_sick_is_down_from_its_start(world: World, pool: str, clock):
    """It fits nowhere else in the moment before its start, so it waits; nothing starts on a sick device."""
    (node,) = world.nodes
    made = create(world, pool, 8, startsAt=clock.now + HOUR)
    clock.advance(hours=1)
    node.sync(devices=devices(node, range(8)))
    tick()
    assert get(world, made)["state"] == "pending"
    assert downtimes(made) == []
