"""Create: every refusal has its code, reason and field, and leaves nothing behind but what its clause names."""

from typing import Any

import pytest

from iam.models import Decision
from reservations.models import Reservation
from tests.reservations.conftest import event_types
from tests.support.world import HOUR, World, request

POLICY = """
@id("not-that-long")
forbid (principal, action == Compute::Action::"compute:reservations:create", resource)
when { resource.durationHours > 24 };
"""


def wrong(pool: str, clock, **changed: Any) -> dict[str, Any]:
    """A valid request with one thing changed; None takes a member out."""
    asked = request(pool) | changed
    return {name: value for name, value in asked.items() if value is not None}


@pytest.mark.clause("CRE-9", "neither owned nor offered")
@pytest.mark.clause("API-5", "another tenant's object is NOT_FOUND")
def test_a_pool_of_others_is_not_found(world: World, left):
    pool = world.pool()
    there = world.ann.api("reservations/create", **request(pool))
    nowhere = world.ann.api("reservations/create", **request("pool_none"))
    assert {k: v for k, v in there.refused("NOT_FOUND").items() if k != "requestId"} == {
        k: v for k, v in nowhere.refused("NOT_FOUND").items() if k != "requestId"
    }
    assert left() == {}


INPUTS = [
    pytest.param({"devices": {"class": "mig", "count": 1, "profile": "1g.10gb"}}, "devices.class", id="class"),
    pytest.param({"devices": {"class": "gpu", "count": 1, "sharing": "mps"}}, "devices.sharing", id="sharing"),
    pytest.param(
        {"devices": {"class": "gpu", "count": 1, "profile": "1g.10gb"}}, "devices.profile", id="profile for gpu"
    ),
    pytest.param({"devices": {"class": "mig", "count": 1}}, "devices.profile", id="no profile for mig"),
    pytest.param({"devices": {"class": "gpu", "count": 0}}, "devices.count", id="no devices"),
    pytest.param({"devices": {"class": "gpu", "count": 4097}}, "devices.count", id="too many devices"),
    pytest.param({"devices": {"class": "gpu", "count": 1.5}}, "devices.count", id="half a device"),
    pytest.param({"devices": {"class": "gpu", "count": True}}, "devices.count", id="true is no number"),
    pytest.param({"devices": {"class": "gpu", "count": "1"}}, "devices.count", id="text is no number"),
    pytest.param({"devices": {"class": "gpu", "count": 4096}, "nodes": 17}, "nodes", id="a gang of too many devices"),
    pytest.param({"devices": None}, "devices", id="no devices given"),
    pytest.param({"nodes": 0}, "nodes", id="no node"),
    pytest.param({"idempotencyKey": None}, "idempotencyKey", id="no key"),
    pytest.param({"idempotencyKey": "with space"}, "idempotencyKey", id="a key that cannot be seen"),
    pytest.param({"idempotencyKey": "k" * 129}, "idempotencyKey", id="a key that is too long"),
    pytest.param({"durationSeconds": None}, "endsAt", id="no end"),
    pytest.param({"endsAt": 9_000_000_000_000}, "endsAt", id="two ends"),
    pytest.param({"durationSeconds": 0}, "durationSeconds", id="empty window"),
    pytest.param({"durationSeconds": 720 * 3600 + 1}, "durationSeconds", id="over the pool's hours"),
    pytest.param({"priority": 101}, "priority", id="priority out of range"),
    pytest.param(
        {"priority": 51},
        "priority",
        id="over the offer's priority",
        marks=pytest.mark.clause("CRE-10", "a priority over the offer's"),
    ),
    pytest.param({"leaseSeconds": 29}, "leaseSeconds", id="lease too short"),
    pytest.param({"name": "n" * 129}, "name", id="long name"),
    pytest.param({"name": "bell\u0007"}, "name", id="control in a name"),
    pytest.param({"labels": {f"k{i}": "v" for i in range(33)}}, "labels", id="too many labels"),
    pytest.param({"labels": {"with space": "v"}}, "labels.with space", id="label name"),
    pytest.param({"labels": {"k": "v" * 256}}, "labels.k", id="label value"),
    pytest.param({"labels": {"k": 1}}, "labels.k", id="label of another type"),
    pytest.param({"wait": {"timeoutMs": 30_001}}, "wait.timeoutMs", id="wait too long"),
    pytest.param({"spot": "yes"}, "spot", id="spot is a boolean"),
    pytest.param({"color": "red"}, "color", id="unknown field"),
    pytest.param(
        {"binding": "node", "resources": {}},
        "resources",
        id="node binding with resources",
        marks=pytest.mark.clause("CRE-10", "binding node together with resources, also {}"),
    ),
    pytest.param({"binding": "kubernetes"}, "binding", id="kubernetes without the policy"),
    pytest.param({"maxCost": "1e3"}, "maxCost", id="cost is decimal text"),
]


