"""Host amounts through HTTP: shares, floors, excess, what IAM and nodes see of them (HST-1 … HST-5, QTA-3)."""

from decimal import Decimal
from typing import Any

import pytest

from fleet.models import Allocation, Node
from iam.models import Decision
from quotas.models import Charge, Quota
from reservations.models import Booking, Reservation
from tests.support.api import settle
from tests.support.world import HOUR, World, request


def create(world: World, pool: str, gpus: int = 1, **changed: Any) -> dict[str, Any]:
    return world.ann.api("reservations/create", **request(pool, gpus, **changed)).data["reservation"]


def host(vcpu: int, memory_gib: int, pages: int = 0) -> dict[str, int]:
    return {"vcpu": vcpu, "memoryMiB": memory_gib * 1024, "hugepages1Gi": pages}


def pool_of(world: World, *hosts: dict[str, int] | None, gpus: int = 8, more: int = 0, **fields: Any) -> str:
    """A pool with a node per host; ``more`` is acme's quota of vcpu and memoryGiB, 0: no rows."""
    pool = world.pool(**fields)
    extra = {"vcpu": more, "memoryGiB": more} if more else {}
    world.admin("pools/offer", poolId=pool, toTenantId="acme", resources={"gpu": 1_000, **extra})
    world.admin("pools/offer", poolId=pool, toTenantId="globex", resources={"gpu": 1_000, **extra})
    for one in hosts:
        world.node(pool, gpus=gpus, host=one)
    return pool


def shown(world: World, made: dict[str, Any]) -> dict[str, Any]:
    return world.ann.api("reservations/get", reservationId=made["id"]).data["reservation"]


def why(made: dict[str, Any]) -> tuple[str, str]:
    [condition] = made["conditions"]
    return condition["reason"], condition["message"]


@pytest.mark.clause("HST-2", "without it whole GPUs book the pool's share times their number")
@pytest.mark.clause("HST-2", "the smallest share that any host can give, in 0.001 vCPU and MiB")
@pytest.mark.clause("HST-1", "the amounts travel in the allocation")
@pytest.mark.clause("API-10", "resources: exact numbers")
def test_the_share_is_booked_and_told(world: World):
    pool = pool_of(world, host(127, 1000), host(256, 999))
    made = create(world, pool, 2)
    assert made["resources"] == {"vcpu": 31.75, "memoryGiB": 249.75, "hugepages1Gi": 0}
    booking = Booking.objects.get()
    assert (booking.vcpu_milli, booking.memory_mib, booking.hugepages_1gi) == (31_750, 255_744, 0)
    assert Allocation.objects.get().resources == {"vcpuMilli": 31_750, "memoryMiB": 255_744, "hugepages1Gi": 0}
    assert not Charge.objects.exclude(resource="gpu").exists(), "it needs no quota of its own"


@pytest.mark.clause("HST-2", "policy.perGpu if set")
def test_the_policy_sets_the_share(world: World):
    pool = pool_of(world, host(128, 1024), policy={"perGpu": {"vcpu": 12, "memoryGiB": 100}})
    assert create(world, pool, 4)["resources"] == {"vcpu": 48, "memoryGiB": 400, "hugepages1Gi": 0}


@pytest.mark.clause("HST-2", "a share is never 0")
def test_a_small_host_has_a_small_share(world: World):
    pool = pool_of(world, {"vcpu": 1, "memoryMiB": 7})
    assert create(world, pool, 1)["resources"] == {"vcpu": 0.125, "memoryGiB": 1 / 1024, "hugepages1Gi": 0}


@pytest.mark.clause("HST-2", "only hosts that report rows, cordoned ones too")
def test_whose_share_counts(world: World):
    pool = pool_of(world, host(128, 1024), host(64, 1024), None)
    world.admin("nodes/cordon", nodeId=world.nodes[1].id)
    assert create(world, pool, 1)["resources"]["vcpu"] == 8


@pytest.mark.clause("HST-2", "stored on the reservation at creation")
def test_the_share_stays_what_it_was(world: World):
    pool = pool_of(world, host(128, 1024))
    create(world, pool, 8)
    waiting = create(world, pool, 2)
    world.node(pool, gpus=8, host=host(64, 1024))
    settle()
    placed = shown(world, waiting)
    assert (placed["state"], placed["resources"]["vcpu"]) == ("active", 32)
    assert create(world, pool, 1)["resources"]["vcpu"] == 8


@pytest.mark.clause("HST-3", "pools whose hosts report no rows book none")
@pytest.mark.clause("HST-3", "explicit resources above 0 in a pool without rows: NeverFits")
def test_a_pool_without_rows(world: World):
    pool = pool_of(world, None, more=100, policy={"perGpu": {"vcpu": 4, "memoryGiB": 4}})
    made = create(world, pool, 1)
    assert (made["state"], made["resources"]) == ("placed", {})
    assert Allocation.objects.get().resources == {}
    assert create(world, pool, 1, resources={})["state"] == "placed"
    assert create(world, pool, 1, resources={"vcpu": 0})["state"] == "placed"
    assert why(create(world, pool, 1, resources={"vcpu": 1}))[0] == "NeverFits"


