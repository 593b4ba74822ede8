"""``iam/delegations/grant``, ``list`` and ``revoke`` (IAM-5; IAM-API §3)."""

from typing import Any

import pytest

from iam.catalogue import actions_by_name
from iam.models import Decision, DelegatedSession, Delegation
from tests.iam.support import last_decision
from tests.support.api import Api
from tests.support.clock import Clock
from tests.support.world import Person, World, fresh_key

YEAR = 31_536_000


@pytest.fixture
def robot(world: World) -> Person:
    """Ann's agent."""
    return world.agent(world.ann)


def granted(user: Person, agent: Person, **fields: Any) -> dict[str, Any]:
    given = {"agentId": agent.id, "scopes": ["compute:*"]} | fields
    return user.api.iam("delegations/grant", **given).data["delegation"]


@pytest.mark.clause("IAM-5", "grant")
def test_a_user_grants_in_their_own_name(world: World, robot: Person, clock: Clock) -> None:
    given = granted(world.bob, robot, confirm=["compute:reservations:create"], name="train", expiresInSeconds=60)
    assert given == {
        "id": given["id"],
        "tenantId": "acme",
        "userId": world.bob.id,
        "agentId": robot.id,
        "name": "train",
        "scopes": ["compute:*"],
        "confirm": ["compute:reservations:create"],
        "status": "active",
        "createdAt": clock.now,
        "expiresAt": clock.now + 60_000,
    }
    entry = last_decision(action="iam:delegations:grant", outcome="allow")
    assert entry.attributes == {"tenantId": "acme", "subjectId": world.bob.id, "sponsorId": ""}
    plain = granted(world.bob, robot)
    assert (plain["expiresAt"], plain["confirm"]) == (clock.now + 2_592_000_000, [])
    assert "name" not in plain


@pytest.mark.clause("IAM-5", "confirm gates create and extend alone")
@pytest.mark.parametrize(
    ("pattern", "gates"),
    [
        ("compute:reservations:create", True),
        ("compute:reservations:extend", True),
        ("compute:reservations:*", True),
        ("compute:*", True),
        ("*", True),
        ("compute:reservations:release", False),
        ("compute:*:read", False),
        ("compute:pools:*", False),
        ("iam:*", False),
        ("compute:reservations:renew", False),
        ("nothing", False),
    ],
)
def test_what_can_be_confirmed(world: World, robot: Person, pattern: str, gates: bool) -> None:
    fields = {"agentId": robot.id, "scopes": ["compute:*"], "confirm": ["compute:*", pattern][gates:]}
    answer = world.bob.api.iam("delegations/grant", **fields)
    if gates:
        assert answer.data["delegation"]["confirm"] == [pattern]
    else:
        answer.refused_at("confirm.1")
        assert not Delegation.objects.exists()


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"scopes": []}, "scopes"),
        ({"scopes": ["compute:nothing"]}, "scopes.0"),
        ({"scopes": ["*", "*"]}, "scopes"),
        ({"scopes": None}, "scopes"),
        ({"confirm": ["*", "*"]}, "confirm"),
        ({"confirm": None}, "confirm"),
        ({"expiresInSeconds": 0}, "expiresInSeconds"),
        ({"expiresInSeconds": YEAR + 1}, "expiresInSeconds"),
        ({"expiresInSeconds": 1.5}, "expiresInSeconds"),
        ({"name": ""}, "name"),
        ({"userId": "usr_x"}, "userId"),
        ({"agentId": ""}, "agentId"),
        ({"idempotencyKey": "a b"}, "idempotencyKey"),
    ],
)
def test_wrong_fields_are_named(world: World, robot: Person, fields: dict[str, Any], path: str) -> None:
    given = {"agentId": robot.id, "scopes": ["*"]} | fields
    world.bob.api.iam("delegations/grant", **given).refused_at(path)
    assert not Delegation.objects.exists()


def test_at_most_64_scopes(world: World, robot: Person) -> None:
    actions = sorted(actions_by_name())
    patterns = [*actions, *sorted({f"{action.rpartition(':')[0]}:*" for action in actions})]
    assert len(patterns) > 64
    world.bob.api.iam("delegations/grant", agentId=robot.id, scopes=patterns[:65]).refused_at("scopes")
    assert granted(world.bob, robot, scopes=patterns[:64])["scopes"] == patterns[:64]


def test_only_users_grant(world: World, robot: Person) -> None:
    service = world.person(world.acme, "ci", "tenant-admin", kind="service")
    other = world.agent(world.ann, "other", boundary=["*"])
    world.acme.api.iam("principals/update", principalId=other.id, roles=["tenant-admin"]).data  # noqa: B018
    for who in (service, other):
        answer = who.api.iam("delegations/grant", agentId=robot.id, scopes=["compute:*"])
        assert "details" not in answer.refused("ACCESS_DENIED")
        # Policies permit it to an administrator; that it is no user stands above them.
        assert last_decision(action="iam:delegations:grant", principal_id=who.id).reason == "no-permit"
    assert not Delegation.objects.exists()
    # An administrator who is a user grants as any other: in their own name.
    assert granted(world.acme, robot)["userId"] == world.acme.id


