"""pools/update, archive and withdrawOffer through HTTP (POL-1, POL-3)."""

from typing import Any

import pytest

from computeplatform.events.models import Event
from fleet.models import Pool
from quotas.models import Quota
from tests.support.world import World, request


def told(type_: str, **of: Any) -> list[Event]:
    return list(Event.objects.filter(type=type_, **of).order_by("position"))


def shown(world: World, pool: str) -> dict[str, Any]:
    return world.admin("pools/get", poolId=pool).data["pool"]


def maxima(pool: str) -> set[tuple[str, int]]:
    return set(Quota.objects.filter(pool_id=pool).values_list("tenant_id", "max"))


PRICE = {"perDeviceHour": "2.20", "currency": "EUR"}


@pytest.mark.clause("POL-1", "update: the policy is merged member by member")
def test_policy_is_merged(world: World):
    pool = world.pool(policy={"tenantRoot": "/srv", "maxDurationHours": 10, "price": PRICE})
    answer = world.admin(
        "pools/update", poolId=pool, policy={"maxAdvanceDays": 5, "price": PRICE | {"currency": "USD"}}
    )
    policy = answer.data["pool"]["policy"]
    assert (policy["tenantRoot"], policy["maxDurationHours"], policy["maxAdvanceDays"]) == ("/srv", 10, 5)
    assert policy["price"] == PRICE | {"currency": "USD"}
    assert answer.data["pool"]["version"] == 2
    assert answer.data["pool"] == shown(world, pool)
    [event] = told("pool.updated")
    assert event.data == {"policy": {"maxAdvanceDays": 5, "price": PRICE | {"currency": "USD"}}}
    assert (event.subject_id, event.subject_version, event.tenant_id) == (pool, 2, "platform")


@pytest.mark.clause("POL-1", "update: null removes")
def test_null_gives_the_default_again(world: World):
    pool = world.pool(policy={"tenantRoot": "/srv", "maxDurationHours": 10, "kubernetes": {"cluster": "k"}})
    gone: dict[str, Any] = {"tenantRoot": None, "maxDurationHours": None, "kubernetes": None}
    policy = world.admin("pools/update", poolId=pool, policy=gone).data["pool"]["policy"]
    assert policy["maxDurationHours"] == 720
    assert not policy.keys() & {"tenantRoot", "kubernetes"}


@pytest.mark.clause("POL-1", "update: name")
def test_the_name_alone(world: World):
    pool = world.pool(policy={"maxDurationHours": 10})
    changed = world.admin("pools/update", poolId=pool, name="other").data["pool"]
    assert (changed["name"], changed["policy"]["maxDurationHours"], changed["version"]) == ("other", 10, 2)


@pytest.mark.clause("POL-1", "update: nothing new is no change")
def test_what_is_so_already_changes_nothing(world: World):
    pool = world.pool("same", policy={"maxDurationHours": 10})
    for asked in ({"name": "same"}, {"policy": {"maxDurationHours": 10, "maxAdvanceDays": None}}, {}):
        assert world.admin("pools/update", poolId=pool, **asked).data["pool"]["version"] == 1
    assert told("pool.updated") == []


@pytest.mark.clause("API-11", "update: a stale version is CONFLICT")
def test_stale_version(world: World):
    pool = world.pool()
    world.admin("pools/update", poolId=pool, version=1, name="second")
    for method, fields in (("pools/update", {"name": "third"}), ("pools/archive", {})):
        world.admin(method, poolId=pool, version=1, **fields).refused("CONFLICT", reason="stale-version", version=2)
    assert (shown(world, pool)["name"], shown(world, pool).get("archivedAt")) == ("second", None)


@pytest.mark.parametrize(
    ("policy", "path"),
    [
        ({"maxDurationHours": 0}, "policy.maxDurationHours"),
        ({"maxDurationHours": "10"}, "policy.maxDurationHours"),
        ({"price": {"currency": "EUR"}}, "policy.price.perDeviceHour"),
        ({"price": {"perDeviceHour": None, "currency": "EUR"}}, "policy.price.perDeviceHour"),
        ({"tenantRoot": "relative"}, "policy.tenantRoot"),
        ({"placer": "other"}, "policy.placer"),
        ({"unknown": None}, "policy.unknown"),
    ],
)
@pytest.mark.clause("POL-1", "update: refused values")
def test_refused_values_leave_nothing(world: World, policy: dict[str, Any], path: str):
    pool = world.pool()
    before = shown(world, pool)
    world.admin("pools/update", poolId=pool, policy=policy).refused_at(path)
    assert shown(world, pool) == before
    assert told("pool.updated") == []