@pytest.mark.clause("HST-3", "in a mixed pool a host without rows takes no demand above 0")
def test_a_mixed_pool(world: World):
    pool = pool_of(world, None, host(128, 1024))
    made = create(world, pool, 8)
    assert made["placement"][0]["nodeId"] == world.nodes[1].id
    reason, message = why(create(world, pool, 1))
    assert reason == "HostResourcesShort"
    assert message.startswith("needs 1 gpu with 16 vCPU and 128 GiB on one node; 1 nodes have the gpu free, none with")


@pytest.mark.clause("HST-4", "smaller resources, or {}, are raised to the share")
@pytest.mark.parametrize(
    ("resources", "booked"),
    [
        ({}, {"vcpu": 32, "memoryGiB": 256, "hugepages1Gi": 0}),
        ({"vcpu": 1, "memoryGiB": 1}, {"vcpu": 32, "memoryGiB": 256, "hugepages1Gi": 0}),
        ({"vcpu": 40}, {"vcpu": 40, "memoryGiB": 256, "hugepages1Gi": 0}),
    ],
)
def test_the_share_is_the_floor(world: World, resources: dict[str, int], booked: dict[str, int]):
    pool = pool_of(world, host(128, 1024), more=8)
    made = create(world, pool, 2, resources=resources)
    assert made["resources"] == booked
    assert Reservation.objects.get().requested_resources == resources


@pytest.mark.clause("HST-5", "charged above the share, over the gang, rounded up; hugepages count as memory")
def test_the_excess_is_charged_and_given_back(world: World):
    pool = pool_of(world, host(128, 1024, 16), host(128, 1024, 16), more=100)
    made = create(world, pool, 2, nodes=2, resources={"vcpu": 40, "memoryGiB": 260, "hugepages1Gi": 4})
    charged = {charge.resource: charge.amount for charge in Charge.objects.filter(reservation_id=made["id"])}
    assert charged == {"gpu": 4, "vcpu": 16, "memoryGiB": 16}
    assert made["resources"] == {"vcpu": 40, "memoryGiB": 260, "hugepages1Gi": 4}
    world.ann.api("reservations/release", reservationId=made["id"])
    assert {q.used for q in Quota.objects.filter(tenant_id="acme", pool_id=pool)} == {0}


@pytest.mark.clause("HST-5", "a missing row grants 0")
def test_the_excess_needs_a_row(world: World, left):
    pool = pool_of(world, host(128, 1024))
    there = left()
    asked = request(pool, 2, resources={"vcpu": 33})
    error = world.ann.api("reservations/create", **asked).refused("QUOTA_EXCEEDED")
    assert error["details"] == {"resource": "vcpu", "requested": 1, "used": 0, "max": 0}
    assert {k: v - there.get(k, 0) for k, v in left().items() if v != there.get(k, 0)} == {"drafts": 1, "decisions": 1}
    pages = world.ann.api("reservations/create", **request(pool, 2, resources={"hugepages1Gi": 1}))
    assert pages.refused("QUOTA_EXCEEDED")["details"]["resource"] == "memoryGiB"


@pytest.mark.clause("HST-1", "never exceeds what the node reports, at any instant")
@pytest.mark.clause("CRE-14", "pending reasons with numbers")
def test_a_node_is_never_booked_over_what_it_reports(world: World, clock):
    pool = pool_of(world, host(128, 1024), more=1_000)
    create(world, pool, 1, resources={"vcpu": 100})
    made = create(world, pool, 1, resources={"vcpu": 29})
    reason, message = why(made)
    assert reason == "HostResourcesShort"
    assert message.startswith("needs 1 gpu with 29 vCPU and 128 GiB on one node; 1 nodes have the gpu free, none with ")
    assert message.endswith(" more than 28 vCPU and 896 GiB left")
    world.ann.api("reservations/cancel", reservationId=made["id"])
    assert create(world, pool, 1, resources={"vcpu": 28})["state"] == "placed"
    # After them there is room again, to the millisecond.
    later = {"startsAt": clock.now + HOUR, "resources": {"vcpu": 128}}
    assert create(world, pool, 1, **later)["state"] == "placed"
    assert why(create(world, pool, 1, **(later | {"startsAt": clock.now + HOUR - 1})))[0] == "HostResourcesShort"
    assert why(create(world, pool, 1, resources={"vcpu": 129}))[0] == "NeverFits"


