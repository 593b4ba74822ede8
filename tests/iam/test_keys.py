"""``iam/keys/*`` (IAM-API §3, §4)."""

from typing import Any

import pytest

from iam.models import ApiKey, Decision
from tests.iam.support import tokens_of
from tests.support.api import Api
from tests.support.clock import Clock
from tests.support.world import World, fresh_key

DAY = 86_400


def key_of(world: World, principal_id: str) -> str:
    return ApiKey.objects.get(principal_id=principal_id).id


def scoped(world: World, *scopes: str) -> Api:
    """The administrator of acme, with a key that is good for these alone."""
    made = world.acme.api.iam("keys/create", principalId=world.acme.id, scopes=list(scopes)).data
    return Api(made["token"], "acme")


@pytest.mark.clause("API-2", "shown once")
def test_a_new_key_shows_its_token_once(world: World, clock: Clock) -> None:
    fields = {"name": "laptop", "scopes": ["compute:*"], "requestsPerMinute": 10, "expiresInSeconds": DAY}
    made = world.acme.api.iam("keys/create", principalId=world.ann.id, **fields).data
    key = made["key"]
    assert key == {
        "id": key["id"],
        "tenantId": "acme",
        "principalId": world.ann.id,
        "name": "laptop",
        "prefix": made["token"][:12],
        "scopes": ["compute:*"],
        "requestsPerMinute": 10,
        "status": "active",
        "createdAt": clock.now,
        "createdBy": world.acme.id,
        "expiresAt": clock.now + DAY * 1_000,
    }
    assert world.acme.api.iam("keys/get", keyId=key["id"]).data == {"key": key}
    assert Api(made["token"], "acme").iam("session/whoami").data["scopes"] == ["compute:*"]


@pytest.mark.clause("API-11", "a secret in the first answer only")
def test_the_same_key_answers_without_the_token(world: World) -> None:
    fields = {"principalId": world.ann.id, "idempotencyKey": fresh_key()}
    first = world.acme.api.iam("keys/create", **fields).data
    second = world.acme.api.iam("keys/create", **fields).data
    assert second == {"key": first["key"]}
    world.acme.api.iam("keys/create", name="other", **fields).refused("CONFLICT")
    assert ApiKey.objects.filter(principal_id=world.ann.id).count() == 2


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"scopes": []}, "scopes"),
        ({"scopes": ["compute:*"] * 2}, "scopes"),
        ({"scopes": ["iam:*", "compute:reservation:*"]}, "scopes.1"),
        ({"scopes": ["compute:reservations:creat"]}, "scopes.0"),
        ({"scopes": ["iam:keys:read"] * 65}, "scopes"),
        ({"expiresInSeconds": 0}, "expiresInSeconds"),
        ({"expiresInSeconds": 31_536_001}, "expiresInSeconds"),
        ({"requestsPerMinute": 0}, "requestsPerMinute"),
        ({"requestsPerMinute": 600_001}, "requestsPerMinute"),
        ({"principalId": "x" * 65}, "principalId"),
    ],
)
def test_wrong_fields_are_named(world: World, fields: dict[str, Any], path: str) -> None:
    before = ApiKey.objects.count()
    world.acme.api.iam("keys/create", **({"principalId": world.ann.id} | fields)).refused_at(path)
    assert ApiKey.objects.count() == before


def test_a_suspended_principal_gets_no_key(world: World) -> None:
    world.acme.api.iam("principals/suspend", principalId=world.ann.id).data  # noqa: B018
    answer = world.acme.api.iam("keys/create", principalId=world.ann.id)
    answer.refused("INVALID_STATE", reason="principal-suspended")
    assert ApiKey.objects.filter(principal_id=world.ann.id).count() == 1


@pytest.mark.clause("IAM-1", "key scopes are a ceiling")
def test_scopes_bound_what_policies_permit(world: World) -> None:
    reader = scoped(world, "iam:*:read")
    assert reader.iam("principals/list").status == 200
    reader.iam("principals/create", kind="user", name="x").refused("ACCESS_DENIED")
    assert Decision.objects.get(action="iam:principals:create", outcome="deny").reason == "key-scope"
    # A ceiling grants nothing.
    made = world.acme.api.iam("keys/create", principalId=world.ann.id, scopes=["*"]).data
    Api(made["token"], "acme").iam("principals/list").refused("ACCESS_DENIED")