@pytest.mark.clause("IAM-1", "a granted delegation is never wider than the key")
def test_a_scoped_key_grants_nothing_wider(world: World, robot: Person) -> None:
    token = world.acme.api.iam(
        "keys/create", principalId=world.bob.id, scopes=["iam:delegations:*", "compute:reservations:*"]
    ).data["token"]
    bob = Api(token, "acme")
    for wider in (["*"], ["compute:*"], ["compute:reservations:read", "compute:pools:read"]):
        answer = bob.iam("delegations/grant", agentId=robot.id, scopes=wider)
        assert "details" not in answer.refused("ACCESS_DENIED")
    assert not Delegation.objects.exists()
    denied = Decision.objects.filter(action="iam:delegations:grant", outcome="deny")
    assert [entry.reason for entry in denied] == ["key-scope"] * 3
    fields = {"agentId": robot.id, "scopes": ["compute:reservations:create"], "confirm": ["*"]}
    assert bob.iam("delegations/grant", **fields).data["delegation"]["scopes"] == ["compute:reservations:create"]


def test_a_suspended_agent_is_granted_nothing(world: World, robot: Person) -> None:
    world.ann.api.iam("agents/suspend", agentId=robot.id).data  # noqa: B018
    answer = world.bob.api.iam("delegations/grant", agentId=robot.id, scopes=["*"])
    answer.refused("INVALID_STATE", reason="principal-suspended")
    assert not Delegation.objects.exists()


def test_what_is_no_agent_is_not_found(world: World) -> None:
    theirs = world.agent(world.gil)
    refused = [
        world.bob.api.iam("delegations/grant", agentId=one, scopes=["*"]).refused("NOT_FOUND") | {"requestId": ""}
        for one in (world.ann.id, world.bob.id, theirs.id, "agt_nothing")
    ]
    assert all(one == refused[0] for one in refused)
    assert not Delegation.objects.exists()


def test_the_same_key_grants_once(world: World, robot: Person) -> None:
    fields = {"agentId": robot.id, "scopes": ["compute:*"], "idempotencyKey": fresh_key()}
    first = world.bob.api.iam("delegations/grant", **fields).data
    assert world.bob.api.iam("delegations/grant", **fields, confirm=[]).data == first
    other = world.bob.api.iam("delegations/grant", **fields | {"scopes": ["*"]})
    other.refused("CONFLICT", id=first["delegation"]["id"])
    # Somebody else's key of the same text is another one.
    assert world.ann.api.iam("delegations/grant", **fields).data["delegation"]["userId"] == world.ann.id
    assert Delegation.objects.count() == 2
    # It is answered as it stands, whatever has become of it and of the agent.
    world.bob.api.iam("delegations/revoke", delegationId=first["delegation"]["id"]).data  # noqa: B018
    world.ann.api.iam("agents/suspend", agentId=robot.id).data  # noqa: B018
    assert world.bob.api.iam("delegations/grant", **fields).data["delegation"]["status"] == "revoked"


@pytest.mark.clause("IAM-5", "revoke")
def test_its_user_revokes_a_delegation(world: World, robot: Person, clock: Clock) -> None:
    session = world.session(robot, world.bob)
    other = world.session(robot, world.bob)
    fields = {"delegationId": session.delegation_id, "reason": "done"}
    revoked = world.bob.api.iam("delegations/revoke", **fields).data["delegation"]
    assert (revoked["status"], revoked["revokedAt"]) == ("revoked", clock.now)
    session.iam("session/whoami").refused("UNAUTHENTICATED")
    assert other.iam("session/whoami").status == 200
    refused = robot.api.iam("delegations/assume", delegationId=session.delegation_id)
    refused.refused("INVALID_STATE", reason="delegation-revoked")
    assert DelegatedSession.objects.count() == 2
    clock.advance(seconds=5)
    again = world.bob.api.iam("delegations/revoke", **fields | {"reason": "again"}).data["delegation"]
    assert again == revoked
    stored = Delegation.objects.get(id=revoked["id"])
    assert (stored.revoke_reason, stored.revoked_by) == ("done", world.bob.id)


@pytest.mark.clause("IAM-5", "revoke")
def test_who_may_revoke(world: World, robot: Person) -> None:
    given = [granted(world.bob, robot)["id"] for _ in range(3)]
    # Neither the sponsor, nor the agent, nor a colleague; not even with a boundary that lets it.
    world.acme.api.iam("principals/update", principalId=robot.id, boundary=["*"]).data  # noqa: B018
    for who in (world.ann, robot, world.vic):
        who.api.iam("delegations/revoke", delegationId=given[0]).refused("ACCESS_DENIED")
    world.gil.api.iam("delegations/revoke", delegationId=given[0]).refused("NOT_FOUND")
    assert set(Delegation.objects.values_list("status", flat=True)) == {"active"}
    # Itself, an administrator, and the user through an agent whose scopes permit that.
    session = world.session(robot, world.bob, ["iam:delegations:*"])
    for api, delegation_id in zip((world.bob.api, world.acme.api, session), given, strict=True):
        done = api.iam("delegations/revoke", delegationId=delegation_id).data["delegation"]
        assert done["status"] == "revoked"