@pytest.mark.clause("HST-1", "two that follow each other need the larger, not the sum")
def test_amounts_that_follow_each_other_are_not_added_up(world: World, clock):
    pool = pool_of(world, host(128, 1024), more=1_000)
    for hour in range(3):
        create(world, pool, 1, startsAt=clock.now + hour * HOUR, resources={"vcpu": 100})
    assert create(world, pool, 1, durationSeconds=3 * 3600, resources={"vcpu": 28})["state"] == "placed"
    assert create(world, pool, 1, durationSeconds=3 * 3600, resources={"vcpu": 16})["state"] == "pending"


@pytest.mark.clause("HST-1", "a node that reports less takes nothing new until it fits")
def test_a_node_that_comes_to_report_less(world: World, clock):
    pool = pool_of(world, host(128, 1024))
    create(world, pool, 2)
    world.nodes[0].host = host(16, 1024)
    world.nodes[0].sync()
    assert Node.objects.get().host_lowered_at == clock.now
    assert why(create(world, pool, 1))[0] == "HostResourcesShort"
    clock.advance(hours=1)
    assert create(world, pool, 1)["state"] == "placed"


@pytest.mark.clause("REC-3", "at once when capacity of their pool is freed")
def test_a_host_that_reports_more_is_capacity(world: World):
    pool = pool_of(world, host(128, 1024), more=1_000)
    made = create(world, pool, 1, resources={"vcpu": 200})
    assert made["state"] == "pending"
    world.nodes[0].host = host(256, 1024)
    world.nodes[0].sync()
    settle()
    assert shown(world, made)["state"] == "active"


@pytest.mark.clause("CRE-7", "host amounts: totals over the gang, after the share, rounded up to whole units")
def test_the_decision_sees_the_totals(world: World):
    pool = pool_of(world, host(127, 1000, 8), host(127, 1000, 8), more=100)
    create(world, pool, 1, nodes=2, resources={"hugepages1Gi": 3})
    seen = Decision.objects.get(action="compute:reservations:create").attributes
    # 2 x 15.875 vCPU, 2 x 125 GiB
    assert (seen["vcpu"], seen["memoryGiB"], seen["hugepages1Gi"]) == (32, 250, 6)


@pytest.mark.clause("CRE-3", "absent members of resources equal 0")
def test_a_member_left_out_is_no_difference(world: World):
    pool = pool_of(world, host(128, 1024), more=100)
    asked = request(pool, 1, resources={"vcpu": 20})
    made = world.ann.api("reservations/create", **asked).data["reservation"]
    again = asked | {"resources": {"hugepages1Gi": 0, "vcpu": 20.0, "memoryGiB": 0}}
    assert world.ann.api("reservations/create", **again).data["reservation"]["id"] == made["id"]
    world.ann.api("reservations/create", **(asked | {"resources": {"vcpu": 21}})).refused("CONFLICT")


PRICE = {"perDeviceHour": "2.00", "perVcpuHour": "0.10", "perGiBHour": "0.01", "currency": "EUR"}


@pytest.mark.clause("QTA-3", "the price is fixed at admission, for re-placements too")
@pytest.mark.clause("CRE-13", "the estimate counts vCPU and memory")
def test_the_price_is_that_of_admission(world: World, clock):
    pool = pool_of(world, host(128, 1024), policy={"price": PRICE})
    first = create(world, pool, 8)
    # 8 GPUs, 128 vCPU, 1024 GiB for an hour
    assert (first["estimatedCost"], first["currency"]) == ("39.04", "EUR")
    waiting = create(world, pool, 2, durationSeconds=7200)
    world.admin("pools/update", poolId=pool, policy={"price": {"perDeviceHour": "9.00", "currency": "USD"}})
    world.ann.api("reservations/release", reservationId=first["id"])
    settle()
    placed = shown(world, waiting)
    assert (placed["state"], placed["estimatedCost"], placed["currency"]) == ("active", "19.52", "EUR")
    assert Reservation.objects.get(id=waiting["id"]).price == PRICE
    dear = create(world, pool, 1)
    assert (dear["estimatedCost"], dear["currency"]) == ("9.00", "USD")


@pytest.mark.clause("QTA-3", "a fixed window placed late costs what is left of it")
def test_what_is_placed_late_costs_less(world: World, clock):
    pool = pool_of(world, None, policy={"price": {"perDeviceHour": "2.00", "currency": "EUR"}})
    first = create(world, pool, 8)
    asked = request(pool, 1, endsAt=clock.now + HOUR)
    del asked["durationSeconds"]
    waiting = world.ann.api("reservations/create", **asked).data["reservation"]
    assert waiting["estimatedCost"] == "2.00"
    clock.advance(seconds=1800)
    world.ann.api("reservations/release", reservationId=first["id"])
    settle()
    assert shown(world, waiting)["estimatedCost"] == "1.00"
    assert Reservation.objects.get(id=waiting["id"]).estimated_cost == Decimal(1)
