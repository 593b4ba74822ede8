"""Tenants apart: another tenant is denied, and what is another's is exactly what does not exist."""

from typing import Any

import pytest

from computeplatform.api.methods import methods
from computeplatform.urls import DECLARING
from tests.kernel.conftest import rows, stored
from tests.support.api import Answer
from tests.support.confirming import must_confirm
from tests.support.world import World, fresh_key, request

assert DECLARING  # imported: every app has declared its methods


def faceless(answer: Answer) -> dict[str, Any]:
    """What a caller can learn from a refusal, without what differs from call to call."""
    error = {k: v for k, v in answer.error.items() if k != "requestId"}
    return {"status": answer.status, **error}


LATE = 4_102_444_800_000  # 2100-01-01
# Enough of an input for each method to get past its fields.
INPUTS: dict[str, dict[str, Any]] = {
    "events/list": {},
    "nodes/assign": {"nodeId": "node_x"},
    "nodes/cancelMaintenance": {"nodeId": "node_x", "maintenanceId": "mnt_x"},
    "nodes/cordon": {"nodeId": "node_x"},
    "nodes/drain": {"nodeId": "node_x"},
    "nodes/get": {"nodeId": "node_x"},
    "nodes/list": {},
    "nodes/maintenance": {"nodeId": "node_x", "from": LATE, "until": LATE + 1},
    "nodes/remove": {"nodeId": "node_x"},
    "nodes/register": {"name": "n", "positions": 8},
    "nodes/sync": {
        "nodeId": "node_x", "bootId": "b", "sequence": 1,
        "software": {"version": "1"}, "devices": [], "allocations": [],
    },
    "nodes/uncordon": {"nodeId": "node_x"},
    "pools/archive": {"poolId": "pool_x"},
    "pools/availability": {
        "poolId": "pool_x", "devices": {"class": "gpu", "count": 1}, "durationSeconds": 1,
        "from": LATE, "to": LATE + 1_000,
    },
    "pools/create": {"name": "p", "region": "eu", "gpuModel": "h100", "deviceClass": "gpu"},
    "pools/get": {"poolId": "pool_x"},
    "pools/list": {},
    "pools/offer": {"poolId": "pool_x", "toTenantId": "acme", "resources": {"gpu": 1}},
    "pools/update": {"poolId": "pool_x", "name": "q"},
    "pools/withdrawOffer": {"poolId": "pool_x", "toTenantId": "acme"},
    "quotas/list": {},
    "quotas/set": {"poolId": "pool_x", "toTenantId": "acme", "resource": "gpu", "max": 1},
    "reservations/cancel": {"reservationId": "res_x"},
    "reservations/create": request("pool_x"),
    "reservations/extend": {"reservationId": "res_x", "by": 1},
    "reservations/get": {"reservationId": "res_x"},
    "reservations/list": {},
    "reservations/release": {"reservationId": "res_x"},
    "reservations/renew": {"reservationId": "res_x"},
    "agents/create": {"name": "n"},
    "agents/list": {},
    "agents/resume": {"agentId": "agt_x"},
    "agents/suspend": {"agentId": "agt_x"},
    "agents/suspendAll": {},
    "decisions/explain": {"decisionId": "dec_x"},
    "decisions/list": {},
    "delegations/assume": {"delegationId": "dlg_x"},
    "delegations/grant": {"agentId": "agt_x", "scopes": ["*"]},
    "delegations/list": {},
    "delegations/revoke": {"delegationId": "dlg_x"},
    "confirmations/decide": {"confirmationId": "cnf_x", "approve": True},
    "confirmations/list": {},
    "keys/create": {"principalId": "usr_x"},
    "keys/get": {"keyId": "key_x"},
    "keys/list": {},
    "keys/revoke": {"keyId": "key_x"},
    "keys/rotate": {"keyId": "key_x"},
    "policies/delete": {"name": "p"},
    "policies/get": {"name": "p"},
    "policies/list": {},
    "policies/put": {"name": "p", "text": "permit(principal, action, resource);"},
    "policies/test": {"text": "permit(principal, action, resource);"},
    "policies/validate": {"text": "permit(principal, action, resource);"},
    "principals/create": {"kind": "user", "name": "n"},
    "principals/get": {"principalId": "usr_x"},
    "principals/list": {},
    "principals/resume": {"principalId": "usr_x"},
    "principals/suspend": {"principalId": "usr_x"},
    "principals/update": {"principalId": "usr_x", "name": "m"},
    "tenants/create": {"id": "new", "name": "n"},
    "tenants/list": {},
    "tenants/resume": {"id": "acme"},
    "tenants/suspend": {"id": "acme"},
}  # fmt: skip


@pytest.mark.clause("API-5", "a credential of another tenant")
def test_every_method_is_in_the_table():
    assert set(INPUTS) == {m.id for m in methods() if "tenantId" in m.input().fields}