@pytest.mark.clause("CRE-10", "differs from the pool, out of its limits, or malformed")
@pytest.mark.parametrize(("changed", "path"), INPUTS)
def test_a_wrong_field_is_named_and_leaves_nothing(world: World, pool: str, clock, left, changed, path: str):
    answer = world.ann.api("reservations/create", **wrong(pool, clock, **changed))
    assert answer.refused_at(path)
    assert left() == {}


@pytest.mark.clause("CRE-10", "an empty, past or far window")
@pytest.mark.parametrize(
    ("changed", "path"),
    [
        pytest.param({"startsAt": -60_001}, "startsAt", id="older than a minute"),
        pytest.param({"startsAt": 90 * 24 * HOUR + 1}, "startsAt", id="too far ahead"),
        pytest.param({"durationSeconds": None, "endsAt": 0}, "endsAt", id="ended"),
        pytest.param({"startBefore": 0}, "startBefore", id="can never start"),
        pytest.param({"startsAt": 2 * HOUR, "startBefore": 2 * HOUR}, "startBefore", id="start after the last start"),
        pytest.param({"durationSeconds": None, "startsAt": HOUR, "endsAt": HOUR}, "endsAt", id="empty"),
    ],
)
def test_a_wrong_window_is_refused(world: World, pool: str, clock, left, changed, path: str):
    times = {"startsAt", "endsAt", "startBefore"}
    moved = {k: v + clock.now if k in times else v for k, v in changed.items()}
    assert world.ann.api("reservations/create", **wrong(pool, clock, **moved)).refused_at(path)
    assert left() == {}


@pytest.mark.clause("CRE-10", "a startsAt up to 60 s past means now")
def test_a_start_just_past_means_now(world: World, pool: str, clock):
    made = world.ann.api("reservations/create", **request(pool, startsAt=clock.now - 60_000)).data["reservation"]
    assert made["startsAt"] == clock.now


@pytest.mark.clause("CRE-10", "binding node and the pool has no tenantRoot")
def test_node_binding_needs_a_tenant_root(world: World, left):
    pool = world.offered_pool(policy={})
    before = left()
    answer = world.ann.api("reservations/create", **request(pool, binding="node"))
    assert "tenantRoot" in answer.refused_at("binding")
    assert left() == before


@pytest.mark.clause("CRE-11", "any other binding")
@pytest.mark.clause("CRE-21", "INVALID_INPUT before UNSUPPORTED")
def test_an_unknown_binding_is_unsupported(world: World, pool: str, left):
    world.ann.api("reservations/create", **request(pool, binding="docker")).refused("UNSUPPORTED", field="binding")
    world.ann.api("reservations/create", **request(pool, binding="docker", nodes=0)).refused_at("nodes")
    assert left() == {}


@pytest.mark.clause("API-4", "every wrong field at once")
def test_all_wrong_fields_are_named_at_once(world: World, pool: str):
    asked = request(pool, nodes=0, spot=1, labels={"k": 1}) | {"devices": {"class": "cpu", "count": 0}, "extra": 1}
    paths = [
        i["path"] for i in world.ann.api("reservations/create", **asked).refused("INVALID_INPUT")["details"]["issues"]
    ]
    assert paths == ["devices.class", "devices.count", "extra", "labels.k", "nodes", "spot"]


