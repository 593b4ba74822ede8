"""Create: what it answers when it is admitted (CRE-1, CRE-14, CRE-16, CRE-17)."""

from typing import Any

import pytest

from iam.models import Decision
from quotas.models import Charge, Quota
from reservations.models import Booking, Reservation
from tests.reservations.conftest import event_types
from tests.support.api import settle
from tests.support.world import HOUR, World, request


def create(world: World, pool: str, gpus: int = 1, **changed: Any) -> dict[str, Any]:
    return world.ann.api("reservations/create", **request(pool, gpus, **changed)).data["reservation"]


@pytest.mark.clause("CRE-14", "fits: placed")
@pytest.mark.clause("CRE-1", "draft, decision, charge, placement")
@pytest.mark.clause("API-10", "what a reservation shows")
def test_it_is_decided_charged_and_placed(world: World, pool: str, clock, left):
    now = clock.now
    made = create(world, pool, 4, name="training", labels={"team": "vision"}, leaseSeconds=60)
    assert left() == {
        "reservations": 1,
        "decisions": 1,
        "charges": 1,
        "bookings": 1,
        "allocations": 1,
        "events": 1,
    }
    assert made["state"] == "placed"
    assert made["version"] == 1
    assert made["conditions"] == []
    assert made["devices"] == {"class": "gpu", "count": 4, "sharing": "exclusive"}
    assert made["nodes"] == 1
    assert made["binding"] == "hold"
    assert made["priority"] == 50
    assert made["labels"] == {"team": "vision"}
    assert made["name"] == "training"
    assert made["leaseSeconds"] == 60
    assert made["requested"] == {"durationSeconds": 3600}
    assert (made["startsAt"], made["endsAt"]) == (now, now + HOUR)
    assert made["createdBy"] == {"principal": world.ann.id}
    assert made["tenantId"] == "acme"
    assert made["estimatedCost"] == "0.00"
    [part] = made["placement"]
    assert part["nodeId"] == world.nodes[0].id
    assert [d["position"] for d in part["devices"]] == [0, 1, 2, 3]
    booking = Booking.objects.get(reservation_id=made["id"])
    assert (booking.during.lower, booking.during.upper, booking.devices) == (now, now + HOUR, 4)