def test_a_delegation_ends_with_its_time(world: World, robot: Person, clock: Clock) -> None:
    given = granted(world.bob, robot, expiresInSeconds=10)
    clock.advance(milliseconds=9_999)
    assert world.assume(robot, given["id"]).iam("session/whoami").status == 200
    clock.advance(milliseconds=1)
    answer = robot.api.iam("delegations/assume", delegationId=given["id"])
    answer.refused("INVALID_STATE", reason="delegation-expired")
    (shown,) = world.bob.api.iam("delegations/list").data["delegations"]
    assert shown == given | {"status": "expired"}
    # It can be revoked all the same, and is then that.
    done = world.bob.api.iam("delegations/revoke", delegationId=given["id"]).data["delegation"]
    assert (done["status"], done["revokedAt"]) == ("revoked", clock.now)


def test_lists_are_filtered(world: World, robot: Person, clock: Clock) -> None:
    other = world.agent(world.bob, "other")
    bobs = granted(world.bob, robot)["id"]
    gone = granted(world.bob, robot, expiresInSeconds=1)["id"]
    anns = granted(world.ann, robot)["id"]
    others = granted(world.bob, other)["id"]
    world.bob.api.iam("delegations/revoke", delegationId=others).data  # noqa: B018
    clock.advance(seconds=1)
    # By default an agent's boundary lets it assume delegations, not list them.
    robot.api.iam("delegations/list").refused("ACCESS_DENIED")
    for agent in (robot, other):
        boundary = ["compute:*", "iam:delegations:*"]
        world.acme.api.iam("principals/update", principalId=agent.id, boundary=boundary).data  # noqa: B018

    def listed(person: Person, **filters: Any) -> set[str]:
        return {one["id"] for one in person.api.iam("delegations/list", **filters).data["delegations"]}

    # With neither: the caller's own, given or held.
    assert listed(world.bob) == {bobs, gone, others}
    assert listed(robot) == {bobs, gone, anns}
    assert listed(world.acme) == listed(world.person(world.acme, "ci", kind="service")) == set()
    # Users and agents see their own; what is between two, either of them.
    assert listed(world.bob, userId=world.bob.id, agentId=robot.id) == {bobs, gone}
    assert listed(robot, userId=world.bob.id, agentId=robot.id) == {bobs, gone}
    assert listed(robot, agentId=robot.id) == {bobs, gone, anns}
    assert listed(world.acme, agentId=robot.id) == {bobs, gone, anns}
    assert listed(world.acme, userId=world.bob.id, agentId=other.id) == {others}
    assert listed(world.bob, status="active") == {bobs}
    assert listed(world.bob, status="expired") == {gone}
    assert listed(world.bob, status="revoked") == {others}
    for who, filters in (
        (world.bob, {"agentId": robot.id}),
        (world.ann, {"userId": world.bob.id}),
        (world.ann, {"userId": world.bob.id, "agentId": robot.id}),
        (other, {"agentId": robot.id}),
        (other, {"userId": world.bob.id, "agentId": robot.id}),
        (robot, {"userId": world.bob.id}),
    ):
        who.api.iam("delegations/list", **filters).refused("ACCESS_DENIED")
    for filters in ({"userId": robot.id}, {"userId": world.gil.id}, {"agentId": world.bob.id}, {"agentId": "agt_x"}):
        world.acme.api.iam("delegations/list", **filters).refused("NOT_FOUND")


def test_pages_are_newest_first_and_meet(world: World, robot: Person, clock: Clock) -> None:
    ids = []
    for _ in range(3):
        ids.append(granted(world.bob, robot)["id"])
        clock.advance(seconds=1)
    anns = granted(world.ann, robot)["id"]
    first = world.bob.api.iam("delegations/list", limit=2).data
    assert [one["id"] for one in first["delegations"]] == [ids[2], ids[1]]
    second = world.bob.api.iam("delegations/list", limit=2, cursor=first["nextCursor"]).data
    assert [one["id"] for one in second["delegations"]] == [ids[0]]
    assert "nextCursor" not in second
    # One that has left the list meanwhile still marks its place.
    world.bob.api.iam("delegations/revoke", delegationId=first["nextCursor"]).data  # noqa: B018
    after = world.bob.api.iam("delegations/list", status="active", cursor=first["nextCursor"]).data
    assert [one["id"] for one in after["delegations"]] == [ids[0]]
    for cursor in ("dlg_nothing", anns):
        world.bob.api.iam("delegations/list", cursor=cursor).refused_at("cursor")


def test_a_list_costs_the_same_for_any_length(world: World, robot: Person, django_assert_num_queries: Any) -> None:
    for _ in range(3):
        granted(world.bob, robot)
    for limit in (1, 200):
        with django_assert_num_queries(4):  # the clock, the credential, the user, the page
            world.bob.api.iam("delegations/list", limit=limit)