@pytest.mark.clause("CRE-12", "the charge does not fit")
@pytest.mark.clause("CRE-12", "the draft stays, so the same key can be retried")
@pytest.mark.clause("CRE-20", "an answered draft rests until its key is retried")
def test_over_quota_the_draft_stays_and_the_key_can_be_retried(world: World, left):
    pool = world.offered_pool(quota=4)
    before = left()
    asked = request(pool, 5)
    error = world.ann.api("reservations/create", **asked).refused("QUOTA_EXCEEDED")
    assert error["details"] == {"resource": "gpu", "requested": 5, "used": 0, "max": 4}
    assert {k: v - before.get(k, 0) for k, v in left().items() if v != before.get(k, 0)} == {
        "drafts": 1,
        "decisions": 1,
    }
    world.admin("quotas/set", poolId=pool, toTenantId="acme", resource="gpu", max=5)
    assert Reservation.objects.get(idempotency_key=asked["idempotencyKey"]).state == "draft"
    made = world.ann.api("reservations/create", **asked).data["reservation"]
    assert made["state"] == "placed"
    assert event_types(made["id"]) == ["placed"]


@pytest.mark.clause("CRE-12", "a missing row grants 0")
def test_without_a_quota_row_nothing_is_granted(world: World):
    pool = world.pool()
    world.admin("pools/offer", poolId=pool, toTenantId="acme", resources={})
    world.node(pool)
    error = world.ann.api("reservations/create", **request(pool)).refused("QUOTA_EXCEEDED")
    assert error["details"] == {"resource": "gpu", "requested": 1, "used": 0, "max": 0}


@pytest.mark.clause("CRE-5", "a refused key stays refused, whatever policies say later")
@pytest.mark.clause("CRE-1", "only an allowed draft is charged and placed")
def test_a_denied_key_stays_denied(world: World, pool: str, left):
    world.acme.api.iam("policies/put", name="limits", text=POLICY)
    asked = request(pool, durationSeconds=25 * 3600)
    world.ann.api("reservations/create", **asked).refused("ACCESS_DENIED")
    assert left() == {"drafts": 1, "decisions": 1}
    assert Decision.objects.get(action="compute:reservations:create").outcome == "deny"
    world.acme.api.iam("policies/delete", name="limits")
    world.ann.api("reservations/create", **asked).refused("ACCESS_DENIED")
    assert left() == {"drafts": 1, "decisions": 1}
    different = asked | {"durationSeconds": 3600}
    world.ann.api("reservations/create", **different).refused("CONFLICT")
    assert world.ann.api("reservations/create", **request(pool, durationSeconds=25 * 3600)).data


@pytest.mark.clause("CRE-1", "a viewer may not reserve")
def test_without_a_permit_it_is_denied(world: World, pool: str, left):
    world.vic.api("reservations/create", **request(pool)).refused("ACCESS_DENIED")
    assert left() == {"drafts": 1, "decisions": 1}


@pytest.mark.clause("CRE-13", "an estimated cost above maxCost")
def test_a_cost_above_the_callers_limit_is_refused(world: World):
    pool = world.offered_pool(policy={"price": {"perDeviceHour": "2.20", "currency": "EUR"}})
    asked = request(pool, 2, maxCost="4.39")
    error = world.ann.api("reservations/create", **asked).refused("SPEND_LIMIT_REACHED", reason="max-cost")
    assert error["details"]["estimatedCost"] == "4.40"
    assert world.ann.api("reservations/create", **request(pool, 2, maxCost="4.4")).data


@pytest.mark.clause("API-5", "a credential of another tenant")
def test_another_tenants_credential_is_denied(world: World, pool: str, left):
    world.gil.api("reservations/create", tenantId="acme", **request(pool)).refused("ACCESS_DENIED")
    assert left() == {"decisions": 1}


@pytest.mark.clause("CRE-21", "credential before body")
def test_a_bad_token_comes_before_a_bad_body(world: World, pool: str, left):
    world.ann.api.token = "cpk_nonsense"
    assert world.ann.api.raw("/api/compute/reservations/create", "{").error["code"] == "UNAUTHENTICATED"
    assert left() == {}


@pytest.mark.clause("CRE-21", "body and shape before tenant")
def test_a_bad_shape_comes_before_the_tenant(world: World, pool: str):
    world.gil.api("reservations/create", tenantId="acme", poolId=pool).refused("INVALID_INPUT")


@pytest.mark.clause("CRE-21", "the pool is NOT_FOUND before anything is said about it")
def test_a_hidden_pool_says_nothing_about_its_class(world: World, clock):
    pool = world.pool()
    asked = wrong(pool, clock, devices={"class": "slot", "count": 1}, startsAt=1)
    world.ann.api("reservations/create", **asked).refused("NOT_FOUND")
