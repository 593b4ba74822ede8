"""pools/create, get, list, offer through HTTP."""

from typing import Any

import pytest

from computeplatform.events.models import Event
from fleet.models import Offer, Pool
from quotas.models import Quota
from tests.support.world import World, fresh_key

UNLIMITED = 2**53 - 1
SHAPE = {"name": "h100", "region": "eu-north", "gpuModel": "h100-sxm-80g", "deviceClass": "gpu"}


def maxima(pool_id: str, tenant_id: str) -> dict[str, int]:
    return dict(Quota.objects.filter(pool_id=pool_id, tenant_id=tenant_id).values_list("resource", "max"))


def nothing_made() -> bool:
    made = Event.objects.filter(type__startswith="pool.").exists()
    return not (Pool.objects.exists() or Offer.objects.exists() or Quota.objects.exists() or made)


@pytest.mark.clause("POL-1", "create: the owner's quota rows")
def test_create_makes_the_pool_and_its_owners_quota(world: World):
    pool = world.acme.api("pools/create", **SHAPE).data["pool"]
    assert pool["tenantId"] == "acme"
    assert pool["sharing"] == "exclusive"
    assert pool["policy"]["maxDurationHours"] == 720
    assert pool["version"] == 1
    assert "profile" not in pool
    assert maxima(pool["id"], "acme") == {"gpu": UNLIMITED, "vcpu": UNLIMITED, "memoryGiB": UNLIMITED}
    told = Event.objects.get(type="pool.created")
    assert (told.tenant_id, told.subject_id, told.subject_version) == ("acme", pool["id"], 1)
    assert told.actor_id == world.acme.id
    assert told.request_id


@pytest.mark.clause("POL-1", "create: resources name the rows")
def test_create_with_resources_makes_those_rows_alone(world: World):
    pool = world.acme.api("pools/create", **SHAPE, resources={"gpu": 16}).data["pool"]
    assert maxima(pool["id"], "acme") == {"gpu": 16}


@pytest.mark.parametrize(
    ("changed", "sharing", "resource"),
    [
        ({"deviceClass": "mig", "profile": "1g.10gb"}, "mig", "mig:1g.10gb"),
        ({"deviceClass": "slot"}, "timeslice", "slot"),
        ({"deviceClass": "slot", "sharing": "mps"}, "mps", "slot"),
    ],
)
def test_each_class_has_its_sharing_and_its_quota_resource(world: World, changed, sharing, resource):
    pool = world.acme.api("pools/create", **(SHAPE | changed)).data["pool"]
    assert pool["sharing"] == sharing
    assert set(maxima(pool["id"], "acme")) == {resource, "vcpu", "memoryGiB"}


@pytest.mark.parametrize(
    ("changed", "path"),
    [
        ({"deviceClass": "tpu"}, "deviceClass"),
        ({"sharing": "mps"}, "sharing"),
        ({"deviceClass": "mig"}, "profile"),
        ({"deviceClass": "mig", "profile": "big"}, "profile"),
        ({"profile": "1g.10gb"}, "profile"),
        ({"name": ""}, "name"),
        ({"name": "x" * 129}, "name"),
        ({"region": "eu north"}, "region"),
        ({"policy": {"colour": "red"}}, "policy.colour"),
        ({"policy": {"perGpu": {"vcpu": -1, "memoryGiB": 1}}}, "policy.perGpu.vcpu"),
        ({"resources": {"gpu": -1}}, "resources.gpu"),
        ({"resources": {"slot": 1}}, "resources.slot"),
        ({"resources": {"coffee": 1}}, "resources.coffee"),
        ({"owner": "globex"}, "owner"),
    ],
)
@pytest.mark.clause("API-4", "every wrong field, with its path")
def test_create_refuses_what_does_not_fit(world: World, changed, path):
    world.acme.api("pools/create", **(SHAPE | changed)).refused_at(path)
    assert nothing_made()


def test_create_names_every_wrong_field_at_once(world: World):
    answer = world.acme.api("pools/create", name="", region="!", deviceClass="tpu")
    paths = [issue["path"] for issue in answer.refused("INVALID_INPUT")["details"]["issues"]]
    assert paths == ["deviceClass", "gpuModel", "name", "region"]


