"""Two at the same moment: what is revoked or suspended while somebody goes on, on two connections."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from computeplatform.api.calls import system_actor
from computeplatform.clock import compute_now
from iam.models import DelegatedSession, Delegation, Principal
from iam.operations.agents import suspend_agent, suspend_agents
from iam.operations.delegations import assume_delegation, grant_delegation, revoke_delegation
from iam.operations.keys import revoke_key
from iam.operations.principals import suspend_principal
from tests.iam.test_races import at_once, codes, while_open
from tests.support.api import Api, admit_all
from tests.support.clock import Clock
from tests.support.world import Person, Session, World, fresh_key, request

pytestmark = pytest.mark.django_db(transaction=True)

BY = system_actor("test")


@pytest.fixture
def clock(transactional_db: None) -> Iterator[Clock]:
    clock = Clock()
    yield clock
    Clock.restore()


@pytest.fixture
def robot(world: World) -> Person:
    """Ann's agent; it acts for bob."""
    return world.agent(world.ann)


def stop_agent(world: World, robot: Person) -> None:
    suspend_agent(tenant_id="acme", agent_id=robot.id, is_admin=True, by=BY, now=compute_now())


def stop_all(world: World, _robot: Person) -> None:
    suspend_agents(tenant_id="acme", is_admin=True, by=BY, now=compute_now())


def stop_user(world: World, _robot: Person) -> None:
    suspend_principal(tenant_id="acme", principal_id=world.bob.id, by=BY, now=compute_now())


STOPS = (stop_agent, stop_all, stop_user)


@pytest.mark.clause("IAM-5", "revoke against use in the middle of a call")
@pytest.mark.parametrize("how", ["delegation", "agent", "session's key"])
def test_what_is_revoked_while_a_create_waits_is_not_decided(world: World, robot: Person, how: str) -> None:
    pool = world.offered_pool()
    session = world.session(robot, world.bob)

    def revoke_then_admit() -> None:
        if how == "delegation":
            world.bob.api.iam("delegations/revoke", delegationId=session.delegation_id).data  # noqa: B018
        elif how == "agent":
            world.ann.api.iam("agents/suspend", agentId=robot.id).data  # noqa: B018
        else:
            key_id = DelegatedSession.objects.get(id=session.session_id).key_id
            world.ann.api.iam("keys/revoke", keyId=key_id).data  # noqa: B018
        admit_all()

    asked = request(pool)
    caller = Api(session.token, "acme", work=revoke_then_admit)
    caller("reservations/create", **asked).refused("UNAUTHENTICATED")
    assert world.acme.api("reservations/list", scope="all").data["reservations"] == []
    # The next look at the door says the same.
    session("reservations/create", **asked).refused("UNAUTHENTICATED")


@pytest.mark.parametrize("stop", STOPS)
def test_nothing_is_assumed_while_somebody_is_suspended(
    world: World, robot: Person, stop: Callable[[World, Person], None]
) -> None:
    delegation_id = world.session(robot, world.bob).delegation_id
    answer = while_open(
        lambda: stop(world, robot), lambda: robot.api.iam("delegations/assume", delegationId=delegation_id)
    )
    # The call had signed in before the suspension was there.
    answer.refused("INVALID_STATE", reason="principal-suspended")
    assert not DelegatedSession.objects.filter(ended_at=None).exists()


@pytest.mark.parametrize(
    ("method", "of"),
    [
        ("agents/suspend", lambda world, robot: {"agentId": robot.id}),
        ("agents/suspendAll", lambda _world, _robot: {}),
        ("principals/suspend", lambda world, _robot: {"principalId": world.bob.id}),
    ],
)
def test_a_suspension_finds_what_is_being_assumed(
    world: World, robot: Person, method: str, of: Callable[[World, Person], dict[str, Any]]
) -> None:
    first = world.session(robot, world.bob)
    key_id = DelegatedSession.objects.get(id=first.session_id).key_id
    assume = partial(assume_delegation, tenant_id="acme", delegation_id=first.delegation_id, key_id=key_id)
    answer = while_open(lambda: assume(now=compute_now()), lambda: world.acme.api.iam(method, **of(world, robot)))
    assert answer.status == 200
    assert DelegatedSession.objects.count() == 2
    assert not DelegatedSession.objects.filter(ended_at=None).exists()


def test_nothing_is_granted_to_an_agent_while_it_is_suspended(world: World, robot: Person) -> None:
    answer = while_open(
        lambda: stop_agent(world, robot),
        lambda: world.bob.api.iam("delegations/grant", agentId=robot.id, scopes=["*"]),
    )
    answer.refused("INVALID_STATE", reason="principal-suspended")
    assert not Delegation.objects.exists()


def stop_key(_world: World, session: Session) -> None:
    key_id = DelegatedSession.objects.get(id=session.session_id).key_id
    revoke_key(tenant_id="acme", key_id=key_id, by=BY, now=compute_now())