@pytest.mark.clause("IAM-1", "a minted key is never wider")
def test_a_scoped_key_mints_nothing_wider(world: World) -> None:
    minter = scoped(world, "iam:keys:*", "compute:reservations:*")
    before = ApiKey.objects.count()
    for wider in (["*"], ["compute:*"], ["iam:keys:read", "iam:principals:read"]):
        answer = minter.iam("keys/create", principalId=world.ann.id, scopes=wider)
        assert answer.refused("ACCESS_DENIED").keys() == {"code", "message", "requestId", "fix", "docs"}
    assert ApiKey.objects.count() == before
    denied = Decision.objects.filter(action="iam:keys:create", outcome="deny")
    assert {d.reason for d in denied} == {"key-scope"}
    assert denied.count() == 3
    narrower = minter.iam("keys/create", principalId=world.ann.id, scopes=["compute:reservations:read"]).data["key"]
    assert narrower["scopes"] == ["compute:reservations:read"]
    # Left out, they are the caller's.
    same = minter.iam("keys/create", principalId=world.ann.id).data["key"]
    assert same["scopes"] == ["iam:keys:*", "compute:reservations:*"]


@pytest.mark.clause("IAM-1", "a minted key is never wider")
def test_a_scoped_key_rotates_nothing_wider(world: World) -> None:
    minter = scoped(world, "iam:keys:*")
    minter.iam("keys/rotate", keyId=key_of(world, world.ann.id)).refused("ACCESS_DENIED")
    assert ApiKey.objects.filter(principal_id=world.ann.id).count() == 1
    itself = minter.iam("session/whoami").data["credential"]["id"]
    assert minter.iam("keys/rotate", keyId=itself).data["key"]["scopes"] == ["iam:keys:*"]


@pytest.mark.clause("IAM-7", "every denial, with its reason")
def test_who_may_not_at_all_is_not_refused_for_the_scopes(world: World) -> None:
    ann = Api(world.acme.api.iam("keys/create", principalId=world.ann.id, scopes=["iam:keys:*"]).data["token"], "acme")
    ann.iam("keys/create", principalId=world.bob.id, scopes=["*"]).refused("ACCESS_DENIED")
    denied = Decision.objects.get(outcome="deny")
    assert (denied.reason, denied.policies) == ("no-permit", [])


@pytest.mark.clause("IAM-8", "rotate with an overlap")
def test_rotation_leaves_no_gap(world: World, clock: Clock) -> None:
    key_id = key_of(world, world.ann.id)
    rotated = world.ann.api.iam("keys/rotate", keyId=key_id, overlapSeconds=60).data
    new, previous = rotated["key"], rotated["previous"]
    assert previous["id"] == key_id
    assert previous["replacedBy"] == new["id"]
    assert previous["expiresAt"] == clock.now + 60_000
    assert (new["scopes"], new["principalId"]) == (previous["scopes"], world.ann.id)
    assert new["expiresAt"] == clock.now + 7_776_000_000
    fresh = Api(rotated["token"], "acme")
    assert world.ann.api.iam("session/whoami").status == fresh.iam("session/whoami").status == 200
    clock.advance(seconds=60)
    world.ann.api.iam("session/whoami").refused("UNAUTHENTICATED")
    assert fresh.iam("session/whoami").status == 200


def test_rotation_never_lengthens_the_old_key(world: World, clock: Clock) -> None:
    short = world.person(world.acme, "short", expiresInSeconds=30, requestsPerMinute=7)
    data = short.api.iam("keys/rotate", keyId=key_of(world, short.id), expiresInSeconds=DAY).data
    assert data["previous"]["expiresAt"] == clock.now + 30_000
    assert (data["key"]["expiresAt"], data["key"]["requestsPerMinute"]) == (clock.now + DAY * 1_000, 7)


def test_rotation_is_replayed_without_the_token(world: World) -> None:
    fields = {"keyId": key_of(world, world.ann.id), "idempotencyKey": fresh_key()}
    first = world.acme.api.iam("keys/rotate", **fields).data
    assert world.acme.api.iam("keys/rotate", **fields).data == {k: v for k, v in first.items() if k != "token"}
    assert ApiKey.objects.filter(principal_id=world.ann.id).count() == 2


@pytest.mark.clause("API-11", "a key that was rotated again since")
def test_rotation_is_replayed_after_another_one(world: World) -> None:
    key_id = key_of(world, world.ann.id)
    fields = {"keyId": key_id, "idempotencyKey": fresh_key()}
    first = world.acme.api.iam("keys/rotate", **fields).data["key"]
    second = world.acme.api.iam("keys/rotate", keyId=key_id).data["key"]
    again = world.acme.api.iam("keys/rotate", **fields).data
    assert (again["key"], again["previous"]["id"]) == (first, key_id)
    assert again["previous"]["replacedBy"] == second["id"]


def test_only_an_active_key_is_rotated(world: World, clock: Clock) -> None:
    key_id = key_of(world, world.ann.id)
    world.acme.api.iam("keys/revoke", keyId=key_id).data  # noqa: B018
    world.acme.api.iam("keys/rotate", keyId=key_id).refused("INVALID_STATE", reason="key-revoked")
    short = world.person(world.acme, "short", expiresInSeconds=30)
    clock.advance(seconds=30)
    answer = world.acme.api.iam("keys/rotate", keyId=key_of(world, short.id))
    answer.refused("INVALID_STATE", reason="key-expired")
    assert ApiKey.objects.filter(principal_id__in=[world.ann.id, short.id]).count() == 2


