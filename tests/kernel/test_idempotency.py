"""The same key with the same request answers the stored object; secrets are shown once (API-11)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from django.test import Client

from tests.kernel.conftest import at_once, count, rows, stored
from tests.support.api import Answer, Api
from tests.support.world import World


@dataclass(frozen=True)
class Making:
    """A creating mutation: its input without a key, another input, where the object and the secret are."""

    method: str
    service: str
    table: str
    member: str
    secret: str | None
    inputs: Callable[[World], dict[str, Any]]
    other: dict[str, Any]

    def __call__(self, api: Api, world: World, **changed: Any) -> Answer:
        return api(self.method, service=self.service, **(self.inputs(world) | changed))


def admin_id(world: World) -> str:
    return str(world.admin.iam("session/whoami").data["principal"]["id"])


POOL = {"name": "h100", "region": "eu", "gpuModel": "h100", "deviceClass": "gpu"}
NODE = {"name": "n1", "positions": 8}
EVE = {"kind": "user", "name": "eve"}
MAKINGS = [
    Making("pools/create", "compute", "fleet_pool", "pool", None, lambda _: POOL, {"region": "us"}),
    Making("nodes/register", "compute", "fleet_node", "node", "token", lambda _: NODE, {"positions": 4}),
    Making("keys/create", "iam", "iam_apikey", "key", "token", lambda w: {"principalId": admin_id(w)}, {"name": "o"}),
    Making("principals/create", "iam", "iam_principal", "principal", None, lambda _: EVE, {"kind": "service"}),
]
every_making = pytest.mark.parametrize("making", MAKINGS, ids=lambda m: m.method)


@pytest.mark.clause("API-11", "same key, same request")
@every_making
def test_the_same_request_answers_the_stored_object(world: World, making: Making):
    before = count(making.table)
    first = making(world.admin, world, idempotencyKey="k").data
    left = stored()
    for _ in range(2):
        again = making(world.admin, world, idempotencyKey="k").data
        assert again == {k: v for k, v in first.items() if k != making.secret}
    assert count(making.table) == before + 1
    assert {k: v for k, v in stored().items() if k != "iam_decision"} == {
        k: v for k, v in left.items() if k != "iam_decision"
    }


@pytest.mark.clause("API-11", "a secret in the first answer only")
@every_making
def test_a_secret_is_in_the_first_answer_only_and_nowhere_in_the_database(world: World, making: Making):
    first = making(world.admin, world, idempotencyKey="k").data
    if making.secret is None:
        assert "token" not in first
        return
    assert making.secret in first
    assert making.secret not in making(world.admin, world, idempotencyKey="k").data
    for table in stored():
        assert rows(f"SELECT 1 FROM {table} AS t WHERE t::text LIKE %s", f"%{first[making.secret][12:]}%") == []


@pytest.mark.clause("API-11", "same key, another request")
@every_making
def test_another_request_with_the_key_is_a_conflict_and_changes_nothing(world: World, making: Making):
    first = making(world.admin, world, idempotencyKey="k").data
    before = stored()
    refused = making(world.admin, world, idempotencyKey="k", **making.other)
    refused.refused("CONFLICT", reason="idempotency-key-reused", id=first[making.member]["id"])
    after = stored()
    assert after.pop("iam_decision") - before.pop("iam_decision") in (0, 1)
    assert after == before
    assert making(world.admin, world, idempotencyKey="k").status == 200


@pytest.mark.clause("API-11", "same key, same request")
def test_defaults_spelled_out_are_the_same_request(world: World):
    first = world.admin("pools/create", **POOL, idempotencyKey="k").data
    body = (
        '{"idempotencyKey":"k","deviceClass":"gpu","gpuModel":"h100","region":"eu","name":"h100","tenantId":"platform"}'
    )
    assert world.admin.raw("/api/compute/pools/create", body).data == first
    made = world.acme.api.iam("keys/create", principalId=world.ann.id, idempotencyKey="k").data["key"]
    default = {"principalId": world.ann.id, "expiresInSeconds": 7776000}
    assert world.acme.api.iam("keys/create", **default, idempotencyKey="k").data["key"] == made


@pytest.mark.clause("API-11", "the stored object")
def test_a_repetition_answers_the_object_as_it_is_now(world: World):
    made = world.acme.api.iam("keys/create", principalId=world.ann.id, idempotencyKey="k").data["key"]
    world.acme.api.iam("keys/revoke", keyId=made["id"]).data  # noqa: B018
    again = world.acme.api.iam("keys/create", principalId=world.ann.id, idempotencyKey="k").data["key"]
    assert again == made | {"status": "revoked"}


@pytest.mark.clause("API-11", "a refused call leaves the key unused")
@pytest.mark.parametrize(
    ("broken", "code"),
    [
        ({"name": ""}, "INVALID_INPUT"),
        ({"deviceClass": "mig"}, "INVALID_INPUT"),
        ({"resources": {"slot": 1}}, "INVALID_INPUT"),
    ],
)
def test_a_refused_call_leaves_the_key_unused(world: World, broken: dict[str, Any], code: str):
    before = stored()
    world.admin("pools/create", **(POOL | broken), idempotencyKey="k").refused(code)
    after = stored()
    after["iam_decision"] = before["iam_decision"]
    assert after == before
    assert world.admin("pools/create", **POOL, idempotencyKey="k").status == 200


@pytest.mark.clause("API-11", "a refused call leaves the key unused")
def test_a_call_that_the_database_refuses_leaves_the_key_unused(world: World):
    world.admin("nodes/register", name="n1", positions=8).data  # noqa: B018
    world.admin("nodes/register", name="n1", positions=8, idempotencyKey="k").refused("CONFLICT")
    assert count("computeplatform_idempotencykey") == 0
    assert world.admin("nodes/register", name="n2", positions=8, idempotencyKey="k").data["token"]


@pytest.mark.clause("API-11", "a refused call leaves the key unused")
def test_a_denied_call_leaves_the_key_unused_and_a_permit_is_asked_each_time(world: World):
    world.ann.api("pools/create", **POOL, idempotencyKey="k").refused("ACCESS_DENIED")
    assert count("computeplatform_idempotencykey") == 0
    made = world.acme.api("pools/create", **POOL, idempotencyKey="k").data["pool"]
    assert made["tenantId"] == "acme"
    text = 'forbid(principal, action == Action::"compute:pools:create", resource);'
    if world.acme.api.iam("policies/put", name="stop", text=text).status == 200:
        world.acme.api("pools/create", **POOL, idempotencyKey="k").refused("ACCESS_DENIED")


@pytest.mark.clause("API-11", "keys of two callers, tenants or methods are apart")
def test_a_key_belongs_to_its_caller_tenant_and_method(world: World):
    second = world.person(world.acme, "second", "tenant-admin")
    made = {
        world.acme.api("pools/create", **POOL, idempotencyKey="k").data["pool"]["id"],
        second.api("pools/create", **POOL, idempotencyKey="k").data["pool"]["id"],
        world.globex.api("pools/create", **POOL, idempotencyKey="k").data["pool"]["id"],
    }
    assert len(made) == 3
    world.acme.api.iam("principals/create", kind="user", name="x", idempotencyKey="k").data  # noqa: B018
    other_key = world.acme.api.iam("keys/create", principalId=world.acme.id).data["token"]
    assert Api(other_key, "acme")("pools/create", **POOL, idempotencyKey="k").data["pool"]["id"] in made


@pytest.mark.django_db(transaction=True)
@pytest.mark.clause("API-11", "many calls at once make one object")
@every_making
def test_many_calls_at_once_make_one_object(world: World, making: Making):
    before = count(making.table)

    def call() -> Answer:
        api = Api(world.admin.token, "platform")
        api.client = Client()
        return making(api, world, idempotencyKey="k")

    answers = at_once(*[call] * 6)
    objects = [answer.data[making.member] for answer in answers]
    assert all(one == objects[0] for one in objects)
    if making.secret:
        assert sum(making.secret in answer.data for answer in answers) == 1
    assert count(making.table) == before + 1
    assert count("computeplatform_idempotencykey") == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.clause("API-11", "many calls at once make one object")
def test_of_two_requests_at_once_with_one_key_one_wins_and_the_other_conflicts(world: World):
    def call(region: str) -> Callable[[], Answer]:
        return lambda: Api(world.admin.token, "platform")(
            "pools/create", **(POOL | {"region": region}), idempotencyKey="k"
        )

    answers = at_once(*(call(region) for region in ("eu", "us", "eu", "us")))
    statuses = sorted(answer.status for answer in answers)
    assert statuses == [200, 200, 409, 409]
    assert len({answer.data["pool"]["id"] for answer in answers if answer.status == 200}) == 1
    assert count("fleet_pool") == 1


@pytest.mark.clause("API-11", "without a key")
def test_without_a_key_every_call_makes_another(world: World):
    made = {world.admin("pools/create", **POOL).data["pool"]["id"] for _ in range(2)}
    assert len(made) == 2
    assert count("computeplatform_idempotencykey") == 0