@pytest.mark.clause("CRE-14", "does not fit: pending with a reason and numbers")
@pytest.mark.clause("CRE-17", "pending")
def test_what_does_not_fit_is_pending_and_says_why(world: World, pool: str):
    create(world, pool, 5)
    made = create(world, pool, 8)
    assert made["state"] == "pending"
    [condition] = made["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("Unschedulable", "True", "NoFreeDevices")
    assert condition["message"].startswith("needs 8 gpu on one node; the freest node has 3 until ")
    assert "placement" not in made
    assert "startsAt" not in made
    assert event_types(made["id"]) == ["pending"]


@pytest.mark.clause("CRE-14", "NeverFits is told apart")
def test_more_than_the_pool_could_ever_give(world: World, pool: str):
    made = create(world, pool, 9)
    assert (made["state"], made["conditions"][0]["reason"]) == ("pending", "NeverFits")


@pytest.mark.clause("CRE-17", "placed")
def test_one_event_for_a_placement(world: World, pool: str):
    assert event_types(create(world, pool)["id"]) == ["placed"]


@pytest.mark.clause("CRE-14", "admission never starts it; the first answer shows what was committed")
def test_it_is_placed_even_if_it_starts_now(world: World, pool: str):
    assert create(world, pool)["state"] == "placed"


@pytest.mark.clause("CRE-16", "a sliding window starts when placed")
@pytest.mark.clause("CRE-12", "the charge is held while pending, placed, binding and active")
def test_a_sliding_window_keeps_its_length(world: World, pool: str, clock):
    first = create(world, pool, 8)
    second = create(world, pool, 8)
    assert second["state"] == "pending"
    assert Quota.objects.get(tenant_id="acme", pool_id=pool, resource="gpu").used == 16
    clock.advance(seconds=100)
    world.ann.api("reservations/release", reservationId=first["id"])
    settle()
    placed = world.ann.api("reservations/get", reservationId=second["id"]).data["reservation"]
    assert (placed["startsAt"], placed["endsAt"]) == (clock.now, clock.now + HOUR)
    assert Quota.objects.get(tenant_id="acme", pool_id=pool, resource="gpu").used == 8


@pytest.mark.clause("CRE-16", "a fixed one placed late keeps its end")
def test_a_fixed_window_keeps_its_end(world: World, pool: str, clock):
    first = create(world, pool, 8)
    ends_at = clock.now + HOUR
    late = world.ann.api("reservations/create", **(_fixed(request(pool, 8), endsAt=ends_at))).data["reservation"]
    assert late["state"] == "pending"
    clock.advance(seconds=600)
    world.ann.api("reservations/release", reservationId=first["id"])
    settle()
    placed = world.ann.api("reservations/get", reservationId=late["id"]).data["reservation"]
    assert (placed["startsAt"], placed["endsAt"]) == (clock.now, ends_at)


def _fixed(asked: dict[str, Any], **window: int) -> dict[str, Any]:
    del asked["durationSeconds"]
    return asked | window


@pytest.mark.clause("CRE-16", "a sliding one placed before startsAt starts there")
def test_an_advance_reservation_starts_at_its_time(world: World, pool: str, clock):
    made = create(world, pool, 8, startsAt=clock.now + 5 * HOUR)
    assert (made["state"], made["startsAt"], made["endsAt"]) == ("placed", clock.now + 5 * HOUR, clock.now + 6 * HOUR)
    assert create(world, pool, 8, durationSeconds=5 * 3600)["state"] == "placed"
    assert create(world, pool, 8, durationSeconds=5 * 3600 + 1)["state"] == "pending"


@pytest.mark.clause("CRE-16", "no longer startable: cancelled, window-passed")
@pytest.mark.parametrize("limit", ["startBefore", "endsAt"])
def test_one_that_can_no_longer_start_is_cancelled(world: World, pool: str, clock, limit: str):
    create(world, pool, 8, durationSeconds=24 * 3600)
    asked = request(pool, 8)
    asked = (
        asked | {"startBefore": clock.now + HOUR} if limit == "startBefore" else _fixed(asked, endsAt=clock.now + HOUR)
    )
    made = world.ann.api("reservations/create", **asked).data["reservation"]
    clock.advance(milliseconds=HOUR - 1)
    settle()
    assert state_of(world, made) == ("pending", None)
    clock.advance(milliseconds=1)
    settle()
    assert state_of(world, made) == ("cancelled", "window-passed")
    assert event_types(made["id"]) == ["pending", "cancelled"]
    assert not Charge.objects.filter(reservation_id=made["id"], refunded_at=None).exists()


def state_of(world: World, made: dict[str, Any]) -> tuple[str, str | None]:
    shown = world.ann.api("reservations/get", reservationId=made["id"]).data["reservation"]
    return shown["state"], shown.get("reason")


@pytest.mark.clause("CRE-16", "pending for too long: cancelled, pending-too-long")
def test_one_that_waits_too_long_is_cancelled(world: World, clock):
    pool = world.offered_pool(policy={"maxPendingHours": 2})
    create(world, pool, 8, durationSeconds=24 * 3600)
    made = create(world, pool, 8)
    clock.advance(milliseconds=2 * HOUR)
    settle()
    assert state_of(world, made) == ("cancelled", "pending-too-long")


def test_a_gang_is_on_distinct_nodes(world: World):
    pool = world.offered_pool(nodes=3)
    made = create(world, pool, 8, nodes=2)
    assert len({part["nodeId"] for part in made["placement"]}) == 2
    assert Charge.objects.get(reservation_id=made["id"]).amount == 16
    assert Booking.objects.filter(reservation_id=made["id"]).count() == 2
    assert create(world, pool, 8, nodes=2)["state"] == "pending"


@pytest.mark.clause("CRE-7", "every attribute, always present and typed")
def test_the_decision_sees_every_attribute(world: World, clock):
    price = {"perDeviceHour": "2.20", "currency": "EUR"}
    pool = world.offered_pool(nodes=2, policy={"tenantRoot": "/srv", "price": price})
    made = create(
        world,
        pool,
        4,
        nodes=2,
        binding="node",
        startsAt=clock.now + HOUR + 1,
        durationSeconds=5401,
        spot=True,
        priority=7,
    )
    decision = Decision.objects.get(action="compute:reservations:create")
    assert decision.resource_id == made["id"]
    assert decision.attributes == {
        "tenantId": "acme",
        "poolId": pool,
        "ownerTenantId": "platform",
        "region": "eu-north",
        "gpuModel": "h100-sxm-80g",
        "gpuCount": 8,
        "deviceClass": "gpu",
        "deviceCount": 8,
        "profile": "",
        "sharing": "exclusive",
        "nodes": 2,
        "binding": "node",
        "spot": True,
        "priority": 7,
        "durationHours": 2,
        "startsInHours": 2,
        "leaseSeconds": 0,
        # The share: 16 vCPU and 128 GiB a GPU.
        "vcpu": 128,
        "memoryGiB": 1024,
        "hugepages1Gi": 0,
        # 8 x 2.20 x 5401 s, rounded up to four places
        "estimatedCost": "26.4049",
        "currency": "EUR",
        "creatorId": world.ann.id,
        "creatorKind": "user",
        "creatorAgentId": "",
    }
    assert (made["estimatedCost"], made["currency"]) == ("26.4049", "EUR")
    assert Reservation.objects.get(id=made["id"]).decision_id == decision.id