@pytest.mark.clause("API-11", "pools: the same key and request answers the stored pool")
def test_create_again_with_the_same_key(world: World):
    key = fresh_key()
    first = world.acme.api("pools/create", **SHAPE, idempotencyKey=key).data
    again = world.acme.api("pools/create", **dict(reversed(SHAPE.items())), idempotencyKey=key).data
    assert again == first
    world.acme.api("pools/create", **(SHAPE | {"name": "other"}), idempotencyKey=key).refused("CONFLICT")
    assert Pool.objects.count() == 1


def test_who_may_create(world: World):
    for person in (world.ann, world.vic):
        person.api("pools/create", **SHAPE).refused("ACCESS_DENIED")
    world.globex.api("pools/create", **SHAPE, tenantId="acme").refused("ACCESS_DENIED")
    assert nothing_made()


@pytest.mark.clause("API-5", "a pool that is offered counts as visible, another does not exist")
def test_who_sees_a_pool(world: World):
    pool_id = world.pool(owner=world.acme.api)
    for person in (world.acme, world.ann, world.vic):
        assert person.api("pools/get", poolId=pool_id).data["pool"]["id"] == pool_id
    foreign = world.globex.api("pools/get", poolId=pool_id).refused("NOT_FOUND")
    unknown = world.globex.api("pools/get", poolId="pool_none").refused("NOT_FOUND")
    assert foreign["message"] == unknown["message"]
    assert world.globex.api("pools/list").data == {"pools": []}
    world.offer(pool_id, "globex", owner=world.acme.api)
    assert world.gil.api("pools/get", poolId=pool_id).data["offer"]["resources"] == {"gpu": 1000}
    assert [p["id"] for p in world.gil.api("pools/list").data["pools"]] == [pool_id]
    assert "offer" not in world.ann.api("pools/get", poolId=pool_id).data


def test_without_a_role_a_pool_is_not_found_before_access_is_denied(world: World):
    pool_id = world.pool(owner=world.acme.api)
    nobody = world.person(world.acme, "nobody")
    nobody.api("pools/get", poolId=pool_id).refused("ACCESS_DENIED")
    nobody.api("pools/get", poolId="pool_none").refused("NOT_FOUND")


@pytest.mark.clause("POL-1", "list: owned and offered, newest first")
def test_list_pages_through_owned_and_offered(world: World, clock):
    made = []
    for number in range(5):
        clock.advance(seconds=number % 2)  # some share a millisecond
        owner = world.acme if number % 2 else world.globex
        made.append(world.pool(f"p{number}", owner=owner.api))
        if owner is world.globex:
            world.offer(made[-1], "acme", owner=owner.api)
    hidden = world.pool("hidden", owner=world.globex.api)
    seen: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = world.ann.api("pools/list", limit=2, **cursor).data
        seen += [pool["id"] for pool in page["pools"]]
        if "nextCursor" not in page:
            break
        assert page["nextCursor"] == seen[-1]
        cursor = {"cursor": page["nextCursor"]}
    ages = dict(Pool.objects.values_list("id", "created_at"))
    assert seen == sorted(made, key=lambda name: (ages[name], name), reverse=True)
    for bad in (hidden, "pool_none"):
        world.ann.api("pools/list", cursor=bad).refused_at("cursor")
    for limit in (0, 201, "2"):
        world.ann.api("pools/list", limit=limit).refused_at("limit")


def test_list_shows_archived_pools_when_asked_and_keeps_their_place(world: World, clock):
    old = world.pool("old", owner=world.acme.api)
    clock.advance(seconds=1)
    new = world.pool("new", owner=world.acme.api)
    Pool.objects.filter(id=new).update(archived_at=clock.now)  # pools/archive is not there yet
    assert [p["id"] for p in world.ann.api("pools/list").data["pools"]] == [old]
    assert [p["id"] for p in world.ann.api("pools/list", includeArchived=True).data["pools"]] == [new, old]
    assert [p["id"] for p in world.ann.api("pools/list", cursor=new).data["pools"]] == [old]
    assert world.ann.api("pools/get", poolId=new).data["pool"]["archivedAt"] == clock.now


