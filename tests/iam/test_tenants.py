"""``iam/tenants/*``: the platform's administrators make and suspend tenants (IAM-4)."""

from typing import Any

import pytest

from iam.models import ApiKey, Decision, Principal, Tenant
from tests.support.api import Api
from tests.support.clock import Clock
from tests.support.world import World, fresh_key


@pytest.mark.clause("IAM-4", "tenants are made by the platform")
def test_a_tenant_is_made_with_its_first_administrator(world: World, clock: Clock) -> None:
    made = world.admin.iam("tenants/create", id="initech", name="Initech", admin={"name": "bill"}).data
    assert made["tenant"] == {
        "id": "initech",
        "name": "Initech",
        "status": "active",
        "createdAt": clock.now,
        "version": 1,
    }
    assert (made["admin"]["tenantId"], made["admin"]["roles"]) == ("initech", ["tenant-admin"])
    bill = Api(made["token"], "initech")
    assert bill.iam("session/whoami").data["principal"]["id"] == made["admin"]["id"]
    assert bill.iam("principals/create", kind="user", name="peter").status == 200


def test_a_tenant_may_be_made_alone(world: World) -> None:
    made = world.admin.iam("tenants/create", id="initech", name="Initech").data
    assert made.keys() == {"tenant"}
    assert not Principal.objects.filter(tenant_id="initech").exists()


@pytest.mark.clause("API-11", "a secret in the first answer only")
def test_the_same_key_answers_without_the_token(world: World) -> None:
    fields = {"id": "initech", "name": "Initech", "admin": {"name": "bill"}, "idempotencyKey": fresh_key()}
    first = world.admin.iam("tenants/create", **fields).data
    second = world.admin.iam("tenants/create", **fields).data
    assert second == {part: first[part] for part in ("tenant", "admin", "key")}
    assert Principal.objects.filter(tenant_id="initech").count() == 1


def test_an_id_is_taken_once(world: World) -> None:
    answer = world.admin.iam("tenants/create", id="acme", name="Again", admin={"name": "x"})
    answer.refused("CONFLICT", reason="tenant-exists", id="acme")
    assert Tenant.objects.get(id="acme").name == "Acme"
    assert not Principal.objects.filter(name="x").exists()


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"id": ""}, "id"),
        ({"id": "a b"}, "id"),
        ({"id": "x" * 65}, "id"),
        ({"name": "x\x07"}, "name"),
        ({"admin": {}}, "admin.name"),
        ({"admin": {"name": "a", "roles": []}}, "admin.roles"),
        ({"status": "active"}, "status"),
    ],
)
def test_wrong_fields_are_named(world: World, fields: dict[str, Any], path: str) -> None:
    before = Tenant.objects.count()
    world.admin.iam("tenants/create", **({"id": "initech", "name": "Initech"} | fields)).refused_at(path)
    assert Tenant.objects.count() == before


@pytest.mark.clause("IAM-1", "a minted key is never wider")
def test_a_scoped_key_makes_no_unscoped_one(world: World) -> None:
    me = world.admin.iam("session/whoami").data["principal"]["id"]
    token = world.admin.iam("keys/create", principalId=me, scopes=["iam:tenants:*"]).data["token"]
    scoped = Api(token, "platform")
    scoped.iam("tenants/create", id="initech", name="Initech", admin={"name": "bill"}).refused("ACCESS_DENIED")
    assert Decision.objects.get(outcome="deny").reason == "key-scope"
    assert not Tenant.objects.filter(id="initech").exists()
    assert scoped.iam("tenants/create", id="initech", name="Initech").status == 200


@pytest.mark.clause("IAM-4", "tenants are made and suspended by the platform")
@pytest.mark.parametrize(
    ("method", "fields"),
    [
        ("create", {"id": "initech", "name": "Initech"}),
        ("list", {}),
        ("suspend", {"id": "globex"}),
        ("suspend", {"id": "acme"}),
        ("suspend", {"id": "no-such-tenant"}),
        ("resume", {"id": "globex"}),
        ("resume", {"id": "no-such-tenant"}),
    ],
)
def test_nobody_else_has_to_do_with_tenants(world: World, method: str, fields: dict[str, str]) -> None:
    # The administrator of a tenant is refused like everybody, and learns of no tenant's existence.
    for person in (world.acme, world.ann, world.vic):
        person.api.iam(f"tenants/{method}", **fields).refused("ACCESS_DENIED")
    operator = world.admin.iam("principals/create", kind="user", name="op", roles=["reserver"]).data["principal"]
    token = world.admin.iam("keys/create", principalId=operator["id"]).data["token"]
    answer = Api(token, "platform").iam(f"tenants/{method}", **fields)
    answer.refused("NOT_FOUND" if fields.get("id") == "no-such-tenant" else "ACCESS_DENIED")
    assert set(Tenant.objects.values_list("id", "status")) == {
        (tenant, "active") for tenant in ("platform", "acme", "globex")
    }


def test_suspend_and_resume_repeated_change_nothing(world: World) -> None:
    first = world.admin.iam("tenants/suspend", id="acme", reason="unpaid").data["tenant"]
    assert (first["status"], first["version"]) == ("suspended", 2)
    assert world.admin.iam("tenants/suspend", id="acme").data["tenant"] == first
    assert Tenant.objects.get(id="acme").status_reason == "unpaid"
    again = world.admin.iam("tenants/resume", id="acme").data["tenant"]
    assert (again["status"], again["version"]) == ("active", 3)
    assert world.admin.iam("tenants/resume", id="acme").data["tenant"] == again
    world.admin.iam("tenants/suspend", id="no-such-tenant").refused("NOT_FOUND")


def test_the_platform_stays(world: World) -> None:
    world.admin.iam("tenants/suspend", id="platform").refused("INVALID_STATE", reason="platform-tenant")
    assert Tenant.objects.get(id="platform").status == "active"
    assert ApiKey.objects.filter(tenant_id="platform", status="active").count() == 1


def test_lists_are_filtered_and_paged(world: World, clock: Clock) -> None:
    clock.advance(seconds=1)
    world.admin.iam("tenants/create", id="initech", name="Initech").data  # noqa: B018
    world.admin.iam("tenants/suspend", id="globex").data  # noqa: B018
    first = world.admin.iam("tenants/list", limit=3).data
    assert first["tenants"][0]["id"] == "initech"
    second = world.admin.iam("tenants/list", limit=3, cursor=first["nextCursor"]).data
    assert {t["id"] for t in first["tenants"] + second["tenants"]} == {"platform", "acme", "globex", "initech"}
    suspended = world.admin.iam("tenants/list", status="suspended").data["tenants"]
    assert [t["id"] for t in suspended] == ["globex"]
    world.admin.iam("tenants/list", cursor="no-such-tenant").refused_at("cursor")