CHANGES: list[tuple[str, dict[str, Any]]] = [
    ("pools/update", {"name": "mine"}),
    ("pools/archive", {}),
    ("pools/withdrawOffer", {"toTenantId": "acme"}),
]


@pytest.mark.clause("IAM-4", "pool administration is decided in the owner's tenant")
@pytest.mark.parametrize(("method", "fields"), CHANGES)
def test_who_may(world: World, method: str, fields: dict[str, Any]):
    pool = world.offered_pool(nodes=0)
    before = Pool.objects.values().get(id=pool)
    for caller in (world.ann.api, world.acme.api):  # a borrower's reserver, and its administrator
        caller(method, poolId=pool, **fields).refused("ACCESS_DENIED")
    stranger = world.pool("hidden", owner=world.globex.api)
    world.acme.api(method, poolId=stranger, **fields).refused("NOT_FOUND")
    world.admin(method, poolId="pool_none", **fields).refused("NOT_FOUND")
    assert Pool.objects.values().get(id=pool) == before
    assert world.admin(method, poolId=pool, **fields).status == 200


@pytest.mark.clause("POL-3", "archive: quota rows stay with max 0")
@pytest.mark.clause("POL-1", "archive: no new bookings")
def test_archive(world: World):
    pool = world.offered_pool()
    archived = world.admin("pools/archive", poolId=pool).data["pool"]
    assert archived["archivedAt"]
    assert archived["version"] == 2
    assert maxima(pool) == {("platform", 0), ("acme", 0), ("globex", 0)}
    world.ann.api("reservations/create", **request(pool)).refused("NOT_FOUND")
    world.admin("pools/offer", poolId=pool, toTenantId="acme", resources={"gpu": 1}).refused("INVALID_STATE")
    assert [event.subject_version for event in told("pool.archived")] == [2]
    # Again: unchanged.
    assert world.admin("pools/archive", poolId=pool).data["pool"] == archived
    assert len(told("pool.archived")) == 1


@pytest.mark.clause("POL-3", "withdrawal: quota rows stay with max 0")
@pytest.mark.clause("POL-1", "withdrawOffer")
def test_withdraw(world: World):
    pool = world.offered_pool()
    withdrawn = world.admin("pools/withdrawOffer", poolId=pool, toTenantId="acme").data["offer"]
    assert (withdrawn["toTenantId"], set(withdrawn["resources"].values())) == ("acme", {0})
    assert ("acme", 0) in maxima(pool)
    assert ("globex", 1000) in maxima(pool)
    world.ann.api("reservations/create", **request(pool)).refused("NOT_FOUND")
    world.ann.api("pools/get", poolId=pool).refused("NOT_FOUND")
    assert world.gil.api("reservations/create", **request(pool)).data["reservation"]["state"] == "placed"
    assert [event.data["toTenantId"] for event in told("pool.offer-withdrawn")] == ["acme"]
    # Again: unchanged. Offered again: open again.
    assert world.admin("pools/withdrawOffer", poolId=pool, toTenantId="acme").data["offer"] == withdrawn
    assert len(told("pool.offer-withdrawn")) == 1
    world.offer(pool, "acme", gpu=2)
    assert world.ann.api("reservations/create", **request(pool)).data["reservation"]["state"] == "placed"


@pytest.mark.clause("POL-1", "withdrawOffer: refusals")
def test_withdraw_refusals(world: World):
    pool = world.pool()
    world.admin("pools/withdrawOffer", poolId=pool, toTenantId="acme").refused("NOT_FOUND")
    world.offer(pool, "acme")
    refused = world.admin("pools/withdrawOffer", poolId=pool, toTenantId="acme", version=7)
    refused.refused("CONFLICT", reason="stale-version", version=1)
    assert ("acme", 1000) in maxima(pool)