@pytest.mark.clause("POL-1", "offer: creates the rows")
def test_offer_sets_the_borrowers_rows_and_its_terms(world: World):
    pool_id = world.pool(owner=world.acme.api)
    offer = world.offer(pool_id, "globex", owner=world.acme.api, gpu=8).data["offer"]
    assert (offer["poolId"], offer["toTenantId"], offer["resources"]) == (pool_id, "globex", {"gpu": 8})
    assert (offer["maxPriority"], offer["version"]) == (50, 1)
    assert "budgetCheck" not in offer
    assert maxima(pool_id, "globex") == {"gpu": 8}
    told = Event.objects.get(type="pool.offered")
    assert (told.tenant_id, told.data["toTenantId"]) == ("acme", "globex")
    assert Event.objects.get(type="quota.changed", tenant_id="globex").data["max"] == 8


@pytest.mark.clause("QTA-4", "an offer has maxPriority")
def test_offering_again_changes_the_terms_and_keeps_rows_that_are_not_named(world: World):
    pool_id = world.pool(owner=world.acme.api)
    world.acme.api("pools/offer", poolId=pool_id, toTenantId="globex", resources={"gpu": 8, "vcpu": 4})
    again = world.offer(pool_id, "globex", owner=world.acme.api, gpu=2, maxPriority=80, budgetCheck=True).data["offer"]
    assert (again["maxPriority"], again["budgetCheck"], again["version"]) == (80, True, 2)
    assert again["resources"] == {"gpu": 2, "vcpu": 4}
    assert Offer.objects.count() == 1


@pytest.mark.parametrize(
    ("changed", "path"),
    [
        ({"toTenantId": "acme"}, "toTenantId"),
        ({"toTenantId": "initech"}, "toTenantId"),
        ({"toTenantId": "a b"}, "toTenantId"),
        ({"resources": {"slot": 1}}, "resources.slot"),
        ({"resources": {"gpu": 1.5}}, "resources.gpu"),
        ({"maxPriority": 101}, "maxPriority"),
        ({"budgetCheck": "yes"}, "budgetCheck"),
    ],
)
def test_offer_refuses_what_does_not_fit(world: World, changed, path):
    pool_id = world.pool(owner=world.acme.api)
    fields = {"poolId": pool_id, "toTenantId": "globex", "resources": {"gpu": 1}} | changed
    world.acme.api("pools/offer", **fields).refused_at(path)
    assert not Offer.objects.exists()
    assert not Quota.objects.exclude(tenant_id="acme").exists()
    assert not Event.objects.filter(type="pool.offered").exists()


def test_an_archived_pool_is_not_offered(world: World, clock):
    pool_id = world.pool(owner=world.acme.api)
    Pool.objects.update(archived_at=clock.now)
    world.offer(pool_id, "globex", owner=world.acme.api).refused("INVALID_STATE", reason="pool-archived")
    assert not Offer.objects.exists()


@pytest.mark.clause("API-11", "offers: the same key and request answers the stored offer")
def test_offer_again_with_the_same_key(world: World):
    pool_id = world.pool(owner=world.acme.api)
    key = fresh_key()
    first = world.offer(pool_id, "globex", owner=world.acme.api, idempotencyKey=key).data
    assert world.offer(pool_id, "globex", owner=world.acme.api, idempotencyKey=key).data == first
    world.offer(pool_id, "globex", owner=world.acme.api, gpu=3, idempotencyKey=key).refused("CONFLICT")
    assert Event.objects.filter(type="pool.offered").count() == 1


@pytest.mark.clause("IAM-4", "pool administration is decided in the owner's tenant")
def test_a_borrower_administers_nothing_whatever_its_policies_say(world: World):
    pool_id = world.pool(owner=world.acme.api)
    world.offer(pool_id, "globex", owner=world.acme.api)
    permit = world.globex.api.iam("policies/put", name="all", text="permit (principal, action, resource);")
    assert permit.status == 200
    fields: dict[str, Any] = {"poolId": pool_id, "toTenantId": "platform", "resources": {"gpu": 1}}
    world.globex.api("pools/offer", **fields).refused("ACCESS_DENIED")
    world.ann.api("pools/offer", **fields).refused("ACCESS_DENIED")
    world.acme.api("pools/offer", **(fields | {"poolId": "pool_none"})).refused("NOT_FOUND")
    assert Offer.objects.count() == 1
