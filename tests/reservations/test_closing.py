"""What happens in a pool that is archived, or taken from a tenant (POL-3)."""

from collections.abc import Callable
from typing import Any

import pytest

from fleet.models import Node
from quotas.models import Charge, Quota
from reservations import reconcilers
from tests.reservations.conftest import event_types
from tests.support.clock import Clock
from tests.support.world import World, request

Close = Callable[[World, str], Any]


def archive(world: World, pool: str) -> None:
    assert world.admin("pools/archive", poolId=pool).status == 200


def withdraw(world: World, pool: str) -> None:
    assert world.admin("pools/withdrawOffer", poolId=pool, toTenantId="acme").status == 200


BOTH = pytest.mark.parametrize(("close", "reason"), [(archive, "pool-archived"), (withdraw, "offer-withdrawn")])


def get(world: World, reservation_id: str) -> dict[str, Any]:
    return world.ann.api("reservations/get", reservationId=reservation_id).data["reservation"]


def made(world: World, pool: str, gpus: int = 8, **changed: Any) -> str:
    answer = world.ann.api("reservations/create", **request(pool, gpus, **changed))
    return str(answer.data["reservation"]["id"])


def used(pool: str) -> dict[str, int]:
    return dict(Quota.objects.filter(pool_id=pool, resource="gpu").values_list("tenant_id", "used"))


@BOTH
@pytest.mark.clause("POL-3", "pending ones are cancelled with the reason, placed and later ones run out")
def test_pending_ones_are_cancelled(world: World, pool: str, clock: Clock, close: Close, reason: str):
    active = made(world, pool, 6)
    placed = made(world, pool, 2, startsAt=clock.now + 60_000)
    pending = [made(world, pool) for _ in range(3)]
    reconcilers.reconcile_tick()
    close(world, pool)
    reconcilers.reconcile_tick()
    for one in pending:
        shown = get(world, one)
        assert (shown["state"], shown["reason"]) == ("cancelled", reason)
        assert event_types(one) == ["pending", "cancelled"]
    assert used(pool)["acme"] == 8
    clock.advance(seconds=60)
    reconcilers.reconcile_tick()
    assert (get(world, active)["state"], get(world, placed)["state"]) == ("active", "active")
    clock.advance(hours=1)
    reconcilers.reconcile_tick()
    for one in (active, placed):
        assert (get(world, one)["state"], get(world, one)["reason"]) == ("released", "ended")
    assert used(pool)["acme"] == 0
    assert not Charge.objects.filter(refunded_at=None).exists()


@BOTH
@pytest.mark.clause("POL-3", "the woken reconciler does it too, and twice is once")
def test_by_wake(world: World, pool: str, clock: Clock, close: Close, reason: str):
    made(world, pool)
    pending = made(world, pool)
    close(world, pool)
    reconcilers.reconcile(pool_id=pool)
    version = get(world, pending)["version"]
    assert get(world, pending)["reason"] == reason
    reconcilers.reconcile_tick()
    reconcilers.reconcile(pool_id=pool)
    assert get(world, pending)["version"] == version


@pytest.mark.clause("POL-3", "a withdrawal is one tenant's")
def test_other_tenants_go_on(world: World, pool: str):
    made(world, pool)
    theirs = world.gil.api("reservations/create", **request(pool, 8)).data["reservation"]["id"]
    withdraw(world, pool)
    reconcilers.reconcile_tick()
    assert world.gil.api("reservations/get", reservationId=theirs).data["reservation"]["state"] == "pending"


@BOTH
@pytest.mark.clause("POL-1", "archive, withdrawal: no new bookings")
def test_freed_devices_are_not_given_to_who_still_waits(world: World, pool: str, close: Close, reason: str):
    running, pending = made(world, pool), made(world, pool)
    close(world, pool)
    world.ann.api("reservations/release", reservationId=running)
    # Placement comes before the reconciler has seen to it.
    reconcilers.placement_tick()
    assert get(world, pending)["state"] == "pending"
    reconcilers.reconcile_tick()
    assert (get(world, pending)["state"], get(world, pending)["reason"]) == ("cancelled", reason)


@BOTH
@pytest.mark.clause("POL-3", "a re-placement is no new booking")
def test_what_was_placed_is_placed_anew(world: World, clock: Clock, close: Close, reason: str):
    pool = world.offered_pool(nodes=2)
    one = made(world, pool, 8, binding="node")
    reconcilers.reconcile_tick()
    close(world, pool)
    # Its node never binds it; the other one is there.
    clock.advance(seconds=301)
    Node.objects.update(last_heartbeat_at=clock.now)
    reconcilers.reconcile_tick()
    reconcilers.reconcile_tick()
    assert get(world, one)["state"] == "pending"
    reconcilers.placement_tick()
    assert get(world, one)["state"] == "placed"


@pytest.mark.clause("POL-1", "update: a shorter maxPendingHours acts on what waits")
def test_a_stricter_policy_acts_on_what_waits(world: World, pool: str, clock: Clock):
    made(world, pool, durationSeconds=36_000)
    pending = made(world, pool)
    clock.advance(hours=2)
    world.admin("pools/update", poolId=pool, policy={"maxPendingHours": 1})
    reconcilers.placement_tick()
    reconcilers.reconcile_tick()
    assert (get(world, pending)["state"], get(world, pending)["reason"]) == ("cancelled", "pending-too-long")


@pytest.mark.clause("POL-1", "update: a longer maxPendingHours acts on what waits")
def test_a_laxer_policy_acts_on_what_waits(world: World, pool: str, clock: Clock):
    world.admin("pools/update", poolId=pool, policy={"maxPendingHours": 1})
    made(world, pool, durationSeconds=36_000)
    pending = made(world, pool)
    world.admin("pools/update", poolId=pool, policy={"maxPendingHours": 3})
    clock.advance(hours=2)
    reconcilers.reconcile_tick()
    assert get(world, pending)["state"] == "pending"


@pytest.mark.clause("QTA-3", "a changed price applies to later admissions")
def test_price_of_what_is_admitted_stays(world: World):
    price = {"perDeviceHour": "2.00", "currency": "EUR"}
    pool = world.offered_pool(policy={"price": price})
    first = made(world, pool, 1)
    world.admin("pools/update", poolId=pool, policy={"price": price | {"perDeviceHour": "5.00"}})
    second = made(world, pool, 1)
    assert [get(world, one)["estimatedCost"] for one in (first, second)] == ["2.00", "5.00"]
    reconcilers.reconcile_tick()
    extended = world.ann.api("reservations/extend", reservationId=first, by="PT1H").data["reservation"]
    assert extended["estimatedCost"] == "4.00"