def stop_delegation(_world: World, session: Session) -> None:
    revoke_delegation(tenant_id="acme", delegation_id=session.delegation_id, by=BY, now=compute_now())


@pytest.mark.clause("IAM-5", "every use checks the whole chain")
@pytest.mark.parametrize(("stop", "reason"), [(stop_key, "key-revoked"), (stop_delegation, "delegation-revoked")])
def test_what_is_revoked_under_way_assumes_nothing(
    world: World, robot: Person, stop: Callable[[World, Session], None], reason: str
) -> None:
    session = world.session(robot, world.bob)
    answer = while_open(
        lambda: stop(world, session),
        lambda: robot.api.iam("delegations/assume", delegationId=session.delegation_id),
    )
    answer.refused("INVALID_STATE", reason=reason)
    assert DelegatedSession.objects.count() == 1


def test_nothing_is_assumed_of_what_is_being_revoked(world: World, robot: Person) -> None:
    session = world.session(robot, world.bob)
    answers = at_once(
        lambda: world.bob.api.iam("delegations/revoke", delegationId=session.delegation_id),
        *[lambda: robot.api.iam("delegations/assume", delegationId=session.delegation_id)] * 3,
    )
    assert set(codes(answers)) <= {"ok", "INVALID_STATE"}
    assert answers[0].status == 200
    # Whoever came first: no token works now.
    for answer in answers[1:]:
        if answer.status == 200:
            Api(answer.data["token"], "acme").iam("session/whoami").refused("UNAUTHENTICATED")


def test_calls_with_one_key_assume_once(world: World, robot: Person) -> None:
    delegation_id = world.session(robot, world.bob).delegation_id
    fields = {"delegationId": delegation_id, "idempotencyKey": fresh_key()}
    answers = at_once(*[lambda: robot.api.iam("delegations/assume", **fields)] * 4)
    assert len({answer.data["session"]["id"] for answer in answers}) == 1
    assert ["token" in answer.data for answer in answers].count(True) == 1
    assert DelegatedSession.objects.count() == 2


def test_of_two_suspensions_the_administrators_stands(world: World, robot: Person) -> None:
    answers = at_once(
        *[lambda: world.ann.api.iam("agents/suspend", agentId=robot.id, endReservations=True)] * 2,
        *[lambda: world.acme.api.iam("agents/suspend", agentId=robot.id)] * 2,
        lambda: world.acme.api.iam("agents/suspendAll"),
    )
    assert set(codes(answers)) == {"ok"}
    row = Principal.objects.get(id=robot.id)
    assert (row.status, row.suspended_by, row.end_reservations) == ("suspended", "administrator", True)
    assert row.version <= 3


def test_an_administrator_who_suspends_first_is_not_undone(world: World, robot: Person) -> None:
    world.ann.api.iam("agents/suspend", agentId=robot.id).data  # noqa: B018
    answer = while_open(lambda: stop_agent(world, robot), lambda: world.ann.api.iam("agents/resume", agentId=robot.id))
    answer.refused("ACCESS_DENIED")
    assert Principal.objects.get(id=robot.id).suspended_by == "administrator"


def test_everything_that_ends_sessions_at_once_comes_to_its_end(world: World) -> None:
    """Users, agents and their sessions are held in one order, whoever begins."""
    robots = [world.agent(world.ann, f"robot-{n}") for n in range(3)]
    users = (world.bob, world.vic)
    sessions = [world.session(robot, user) for robot in robots for user in users]
    answers = at_once(
        *(partial(world.acme.api.iam, "principals/suspend", principalId=user.id) for user in users),
        *(partial(world.acme.api.iam, "agents/suspend", agentId=robot.id) for robot in robots),
        partial(world.acme.api.iam, "agents/suspendAll"),
        partial(world.ann.api.iam, "agents/suspendAll", sponsorId=world.ann.id),
    )
    assert set(codes(answers)) == {"ok"}
    assert not DelegatedSession.objects.filter(ended_at=None).exists()
    for session in sessions:
        session.iam("session/whoami").refused("UNAUTHENTICATED")


def test_grants_and_suspensions_take_turns(world: World, robot: Person) -> None:
    grant = partial(grant_delegation, tenant_id="acme", user_id=world.bob.id, agent_id=robot.id, scopes=["*"])
    answer = while_open(
        lambda: grant(now=compute_now()), lambda: world.acme.api.iam("principals/suspend", principalId=world.bob.id)
    )
    assert answer.status == 200
    # What was granted before stays; nothing can be assumed of it.
    delegation_id = Delegation.objects.get().id
    refused = robot.api.iam("delegations/assume", delegationId=delegation_id)
    refused.refused("INVALID_STATE", reason="principal-suspended")
    assert not DelegatedSession.objects.exists()