@pytest.mark.clause("API-5", "a credential of another tenant")
def test_a_credential_of_another_tenant_is_denied_and_learns_nothing(world: World):
    world.acme.api("pools/list").data  # noqa: B018 - the use of the key is noted once a minute
    before = {k: v for k, v in stored().items() if k != "iam_decision"}
    for method in methods():
        if method.id not in INPUTS:
            continue
        # The strongest of another tenant, in this tenant; and in one that does not exist.
        refused = [
            world.acme.api(method.id, service=method.service, **INPUTS[method.id] | {"tenantId": tenant})
            for tenant in ("globex", "platform", "no-such-tenant")
        ]
        assert [answer.error["code"] for answer in refused] == ["ACCESS_DENIED"] * 3, method.id
        assert len({str(faceless(answer)) for answer in refused}) == 1, method.id
        assert "details" not in refused[0].error
    assert {k: v for k, v in stored().items() if k != "iam_decision"} == before


@pytest.mark.clause("API-5", "a credential of another tenant")
def test_even_the_platform_is_no_other_tenant(world: World):
    world.admin("pools/list", tenantId="acme").refused("ACCESS_DENIED")
    world.admin.iam("principals/list", tenantId="acme").refused("ACCESS_DENIED")


@pytest.fixture
def theirs(world: World) -> dict[str, str]:
    """What globex has, by the name of the input that would take its id."""
    pool = world.pool(owner=world.globex.api)
    offered = world.offered_pool()
    reservation = world.gil.api("reservations/create", **request(offered)).data["reservation"]["id"]
    key = world.globex.api.iam("keys/create", principalId=world.gil.id).data["key"]["id"]
    robot = world.agent(world.gil)
    session = world.session(robot, world.gil, confirm=["compute:reservations:create"])
    confirmation = must_confirm(session("reservations/create", **request(offered)))["confirmationId"]
    world.globex.api.iam("policies/put", name="secret", text="permit(principal, action, resource);").data  # noqa: B018
    return {
        "poolId": pool,
        "reservationId": reservation,
        "principalId": world.gil.id,
        "keyId": key,
        "agentId": robot.id,
        "delegationId": session.delegation_id,
        "confirmationId": confirmation,
        "name": "secret",
        "nodeId": world.nodes[0].id,
    }


# The methods that take the id of an object, and which input it is.
NAMING = [
    (m, field)
    for m in methods()
    for field, placeholder in (
        *(("poolId", "pool_x"), ("reservationId", "res_x"), ("principalId", "usr_x"), ("keyId", "key_x")),
        *(("nodeId", "node_x"), ("name", "p"), ("agentId", "agt_x"), ("delegationId", "dlg_x")),
        ("confirmationId", "cnf_x"),
    )
    if INPUTS.get(m.id, {}).get(field) == placeholder and m.id not in ("policies/put", "pools/create")
]


@pytest.mark.clause("API-5", "an id of another tenant's object")
def test_what_is_anothers_is_exactly_what_does_not_exist(world: World, theirs: dict[str, str]):
    assert len(NAMING) > 20
    for method, field in NAMING:
        before, given = stored(), INPUTS[method.id]
        there = world.acme.api(method.id, service=method.service, **given | {field: theirs[field]})
        absent = world.acme.api(method.id, service=method.service, **given | {field: "nothing-there"})
        assert faceless(there) == faceless(absent), method.id
        assert there.error["code"] == "NOT_FOUND", method.id
        if "idempotencyKey" in method.input().fields:
            again = given | {field: theirs[field], "idempotencyKey": fresh_key()}
            assert faceless(world.acme.api(method.id, service=method.service, **again)) == faceless(absent), method.id
        assert stored() == before, method.id


@pytest.mark.clause("API-5", "a pool that is offered is visible")
def test_an_offered_pool_is_seen_and_not_administered(world: World):
    pool = world.pool(owner=world.globex.api)
    world.acme.api("pools/get", poolId=pool).refused("NOT_FOUND")
    assert world.acme.api("pools/list").data["pools"] == []
    world.offer(pool, "acme", owner=world.globex.api)
    assert world.acme.api("pools/get", poolId=pool).data["pool"]["id"] == pool
    assert [p["id"] for p in world.acme.api("pools/list").data["pools"]] == [pool]
    world.acme.api("pools/offer", poolId=pool, toTenantId="acme", resources={"gpu": 9}).refused("ACCESS_DENIED")
    world.acme.api("quotas/set", poolId=pool, toTenantId="acme", resource="gpu", max=9).refused("ACCESS_DENIED")


@pytest.mark.clause("API-5", "a caller without the permission")
def test_without_the_permission_what_exists_is_denied_and_what_does_not_is_not_found(world: World):
    world.vic.api.iam("principals/get", principalId=world.bob.id).refused("ACCESS_DENIED")
    world.vic.api.iam("principals/get", principalId="usr_nobody").refused("NOT_FOUND")


@pytest.mark.clause("API-5", "lists show the tenant's own")
def test_no_list_shows_what_is_anothers(world: World, theirs: dict[str, str]):
    shown = {
        "reservations": world.acme.api("reservations/list", scope="all").data["reservations"],
        "principals": world.acme.api.iam("principals/list").data["principals"],
        "keys": world.acme.api.iam("keys/list").data["keys"],
        "policies": world.acme.api.iam("policies/list").data["policies"],
    }
    assert shown["reservations"] == shown["policies"] == []
    assert {p["tenantId"] for p in shown["principals"]} == {k["tenantId"] for k in shown["keys"]} == {"acme"}
    assert theirs["poolId"] not in {p["id"] for p in world.acme.api("pools/list").data["pools"]}
    assert rows("SELECT count(*) FROM iam_policy WHERE tenant_id = 'globex'") == [(1,)]
