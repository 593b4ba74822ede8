"""``iam/agents/*``, and the keys of agents (IAM-5; IAM-API §3)."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from iam.models import ApiKey, Decision, DelegatedSession, Principal
from tests.iam.support import last_decision
from tests.support.api import Api
from tests.support.clock import Clock
from tests.support.world import Person, World, fresh_key

WHOAMI = "session/whoami"


def shown(world: World, agent_id: str) -> dict[str, Any]:
    return world.acme.api.iam("principals/get", principalId=agent_id).data["principal"]


def suspended(world: World, *agents: Person) -> list[bool]:
    return [shown(world, agent.id)["status"] == "suspended" for agent in agents]


def test_a_new_agent_is_the_callers(world: World, clock: Clock) -> None:
    agent = world.ann.api.iam("agents/create", name="robot").data["agent"]
    assert agent == {
        "id": agent["id"],
        "tenantId": "acme",
        "kind": "agent",
        "name": "robot",
        "roles": [],
        "groups": [],
        "status": "active",
        "sponsorId": world.ann.id,
        "boundary": ["compute:*", "iam:delegations:assume"],
        "createdAt": clock.now,
        "version": 1,
    }
    assert shown(world, agent["id"]) == agent
    asked = last_decision(action="iam:agents:create", outcome="allow")
    assert asked.attributes == {"tenantId": "acme", "subjectId": "", "sponsorId": world.ann.id}
    # Nobody has a key of it yet.
    assert not ApiKey.objects.filter(principal_id=agent["id"]).exists()


def test_an_administrator_makes_agents_for_others_and_nobody_else_does(world: World) -> None:
    made = world.acme.api.iam("agents/create", name="robot", sponsorId=world.bob.id, boundary=["*"]).data["agent"]
    assert (made["sponsorId"], made["boundary"]) == (world.bob.id, ["*"])
    before = Principal.objects.count()
    world.ann.api.iam("agents/create", name="x", sponsorId=world.bob.id).refused("ACCESS_DENIED")
    # An agent has no agents.
    robot = world.agent(world.ann, boundary=["*"])
    robot.api.iam("agents/create", name="x").refused("ACCESS_DENIED")
    robot.api.iam("agents/create", name="x", sponsorId=world.ann.id).refused("ACCESS_DENIED")
    assert Principal.objects.count() == before + 1


@pytest.mark.parametrize("who", ["service", "suspended", "agent"])
def test_the_sponsor_is_an_active_user(world: World, who: str) -> None:
    if who == "agent":
        sponsor = world.agent(world.ann)
    else:
        sponsor = world.person(world.acme, who, kind="service" if who == "service" else "user")
    if who == "suspended":
        world.acme.api.iam("principals/suspend", principalId=sponsor.id).data  # noqa: B018
    before = Principal.objects.count()
    answer = world.acme.api.iam("agents/create", name="robot", sponsorId=sponsor.id)
    answer.refused("INVALID_STATE", reason="sponsor-not-active")
    assert Principal.objects.count() == before


def test_a_service_is_nobodys_sponsor_by_default(world: World) -> None:
    service = world.person(world.acme, "ci", "tenant-admin", kind="service")
    service.api.iam("agents/create", name="robot").refused("INVALID_STATE", reason="sponsor-not-active")
    named = service.api.iam("agents/create", name="robot", sponsorId=world.ann.id).data["agent"]
    assert named["sponsorId"] == world.ann.id


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"name": ""}, "name"),
        ({"name": "x" * 129}, "name"),
        ({"boundary": []}, "boundary"),
        ({"boundary": ["compute:nothing"]}, "boundary.0"),
        ({"boundary": ["compute:*", "compute:*"]}, "boundary"),
        ({"boundary": None}, "boundary"),
        ({"sponsorId": "a b"}, "sponsorId"),
        ({"sponsorId": None}, "sponsorId"),
        ({"kind": "agent"}, "kind"),
        ({"roles": ["viewer"]}, "roles"),
    ],
)
def test_wrong_fields_are_named(world: World, fields: dict[str, Any], path: str) -> None:
    before = Principal.objects.count()
    world.ann.api.iam("agents/create", **({"name": "robot"} | fields)).refused_at(path)
    assert Principal.objects.count() == before


def test_the_same_key_makes_one_agent(world: World) -> None:
    fields = {"name": "robot", "idempotencyKey": fresh_key()}
    first = world.ann.api.iam("agents/create", **fields).data
    # What is left out and what is given as the default are one request.
    same = fields | {"boundary": ["compute:*", "iam:delegations:assume"]}
    assert world.ann.api.iam("agents/create", **same).data == first
    world.ann.api.iam("agents/create", **fields | {"name": "other"}).refused("CONFLICT", id=first["agent"]["id"])
    assert Principal.objects.filter(kind="agent").count() == 1


def test_what_is_no_agent_is_not_found(world: World) -> None:
    for method in ("agents/suspend", "agents/resume"):
        first = world.acme.api.iam(method, agentId=world.bob.id).refused("NOT_FOUND")
        second = world.acme.api.iam(method, agentId="agt_nothing").refused("NOT_FOUND")
        assert first | {"requestId": ""} == second | {"requestId": ""}
        # Whoever may do nothing of the kind learns no more, and no less.
        world.vic.api.iam(method, agentId=world.bob.id).refused("NOT_FOUND")
    world.vic.api.iam("delegations/grant", agentId=world.bob.id, scopes=["*"]).refused("NOT_FOUND")
    assert shown(world, world.bob.id)["status"] == "active"
    for method in ("agents/list", "agents/suspendAll"):
        world.acme.api.iam(method, sponsorId="usr_nobody").refused("NOT_FOUND")
        world.acme.api.iam(method, sponsorId=world.gil.id).refused("NOT_FOUND")
    world.acme.api.iam("agents/create", name="x", sponsorId=world.gil.id).refused("NOT_FOUND")


def test_lists_are_filtered_and_paged(world: World) -> None:
    robots = [world.agent(world.ann, name) for name in ("a", "b", "c")]
    other = world.agent(world.bob, "d")
    world.ann.api.iam("agents/suspend", agentId=robots[1].id).data  # noqa: B018

    def listed(person: Person, **filters: Any) -> list[str]:
        return [agent["name"] for agent in person.api.iam("agents/list", **filters).data["agents"]]

    assert sorted(listed(world.acme)) == ["a", "b", "c", "d"]
    assert sorted(listed(world.ann, sponsorId=world.ann.id)) == ["a", "b", "c"]
    assert listed(world.acme, status="suspended") == ["b"]
    assert sorted(listed(world.ann, sponsorId=world.ann.id, status="active")) == ["a", "c"]
    # Their own, and with the sponsor named.
    world.ann.api.iam("agents/list").refused("ACCESS_DENIED")
    world.ann.api.iam("agents/list", sponsorId=world.bob.id).refused("ACCESS_DENIED")
    first = world.ann.api.iam("agents/list", sponsorId=world.ann.id, limit=2).data
    second = world.ann.api.iam("agents/list", sponsorId=world.ann.id, limit=2, cursor=first["nextCursor"]).data
    assert sorted(agent["name"] for agent in first["agents"] + second["agents"]) == ["a", "b", "c"]
    assert "nextCursor" not in second
    for cursor in ("agt_nothing", other.id, world.ann.id):
        world.ann.api.iam("agents/list", sponsorId=world.ann.id, cursor=cursor).refused_at("cursor")


def test_a_list_costs_the_same_for_any_length(world: World, django_assert_num_queries: Any) -> None:
    for name in ("a", "b", "c"):
        world.agent(world.ann, name)
    for limit in (1, 200):
        with django_assert_num_queries(4):  # the clock, the credential, the sponsor, the page
            world.ann.api.iam("agents/list", sponsorId=world.ann.id, limit=limit)


# --- Stopped and let go on --------------------------------------------------------------------------------------------


@pytest.mark.clause("IAM-5", "agents/suspend stops an agent at the next call")
def test_a_suspended_agent_stops_at_the_next_call_and_comes_back_with_its_keys(world: World, clock: Clock) -> None:
    robot = world.agent(world.ann)
    session = world.session(robot, world.bob)
    assert robot.api.iam(WHOAMI).status == session.iam(WHOAMI).status == 200
    done = world.ann.api.iam("agents/suspend", agentId=robot.id, reason="loops").data["agent"]
    assert (done["status"], done["suspendedBy"], done["version"]) == ("suspended", "sponsor", 2)
    robot.api.iam(WHOAMI).refused("UNAUTHENTICATED")
    session.iam(WHOAMI).refused("UNAUTHENTICATED")
    stored = Principal.objects.get(id=robot.id)
    assert (stored.status_reason, stored.status_by, stored.status_at) == ("loops", world.ann.id, clock.now)

    clock.advance(seconds=5)
    back = world.ann.api.iam("agents/resume", agentId=robot.id).data["agent"]
    assert (back["status"], back["version"]) == ("active", 3)
    assert "suspendedBy" not in back
    assert robot.api.iam(WHOAMI).status == 200
    # What was assumed before stays dead; the delegation is as good as it was.
    session.iam(WHOAMI).refused("UNAUTHENTICATED")
    again = world.assume(robot, session.delegation_id)
    assert again.iam(WHOAMI).status == 200
    clock.advance(seconds=5)
    assert world.ann.api.iam("agents/resume", agentId=robot.id).data["agent"] == back
    # What ended once has ended then; a later suspension ends only what goes on.
    world.ann.api.iam("agents/suspend", agentId=robot.id).data  # noqa: B018
    ended = {one.id: one.ended_at for one in DelegatedSession.objects.all()}
    assert ended == {session.session_id: clock.now - 10_000, again.session_id: clock.now}


def test_suspending_twice_changes_nothing(world: World, clock: Clock) -> None:
    robot = world.agent(world.ann)
    first = world.ann.api.iam("agents/suspend", agentId=robot.id, reason="loops").data
    clock.advance(seconds=5)
    assert world.ann.api.iam("agents/suspend", agentId=robot.id, reason="again").data == first
    stored = Principal.objects.get(id=robot.id)
    assert (stored.status_reason, stored.end_reservations) == ("loops", False)


def test_a_sponsors_suspension_is_undone_by_either_and_an_administrators_by_administrators(world: World) -> None:
    robot = world.agent(world.ann)
    world.ann.api.iam("agents/suspend", agentId=robot.id).data  # noqa: B018
    assert world.acme.api.iam("agents/resume", agentId=robot.id).data["agent"]["status"] == "active"
    done = world.acme.api.iam("agents/suspend", agentId=robot.id).data["agent"]
    assert done["suspendedBy"] == "administrator"
    # The sponsor's repetition changes nothing.
    assert world.ann.api.iam("agents/suspend", agentId=robot.id).data["agent"] == done
    refused = world.ann.api.iam("agents/resume", agentId=robot.id).refused("ACCESS_DENIED")
    assert "details" not in refused
    entry = last_decision(action="iam:agents:resume", outcome="deny")
    assert (entry.reason, entry.principal_id) == ("no-permit", world.ann.id)
    assert entry.attributes["sponsorId"] == world.ann.id
    assert shown(world, robot.id) == done
    assert world.acme.api.iam("agents/resume", agentId=robot.id).data["agent"]["status"] == "active"


def test_an_administrators_suspension_takes_the_place_of_a_sponsors(world: World, clock: Clock) -> None:
    robot = world.agent(world.ann)
    first = world.ann.api.iam("agents/suspend", agentId=robot.id, reason="mine").data["agent"]
    clock.advance(seconds=5)
    second = world.acme.api.iam("agents/suspend", agentId=robot.id, reason="theirs").data["agent"]
    assert second == first | {"suspendedBy": "administrator", "version": 3}
    assert Principal.objects.get(id=robot.id).status_reason == "theirs"
    world.ann.api.iam("agents/resume", agentId=robot.id).refused("ACCESS_DENIED")


def test_a_sponsor_who_is_administrator_acts_as_one(world: World) -> None:
    robot = world.agent(world.acme)
    assert world.acme.api.iam("agents/suspend", agentId=robot.id).data["agent"]["suspendedBy"] == "administrator"
    assert world.acme.api.iam("agents/resume", agentId=robot.id).status == 200


def test_a_sponsors_suspension_in_a_session_is_the_sponsors(world: World) -> None:
    """A session may stop things: here one agent another, in the name of the sponsor of both."""
    watchdog = world.agent(world.ann, "watchdog", boundary=["*"])
    robot = world.agent(world.ann)
    session = world.session(watchdog, world.ann, ["iam:agents:*"])
    done = session.iam("agents/suspend", agentId=robot.id).data["agent"]
    assert done["suspendedBy"] == "sponsor"
    session.iam("agents/resume", agentId=robot.id).refused("ACCESS_DENIED")
    assert suspended(world, robot, watchdog) == [True, False]


def test_a_colleague_stops_and_resumes_nobody(world: World) -> None:
    robot = world.agent(world.ann)
    other = world.agent(world.bob)
    for who in (world.bob, world.vic, other, robot):
        for method in ("suspend", "resume"):
            who.api.iam(f"agents/{method}", agentId=robot.id).refused("ACCESS_DENIED")
    world.bob.api.iam("agents/suspendAll", sponsorId=world.ann.id).refused("ACCESS_DENIED")
    world.bob.api.iam("agents/suspendAll").refused("ACCESS_DENIED")
    world.gil.api.iam("agents/suspend", agentId=robot.id).refused("NOT_FOUND")
    assert suspended(world, robot, other) == [False, False]


@pytest.mark.clause("IAM-5", "agents/suspendAll stops agents at the next call")
def test_all_agents_of_a_sponsor_or_of_the_tenant_stop_at_once(world: World) -> None:
    mine, also_mine, other = (world.agent(who, n) for who, n in ((world.ann, "a"), (world.ann, "b"), (world.bob, "c")))
    theirs = world.agent(world.gil)
    session = world.session(mine, world.bob)
    world.ann.api.iam("agents/suspend", agentId=also_mine.id).data  # noqa: B018
    # Those that were active until now are counted.
    assert world.ann.api.iam("agents/suspendAll", sponsorId=world.ann.id).data == {"suspended": 1}
    assert suspended(world, mine, also_mine, other) == [True, True, False]
    mine.api.iam(WHOAMI).refused("UNAUTHENTICATED")
    session.iam(WHOAMI).refused("UNAUTHENTICATED")
    assert world.ann.api.iam("agents/suspendAll", sponsorId=world.ann.id).data == {"suspended": 0}

    assert world.acme.api.iam("agents/suspendAll", reason="fire").data == {"suspended": 1}
    other.api.iam(WHOAMI).refused("UNAUTHENTICATED")
    assert {shown(world, robot.id)["suspendedBy"] for robot in (mine, also_mine, other)} == {"administrator"}
    assert theirs.api.iam(WHOAMI).status == 200
    entry = last_decision(action="iam:agents:suspendAll", resource_id="acme", principal_id=world.acme.id)
    assert entry.attributes == {"tenantId": "acme", "subjectId": "", "sponsorId": ""}


def test_stopping_all_costs_the_same_for_any_number(world: World) -> None:
    costs = []
    for sponsor, number in ((world.ann, 1), (world.bob, 4)):
        for n in range(number):
            world.session(world.agent(sponsor, f"robot-{n}"), sponsor)
        with CaptureQueriesContext(connection) as asked:
            done = sponsor.api.iam("agents/suspendAll", sponsorId=sponsor.id, endReservations=True)
        assert done.data == {"suspended": number}
        costs.append(len(asked))
    assert costs[0] == costs[1]
    assert not DelegatedSession.objects.filter(ended_at=None).exists()


@pytest.mark.clause("OPS-4", "remembered until the agent is resumed")
def test_that_reservations_end_is_remembered_until_the_agent_is_resumed(world: World) -> None:
    robot, other = world.agent(world.ann, "a"), world.agent(world.ann, "b")

    def ends(agent: Person) -> bool:
        return Principal.objects.get(id=agent.id).end_reservations

    first = world.ann.api.iam("agents/suspend", agentId=robot.id).data
    assert not ends(robot)
    # It counts with a repetition too, which changes nothing that is shown.
    assert world.ann.api.iam("agents/suspend", agentId=robot.id, endReservations=True).data == first
    assert ends(robot)
    assert world.ann.api.iam("agents/suspend", agentId=robot.id).data == first
    assert ends(robot)
    assert world.ann.api.iam("agents/suspendAll", sponsorId=world.ann.id, endReservations=True).data["suspended"] == 1
    assert ends(other)
    # An administrator who takes a suspension over, and says nothing of reservations, takes nothing back.
    assert world.acme.api.iam("agents/suspend", agentId=other.id).data["agent"]["suspendedBy"] == "administrator"
    assert ends(other)
    for agent in (robot, other):
        world.acme.api.iam("agents/resume", agentId=agent.id).data  # noqa: B018
        assert not ends(agent)


# --- Keys of agents ---------------------------------------------------------------------------------------------------


def test_a_sponsor_sees_to_the_keys_of_their_agents(world: World) -> None:
    robot = world.agent(world.ann)
    made = world.ann.api.iam("keys/create", principalId=robot.id, scopes=["compute:*:read"]).data["key"]
    assert world.ann.api.iam("keys/get", keyId=made["id"]).data["key"] == made
    listed = world.ann.api.iam("keys/list", principalId=robot.id).data["keys"]
    assert made["id"] in [key["id"] for key in listed]
    rotated = world.ann.api.iam("keys/rotate", keyId=made["id"]).data["key"]
    assert world.ann.api.iam("keys/revoke", keyId=rotated["id"]).data["key"]["status"] == "revoked"

    before = set(ApiKey.objects.values_list("id", "status"))
    world.bob.api.iam("keys/create", principalId=robot.id).refused("ACCESS_DENIED")
    world.bob.api.iam("keys/list", principalId=robot.id).refused("ACCESS_DENIED")
    for method in ("get", "rotate", "revoke"):
        world.bob.api.iam(f"keys/{method}", keyId=made["id"]).refused("ACCESS_DENIED")
    # The agent's own boundary does not let it make keys, nor does a policy.
    for boundary in (["compute:*"], ["*"]):
        world.acme.api.iam("principals/update", principalId=robot.id, boundary=boundary).data  # noqa: B018
        robot.api.iam("keys/create", principalId=robot.id).refused("ACCESS_DENIED")
    assert set(ApiKey.objects.values_list("id", "status")) == before


def test_a_suspended_agent_gets_no_key(world: World) -> None:
    robot = world.agent(world.ann)
    (key,) = world.ann.api.iam("keys/list", principalId=robot.id).data["keys"]
    world.ann.api.iam("agents/suspend", agentId=robot.id).data  # noqa: B018
    made = world.ann.api.iam("keys/create", principalId=robot.id)
    made.refused("INVALID_STATE", reason="principal-suspended")
    world.ann.api.iam("keys/rotate", keyId=key["id"]).refused("INVALID_STATE", reason="principal-suspended")
    assert ApiKey.objects.filter(principal_id=robot.id).count() == 1


@pytest.mark.clause("API-2", "an agent whose sponsor is not active")
@pytest.mark.parametrize("how", ["suspend", "tenant"])
def test_no_credential_of_an_agent_works_while_its_sponsor_is_not_active(world: World, how: str) -> None:
    robot = world.agent(world.ann)
    session = world.session(robot, world.bob)
    stop, go_on = {
        "suspend": (
            (world.acme.api, "principals/suspend", {"principalId": world.ann.id}),
            (world.acme.api, "principals/resume", {"principalId": world.ann.id}),
        ),
        "tenant": (
            (world.admin, "tenants/suspend", {"id": "acme"}),
            (world.admin, "tenants/resume", {"id": "acme"}),
        ),
    }[how]
    _ask(*stop)
    robot.api.iam(WHOAMI).refused("UNAUTHENTICATED")
    session.iam(WHOAMI).refused("UNAUTHENTICATED")
    _ask(*go_on)
    assert robot.api.iam(WHOAMI).status == session.iam(WHOAMI).status == 200


def _ask(api: Api, method: str, fields: dict[str, Any]) -> None:
    assert api.iam(method, **fields).status == 200


@pytest.mark.clause("IAM-1", "an agent's boundary is a ceiling")
def test_an_agent_gets_beyond_its_boundary_in_no_way(world: World) -> None:
    robot = world.agent(world.ann, boundary=["compute:*:read"])
    world.acme.api.iam("principals/update", principalId=robot.id, roles=["tenant-admin"]).data  # noqa: B018
    assert robot.api("pools/list").status == 200
    robot.api("pools/create", name="p", region="eu", gpuModel="h100", deviceClass="gpu").refused("ACCESS_DENIED")
    robot.api.iam("principals/list").refused("ACCESS_DENIED")
    denied = Decision.objects.filter(principal_id=robot.id, outcome="deny")
    assert {entry.reason for entry in denied} == {"boundary"}
    assert denied.count() == 2
    # Widened, it bites at the next call.
    world.acme.api.iam("principals/update", principalId=robot.id, boundary=["*"]).data  # noqa: B018
    assert robot.api.iam("principals/list").status == 200
