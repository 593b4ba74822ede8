"""quotas/list and quotas/set through HTTP."""

import pytest
from django.db import transaction
from prometheus_client import REGISTRY

from computeplatform.events.models import Event
from iam.models import Decision
from quotas.models import Charge, Quota
from quotas.operations.charges import charge_each
from tests.quotas.conftest import ask
from tests.support.world import World


@pytest.fixture
def pool_id(world: World) -> str:
    """A pool of acme's with limits, offered to globex."""
    made = world.pool(owner=world.acme.api, resources={"gpu": 16})
    world.offer(made, "globex", owner=world.acme.api, gpu=8)
    Event.objects.all().delete()
    return made


def shown(answer) -> list[tuple[str, str, int, int]]:
    return [(q["tenantId"], q["resource"], q["max"], q["used"]) for q in answer.data["quotas"]]


@pytest.mark.clause("QTA-2", "quotas/list: one's own, and the owner its borrowers'")
def test_who_sees_which_rows(world: World, pool_id):
    assert shown(world.vic.api("quotas/list")) == [("acme", "gpu", 16, 0)]
    assert shown(world.gil.api("quotas/list")) == [("globex", "gpu", 8, 0)]
    assert shown(world.gil.api("quotas/list", poolId=pool_id)) == [("globex", "gpu", 8, 0)]
    assert shown(world.acme.api("quotas/list", ofTenantId="globex")) == [("globex", "gpu", 8, 0)]
    assert shown(world.acme.api("quotas/list", poolId=pool_id, ofTenantId="globex")) == [("globex", "gpu", 8, 0)]
    assert shown(world.acme.api("quotas/list", poolId=pool_id, ofTenantId="acme")) == [("acme", "gpu", 16, 0)]


@pytest.mark.clause("API-5", "no other tenant's quota is shown")
@pytest.mark.clause("IAM-7", "what policies permit and the method refuses is one denial")
def test_nobody_sees_another_tenants_rows(world: World, pool_id):
    assert shown(world.globex.api("quotas/list", ofTenantId="acme")) == []
    asked = {"action": "compute:quotas:read", "outcome": "allow"}
    before = REGISTRY.get_sample_value("iam_decisions_total", asked)
    world.globex.api("quotas/list", poolId=pool_id, ofTenantId="acme").refused("ACCESS_DENIED")
    entry = Decision.objects.get(action="compute:quotas:read")
    assert (entry.outcome, entry.reason, entry.principal_id) == ("deny", "no-permit", world.globex.id)
    assert REGISTRY.get_sample_value("iam_decisions_total", asked) == before
    world.admin("quotas/list", poolId=pool_id).refused("NOT_FOUND")
    world.person(world.acme, "nobody").api("quotas/list").refused("ACCESS_DENIED")


@pytest.mark.clause("QTA-1", "quotas/set, and a max below used")
def test_set_below_used_shows_by_how_much(world: World, pool_id):
    with transaction.atomic():
        charge_each([ask("r1", "globex", pool_id, gpu=6)], now=1)
    fields = {"poolId": pool_id, "toTenantId": "globex", "resource": "gpu"}
    quota = world.acme.api("quotas/set", **fields, max=4).data["quota"]
    assert (quota["max"], quota["used"], quota["overBy"], quota["version"]) == (4, 6, 2, 2)
    told = Event.objects.get(type="quota.changed")
    assert (told.tenant_id, told.data["max"], told.data["maxBefore"]) == ("globex", 4, 8)
    assert "overBy" not in world.acme.api("quotas/set", **fields, max=6).data["quota"]
    # The books are closed for the invariants at the end: no reservation stands behind this charge.
    Quota.objects.filter(tenant_id="globex").update(used=0)
    Charge.objects.all().delete()


def test_set_makes_a_row_that_was_not_there(world: World, pool_id):
    fields = {"poolId": pool_id, "toTenantId": "globex", "resource": "vcpu", "max": 9}
    world.acme.api("quotas/set", **fields, version=1).refused("CONFLICT", reason="stale-version", version=0)
    assert world.acme.api("quotas/set", **fields, version=0).data["quota"]["version"] == 1
    world.acme.api("quotas/set", **fields, version=0).refused("CONFLICT", reason="stale-version", version=1)
    assert world.acme.api("quotas/set", **(fields | {"toTenantId": "acme"})).data["quota"]["tenantId"] == "acme"


@pytest.mark.parametrize(
    ("changed", "path"),
    [
        ({"resource": "slot"}, "resource"),
        ({"resource": "coffee"}, "resource"),
        ({"max": -1}, "max"),
        ({"max": 1.5}, "max"),
        ({"max": True}, "max"),
        ({"max": 2**53}, ""),
        ({"toTenantId": "platform"}, "toTenantId"),
        ({"onOverage": "keep"}, "onOverage"),
    ],
)
def test_set_refuses_what_does_not_fit(world: World, pool_id, changed, path):
    fields = {"poolId": pool_id, "toTenantId": "globex", "resource": "gpu", "max": 1} | changed
    world.acme.api("quotas/set", **fields).refused_at(path)
    assert sorted(Quota.objects.values_list("max", flat=True)) == [8, 16]
    assert not Event.objects.exists()


@pytest.mark.clause("QTA-2", "quotas/set: the pool's owner alone")
def test_who_may_set(world: World, pool_id):
    fields = {"poolId": pool_id, "toTenantId": "globex", "resource": "gpu", "max": 999}
    for person in (world.globex, world.ann, world.vic):
        person.api("quotas/set", **fields).refused("ACCESS_DENIED")
    world.admin("quotas/set", **fields).refused("NOT_FOUND")
    world.acme.api("quotas/set", **(fields | {"poolId": "pool_none"})).refused("NOT_FOUND")
    assert Quota.objects.get(tenant_id="globex").max == 8
