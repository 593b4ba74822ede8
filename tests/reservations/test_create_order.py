"""What create checks first (CRE-21): each request is wrong in two ways, and the answer says which one counts."""

from collections.abc import Callable
from typing import Any

import pytest

from fleet.models import Pool
from reservations.models import Reservation
from tests.support.world import World, request

FORBID = 'forbid (principal, action == Compute::Action::"compute:reservations:create", resource);'
Left = Callable[..., dict[str, int]]


def forbid(world: World) -> None:
    assert world.acme.api.iam("policies/put", name="none", text=FORBID).status == 200


@pytest.mark.clause("CRE-21", "tenant before key")
def test_the_tenant_before_the_key(world: World, pool: str):
    used = request(pool)
    world.ann.api("reservations/create", **used)
    other = used | {"devices": {"class": "gpu", "count": 2}, "tenantId": "globex"}
    world.ann.api("reservations/create", **other).refused("ACCESS_DENIED")


@pytest.mark.clause("CRE-21", "key before pool: CONFLICT")
@pytest.mark.parametrize("changed", [{"poolId": "pool_none"}, {"startsAt": 1}, {"priority": 99}])
def test_a_used_key_before_the_pool(world: World, pool: str, left: Left, changed: dict[str, Any]):
    used = request(pool)
    made = world.ann.api("reservations/create", **used).data["reservation"]
    before = left()
    world.ann.api("reservations/create", **(used | changed)).refused("CONFLICT", reservationId=made["id"])
    assert left() == before


@pytest.mark.clause("CRE-21", "key before pool: ACCESS_DENIED of a refused key")
@pytest.mark.clause("CRE-5", "a key whose request IAM refused stays ACCESS_DENIED")
def test_a_refused_key_before_the_pool(world: World, pool: str, clock, left: Left):
    used = request(pool)
    forbid(world)
    world.ann.api("reservations/create", **used).refused("ACCESS_DENIED")
    world.acme.api.iam("policies/delete", name="none")
    Pool.objects.filter(id=pool).update(archived_at=clock.now)
    before = left()
    world.ann.api("reservations/create", **used).refused("ACCESS_DENIED")
    world.ann.api("reservations/create", **(used | {"nodes": 2})).refused("CONFLICT")
    assert left() == before


@pytest.mark.clause("CRE-21", "the key is used up when the draft is stored, not before")
@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"poolId": "pool_none"}, "NOT_FOUND"),
        ({"priority": 99}, "INVALID_INPUT"),
        ({"startsAt": 1}, "INVALID_INPUT"),
        ({"binding": "vm"}, "UNSUPPORTED"),
    ],
)
def test_what_is_refused_before_the_draft_leaves_the_key(world: World, pool: str, changed: dict[str, Any], code: str):
    asked = request(pool)
    world.ann.api("reservations/create", **(asked | changed)).refused(code)
    assert not Reservation.objects.filter(idempotency_key=asked["idempotencyKey"]).exists()
    assert world.ann.api("reservations/create", **asked).data["reservation"]["state"] == "placed"


@pytest.mark.clause("CRE-21", "pool before decision")
def test_the_pool_before_the_decision(world: World, pool: str, left: Left):
    forbid(world)
    world.ann.api("reservations/create", **request("pool_none")).refused("NOT_FOUND")
    assert world.ann.api("reservations/create", **request(pool, priority=99)).refused_at("priority")
    assert left() == {}


@pytest.mark.clause("CRE-21", "decision before budget and quota")
def test_the_decision_before_the_money(world: World, left: Left):
    pool = world.offered_pool(quota=1, policy={"price": {"perDeviceHour": "1.00", "currency": "EUR"}})
    forbid(world)
    world.ann.api("reservations/create", **request(pool, 9, maxCost="0.01")).refused("ACCESS_DENIED")
    assert left() == {"drafts": 1, "decisions": 1}


@pytest.mark.clause("CRE-21", "budget before quota")
def test_the_money_before_the_quota(world: World, left: Left):
    pool = world.offered_pool(quota=1, policy={"price": {"perDeviceHour": "1.00", "currency": "EUR"}})
    asked = request(pool, 2, maxCost="1.99")
    world.ann.api("reservations/create", **asked).refused("SPEND_LIMIT_REACHED", reason="max-cost")
    assert left() == {"drafts": 1, "decisions": 1}


@pytest.mark.clause("CRE-21", "quota before placement")
def test_the_quota_before_the_placement(world: World, left: Left):
    pool = world.offered_pool(quota=8)
    world.ann.api("reservations/create", **request(pool, 9)).refused("QUOTA_EXCEEDED", resource="gpu", requested=9)
    assert left() == {"drafts": 1, "decisions": 1}