@pytest.mark.parametrize("overlap", [-1, 604_801])
def test_overlap_has_a_range(world: World, overlap: int) -> None:
    answer = world.acme.api.iam("keys/rotate", keyId=key_of(world, world.ann.id), overlapSeconds=overlap)
    answer.refused_at("overlapSeconds")


def test_revoking_twice_changes_nothing(world: World, clock: Clock) -> None:
    key_id = key_of(world, world.ann.id)
    first = world.acme.api.iam("keys/revoke", keyId=key_id, reason="lost").data
    assert first["key"]["status"] == "revoked"
    clock.advance(seconds=5)
    assert world.acme.api.iam("keys/revoke", keyId=key_id, reason="again").data == first
    stored = ApiKey.objects.get(id=key_id)
    assert (stored.revoke_reason, stored.revoked_by) == ("lost", world.acme.id)


def test_owners_see_and_end_their_own_keys_and_no_others(world: World) -> None:
    own, other = key_of(world, world.ann.id), key_of(world, world.bob.id)
    assert world.ann.api.iam("keys/get", keyId=own).status == 200
    assert [k["id"] for k in world.ann.api.iam("keys/list", principalId=world.ann.id).data["keys"]] == [own]
    world.ann.api.iam("keys/list").refused("ACCESS_DENIED")
    world.ann.api.iam("keys/create", principalId=world.ann.id).refused("ACCESS_DENIED")
    for method in ("get", "rotate", "revoke"):
        world.ann.api.iam(f"keys/{method}", keyId=other).refused("ACCESS_DENIED")
    world.ann.api.iam("keys/list", principalId=world.bob.id).refused("ACCESS_DENIED")
    assert ApiKey.objects.get(id=other).status == "active"
    assert world.ann.api.iam("keys/revoke", keyId=own).status == 200


@pytest.mark.clause("API-5", "another tenant's object is not there")
def test_foreign_ids_are_unknown_ids(world: World) -> None:
    foreign = key_of(world, world.gil.id)
    for method in ("get", "rotate", "revoke"):
        first = world.acme.api.iam(f"keys/{method}", keyId=foreign).refused("NOT_FOUND")
        second = world.acme.api.iam(f"keys/{method}", keyId="key_nothing").refused("NOT_FOUND")
        assert first | {"requestId": ""} == second | {"requestId": ""}
    for method in ("create", "list"):
        world.acme.api.iam(f"keys/{method}", principalId=world.gil.id).refused("NOT_FOUND")
    assert ApiKey.objects.get(id=foreign).status == "active"


def test_lists_are_filtered_and_paged(world: World, clock: Clock) -> None:
    short = world.person(world.acme, "short", expiresInSeconds=30)
    clock.advance(seconds=30)
    world.acme.api.iam("keys/revoke", keyId=key_of(world, world.bob.id)).data  # noqa: B018

    def listed(**filters: Any) -> list[str]:
        return [k["principalId"] for k in world.acme.api.iam("keys/list", **filters).data["keys"]]

    assert listed(status="expired") == [short.id]
    assert listed(status="revoked") == [world.bob.id]
    assert sorted(listed(status="active")) == sorted([world.acme.id, world.ann.id, world.vic.id])
    first = world.acme.api.iam("keys/list", limit=3).data
    second = world.acme.api.iam("keys/list", limit=3, cursor=first["nextCursor"]).data
    assert [k["id"] for k in first["keys"] + second["keys"]] == [
        k["id"] for k in world.acme.api.iam("keys/list").data["keys"]
    ]
    assert "nextCursor" not in second
    for cursor in ("key_nothing", key_of(world, world.gil.id)):
        world.acme.api.iam("keys/list", cursor=cursor).refused_at("cursor")


@pytest.mark.clause("API-2", "shown once")
def test_no_answer_and_no_decision_holds_a_token(world: World) -> None:
    # A policy that names everything, a denial, and all lists: the places where one could slip through.
    world.ann.api.iam("keys/create", principalId=world.bob.id).refused("ACCESS_DENIED")
    key_id = key_of(world, world.ann.id)
    rotated = world.acme.api.iam("keys/rotate", keyId=key_id).data
    shown = [str(world.acme.api.iam(f"{group}/list").body) for group in ("keys", "principals", "policies")] + [
        str(world.acme.api.iam("keys/get", keyId=rotated["key"]["id"]).body),
        str(list(Decision.objects.values())),
    ]
    for token in [*tokens_of(world), rotated["token"]]:
        assert not any(token[12:] in text for text in shown)
