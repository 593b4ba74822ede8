"""Delegated sessions: assumed, used, ended with whatever they depend on (IAM-5, IAM-8; IAM-API §4)."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import F, Model

from computeplatform.clock import compute_now
from computeplatform.errors import Unauthenticated
from iam.domain import tokens
from iam.models import ApiKey, Decision, DelegatedSession, Delegation, Principal, Tenant
from iam.operations.sessions import forget_old_sessions
from iam.ports import authenticate
from iam.queries import live_callers
from tests.iam.support import last_decision
from tests.support.api import Api
from tests.support.clock import Clock
from tests.support.world import Person, Session, World, fresh_key

WHOAMI = "session/whoami"
DAY = 86_400


@pytest.fixture
def robot(world: World) -> Person:
    """Ann's agent; it acts for bob."""
    return world.agent(world.ann)


@pytest.fixture
def session(world: World, robot: Person) -> Session:
    """Ann's agent in bob's name."""
    return world.session(robot, world.bob)


def key_of(agent: Person) -> ApiKey:
    return ApiKey.objects.get(principal_id=agent.id)


def granted(world: World, agent: Person, **fields: Any) -> str:
    given = {"agentId": agent.id, "scopes": ["compute:*"]} | fields
    return str(world.bob.api.iam("delegations/grant", **given).data["delegation"]["id"])


# --- Assumed ----------------------------------------------------------------------------------------------------------


@pytest.mark.clause("IAM-5", "assume gives a delegated session token")
@pytest.mark.clause("IAM-8", "whoami in a delegated session")
def test_an_agent_assumes_a_delegation(world: World, robot: Person, clock: Clock) -> None:
    delegation_id = granted(world, robot, scopes=["compute:*", "iam:*:read"])
    answer = robot.api.iam("delegations/assume", delegationId=delegation_id).data
    session = answer["session"]
    assert session == {
        "id": session["id"],
        "tenantId": "acme",
        "delegationId": delegation_id,
        "userId": world.bob.id,
        "agentId": robot.id,
        "scopes": ["compute:*", "iam:*:read"],
        "createdAt": clock.now,
        "expiresAt": clock.now + 900_000,
    }
    assert answer["token"].startswith("cpd_")
    assert Api(answer["token"], "acme").iam(WHOAMI).data == {
        "principal": {"id": world.bob.id, "kind": "user", "name": "bob", "roles": ["reserver"], "groups": []},
        "agent": {"id": robot.id, "name": "robot", "sponsorId": world.ann.id, "delegationId": delegation_id},
        "tenant": {"id": "acme", "name": "Acme"},
        "scopes": ["compute:*", "iam:*:read"],
        "expiresAt": session["expiresAt"],
        "credential": {"kind": "delegated-session", "id": session["id"]},
    }
    entry = last_decision(action="iam:delegations:assume", outcome="allow")
    assert entry.attributes == {"tenantId": "acme", "subjectId": robot.id, "sponsorId": world.ann.id}


@pytest.mark.clause("IAM-5", "at most an hour")
@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"expiresInSeconds": 3_601}, "expiresInSeconds"),
        ({"expiresInSeconds": 0}, "expiresInSeconds"),
        ({"scopes": []}, "scopes"),
        ({"scopes": ["compute:nothing"]}, "scopes.0"),
        ({"scopes": None}, "scopes"),
        ({"confirm": []}, "confirm"),
        ({"agentId": "agt_x"}, "agentId"),
    ],
)
def test_wrong_fields_are_named(world: World, robot: Person, fields: dict[str, Any], path: str) -> None:
    given = {"delegationId": granted(world, robot)} | fields
    robot.api.iam("delegations/assume", **given).refused_at(path)
    assert not DelegatedSession.objects.exists()


@pytest.mark.clause("IAM-5", "a session is never longer than delegation and key")
def test_the_default_is_cut_to_what_is_left_and_more_is_refused(world: World, clock: Clock) -> None:
    robot = world.agent(world.ann, key={"expiresInSeconds": 1_000})
    short, long = granted(world, robot, expiresInSeconds=600), granted(world, robot)
    clock.advance(seconds=300)
    # 300 s of one delegation are left, and 700 s of the key.
    for delegation_id, left in ((short, 300), (long, 700)):
        refused = robot.api.iam("delegations/assume", delegationId=delegation_id, expiresInSeconds=left + 1)
        assert f"{left} s" in refused.refused_at("expiresInSeconds")
        assert not DelegatedSession.objects.filter(delegation_id=delegation_id).exists()
        for fields in ({}, {"expiresInSeconds": left}):
            assumed = robot.api.iam("delegations/assume", delegationId=delegation_id, **fields).data["session"]
            assert assumed["expiresAt"] == clock.now + left * 1_000
    assumed = robot.api.iam("delegations/assume", delegationId=long, expiresInSeconds=600).data["session"]
    assert assumed["expiresAt"] == clock.now + 600_000


@pytest.mark.clause("IAM-5", "an hour is possible")
def test_an_hour_is_possible(world: World, robot: Person, clock: Clock) -> None:
    delegation_id = granted(world, robot)
    session = world.assume(robot, delegation_id, expiresInSeconds=3_600)
    clock.advance(milliseconds=3_599_999)
    assert session.iam(WHOAMI).status == 200
    clock.advance(milliseconds=1)
    session.iam(WHOAMI).refused("UNAUTHENTICATED")


@pytest.mark.clause("IAM-5", "a session is never wider than its delegation")
def test_scopes_are_within_the_delegations(world: World, robot: Person) -> None:
    delegation_id = granted(world, robot, scopes=["compute:reservations:*", "compute:*:read"])
    for wider in (["*"], ["compute:*"], ["compute:reservations:create", "compute:pools:create"]):
        answer = robot.api.iam("delegations/assume", delegationId=delegation_id, scopes=wider)
        answer.refused_at("scopes")
    # Everything that is wrong is said at once.
    answer = robot.api.iam(
        "delegations/assume", delegationId=granted(world, robot, expiresInSeconds=9), scopes=["*"], expiresInSeconds=10
    )
    assert [issue["path"] for issue in answer.error["details"]["issues"]] == ["expiresInSeconds", "scopes"]
    assert not DelegatedSession.objects.exists()
    narrower = world.assume(robot, delegation_id, scopes=["compute:pools:read"])
    assert narrower.iam(WHOAMI).data["scopes"] == ["compute:pools:read"]
    assert narrower("pools/list").status == 200
    narrower("quotas/list").refused("ACCESS_DENIED")
    assert last_decision(action="compute:quotas:read", outcome="deny").reason == "delegation-scope"


def test_only_the_delegations_agent_assumes_it(world: World, robot: Person) -> None:
    delegation_id = granted(world, robot)
    other = world.agent(world.ann, "other")
    for who, reason in (
        (other, "no-permit"),
        (world.bob, "no-permit"),
        (world.ann, "no-permit"),
        # Policies permit it to an administrator; whose delegation it is stands above them.
        (world.acme, "no-permit"),
    ):
        answer = who.api.iam("delegations/assume", delegationId=delegation_id)
        assert "details" not in answer.refused("ACCESS_DENIED")
        assert last_decision(action="iam:delegations:assume", principal_id=who.id).reason == reason
    theirs = world.agent(world.gil)
    refused = theirs.api.iam("delegations/assume", delegationId=delegation_id).refused("NOT_FOUND")
    nothing = theirs.api.iam("delegations/assume", delegationId="dlg_nothing").refused("NOT_FOUND")
    assert refused | {"requestId": ""} == nothing | {"requestId": ""}
    assert not DelegatedSession.objects.exists()


def test_the_agents_key_and_boundary_must_let_it(world: World) -> None:
    bound = world.agent(world.ann, "bound", boundary=["compute:*"])
    scoped = world.agent(world.ann, "scoped", key={"scopes": ["compute:*"]})
    for agent, reason in ((bound, "boundary"), (scoped, "key-scope")):
        answer = agent.api.iam("delegations/assume", delegationId=granted(world, agent))
        answer.refused("ACCESS_DENIED")
        assert last_decision(action="iam:delegations:assume", principal_id=agent.id).reason == reason
    assert not DelegatedSession.objects.exists()


def test_nothing_is_assumed_for_a_suspended_user(world: World, robot: Person) -> None:
    delegation_id = granted(world, robot)
    world.acme.api.iam("principals/suspend", principalId=world.bob.id).data  # noqa: B018
    answer = robot.api.iam("delegations/assume", delegationId=delegation_id)
    answer.refused("INVALID_STATE", reason="principal-suspended")
    assert not DelegatedSession.objects.exists()


def test_the_same_key_answers_the_session_without_its_token(world: World, robot: Person, clock: Clock) -> None:
    fields = {"delegationId": granted(world, robot), "idempotencyKey": fresh_key()}
    first = robot.api.iam("delegations/assume", **fields).data
    assert robot.api.iam("delegations/assume", **fields).data == {"session": first["session"]}
    other = robot.api.iam("delegations/assume", **fields, scopes=["compute:*"])
    other.refused("CONFLICT", id=first["session"]["id"])
    assert DelegatedSession.objects.count() == 1
    # It is the stored session, also when it is over.
    world.bob.api.iam("delegations/revoke", delegationId=fields["delegationId"]).data  # noqa: B018
    clock.advance(hours=1)
    assert robot.api.iam("delegations/assume", **fields).data == {"session": first["session"]}


# --- The chain --------------------------------------------------------------------------------------------------------

NOW = object()
# The row that a link is, and what breaks it.
LINKS: dict[str, tuple[type[Model], dict[str, str], dict[str, Any]]] = {
    "session ended": (DelegatedSession, {}, {"ended_at": 1}),
    "session expired": (DelegatedSession, {}, {"expires_at": NOW}),
    "delegation revoked": (Delegation, {}, {"status": "revoked", "revoked_at": 1}),
    "delegation expired": (Delegation, {}, {"expires_at": NOW}),
    "user suspended": (Principal, {"name": "bob"}, {"status": "suspended"}),
    "agent suspended": (Principal, {"name": "robot"}, {"status": "suspended"}),
    "sponsor suspended": (Principal, {"name": "ann"}, {"status": "suspended"}),
    "sponsor is no user": (Principal, {"name": "ann"}, {"kind": "service"}),
    "key revoked": (ApiKey, {"principal__name": "robot"}, {"status": "revoked", "revoked_at": 1}),
    "key expired": (ApiKey, {"principal__name": "robot"}, {"expires_at": NOW}),
    "tenant suspended": (Tenant, {"id": "acme"}, {"status": "suspended"}),
}


@pytest.mark.clause("IAM-5", "every use checks the whole chain")
@pytest.mark.parametrize("link", LINKS)
def test_every_link_of_the_chain_counts_alone(world: World, session: Session, clock: Clock, link: str) -> None:
    model, where, broken = LINKS[link]
    stored = (world.bob.id, session.session_id, session.agent_id)
    assert list(live_callers([stored], now=clock.now)) == [stored]
    before = Decision.objects.count()
    with transaction.atomic():
        changed = {name: clock.now if value is NOW else value for name, value in broken.items()}
        assert model._default_manager.filter(**where).update(**changed) == 1
        first = session.iam(WHOAMI).refused("UNAUTHENTICATED")
        session("pools/list").refused("UNAUTHENTICATED")
        # A worker that decides a stored request asks the same.
        assert live_callers([stored], now=clock.now) == {}
        transaction.set_rollback(True)
    unknown = Api(tokens.mint(tokens.SESSION_TYPE).text, "acme").iam(WHOAMI).refused("UNAUTHENTICATED")
    assert first | {"requestId": ""} == unknown | {"requestId": ""}
    assert Decision.objects.count() == before
    assert session("pools/list").status == 200


def revoke_key(world: World, session: Session) -> None:
    (key,) = world.ann.api.iam("keys/list", principalId=session.agent_id).data["keys"]
    world.ann.api.iam("keys/revoke", keyId=key["id"]).data  # noqa: B018


def suspend_user(world: World, _session: Session) -> None:
    world.acme.api.iam("principals/suspend", principalId=world.bob.id).data  # noqa: B018


def suspend_sponsor(world: World, _session: Session) -> None:
    world.acme.api.iam("principals/suspend", principalId=world.ann.id).data  # noqa: B018


def suspend_agent(world: World, session: Session) -> None:
    world.ann.api.iam("agents/suspend", agentId=session.agent_id).data  # noqa: B018


def suspend_all(world: World, _session: Session) -> None:
    world.acme.api.iam("agents/suspendAll").data  # noqa: B018


def revoke_delegation(world: World, session: Session) -> None:
    world.bob.api.iam("delegations/revoke", delegationId=session.delegation_id).data  # noqa: B018


def suspend_tenant(world: World, _session: Session) -> None:
    world.admin.iam("tenants/suspend", id="acme").data  # noqa: B018


ENDINGS = (revoke_key, suspend_user, suspend_sponsor, suspend_agent, suspend_all, revoke_delegation, suspend_tenant)


@pytest.mark.clause("IAM-5", "every use checks the whole chain")
@pytest.mark.parametrize("ending", ENDINGS)
def test_whatever_ends_it_bites_at_the_next_call(
    world: World, session: Session, ending: Callable[[World, Session], None]
) -> None:
    other = world.session(world.agent(world.gil, "other"), world.gil)
    assert session("pools/list").status == 200
    ending(world, session)
    session("pools/list").refused("UNAUTHENTICATED")
    assert other("pools/list").status == 200


def test_a_user_who_comes_back_has_no_old_session(world: World, robot: Person, session: Session) -> None:
    suspend_user(world, session)
    world.acme.api.iam("principals/resume", principalId=world.bob.id).data  # noqa: B018
    session.iam(WHOAMI).refused("UNAUTHENTICATED")
    # The delegation stands.
    assert world.assume(robot, session.delegation_id).iam(WHOAMI).status == 200


def test_a_sponsor_who_comes_back_finds_everything_as_it_was(world: World, session: Session) -> None:
    suspend_sponsor(world, session)
    world.acme.api.iam("principals/resume", principalId=world.ann.id).data  # noqa: B018
    assert session.iam(WHOAMI).status == 200


@pytest.mark.clause("IAM-5", "a session ends with the key that assumed it")
def test_a_session_ends_with_its_key(world: World, robot: Person, session: Session, clock: Clock) -> None:
    second = world.ann.api.iam("keys/create", principalId=robot.id).data
    other = world.assume(Person(robot.id, Api(second["token"], "acme")), session.delegation_id)
    key_id = key_of_session(session)
    world.ann.api.iam("keys/rotate", keyId=key_id, overlapSeconds=60).data  # noqa: B018
    # The overlap is the session's too, and it says so.
    assert session.iam(WHOAMI).data["expiresAt"] == clock.now + 60_000
    clock.advance(milliseconds=59_999)
    assert session.iam(WHOAMI).status == 200
    clock.advance(milliseconds=1)
    session.iam(WHOAMI).refused("UNAUTHENTICATED")
    assert other.iam(WHOAMI).status == 200
    world.ann.api.iam("keys/revoke", keyId=second["key"]["id"]).data  # noqa: B018
    other.iam(WHOAMI).refused("UNAUTHENTICATED")


def key_of_session(session: Session) -> str:
    return DelegatedSession.objects.get(id=session.session_id).key_id


# --- Used -------------------------------------------------------------------------------------------------------------


@pytest.mark.clause("IAM-1", "every ceiling of a session must permit")
def test_ceilings_of_a_session_are_read_live(world: World, robot: Person, session: Session) -> None:
    assert session("pools/list").status == session("quotas/list").status == 200
    boundary = ["compute:pools:read", "iam:delegations:assume"]
    world.acme.api.iam("principals/update", principalId=robot.id, boundary=boundary).data  # noqa: B018
    assert session("pools/list").status == 200
    session("quotas/list").refused("ACCESS_DENIED")
    assert last_decision(outcome="deny").reason == "boundary"


@pytest.mark.clause("IAM-1", "every ceiling of a session must permit")
def test_the_key_that_assumed_bounds_the_session(world: World) -> None:
    robot = world.agent(world.ann, key={"scopes": ["iam:delegations:assume", "compute:pools:read"]})
    session = world.session(robot, world.bob)
    assert session("pools/list").status == 200
    session("quotas/list").refused("ACCESS_DENIED")
    entry = last_decision(outcome="deny")
    assert (entry.reason, entry.principal_id, entry.agent_id) == ("key-scope", world.bob.id, robot.id)
    assert (entry.delegation_id, entry.key_id) == (session.delegation_id, key_of(robot).id)


def test_a_session_is_its_users_and_not_its_agents(world: World, session: Session, robot: Person) -> None:
    """The user's roles count and not the agent's; what belongs to the user is at hand, what is the agent's is not."""
    world.acme.api.iam("principals/update", principalId=robot.id, roles=["tenant-admin"]).data  # noqa: B018
    session("pools/create", name="p", region="eu", gpuModel="h100", deviceClass="gpu").refused("ACCESS_DENIED")
    wide = world.session(robot, world.bob, ["*"])
    world.acme.api.iam("principals/update", principalId=robot.id, boundary=["*"]).data  # noqa: B018
    assert wide.iam("principals/get", principalId=world.bob.id).status == 200
    wide.iam("principals/get", principalId=robot.id).refused("ACCESS_DENIED")
    wide.iam("principals/get", principalId=world.bob.id, tenantId="globex").refused("ACCESS_DENIED")


FORBIDDEN: dict[str, dict[str, Any]] = {
    "keys/create": {"principalId": "bob"},
    "keys/rotate": {"keyId": "key_x"},
    "policies/put": {"name": "p", "text": "permit(principal, action, resource);"},
    "policies/delete": {"name": "p"},
    "principals/create": {"kind": "user", "name": "n"},
    "principals/update": {"principalId": "bob", "name": "n"},
    "principals/resume": {"principalId": "bob"},
    "agents/create": {"name": "n"},
    "agents/resume": {"agentId": "robot"},
    "delegations/grant": {"agentId": "robot", "scopes": ["*"]},
    "delegations/assume": {"delegationId": "dlg_x"},
}


@pytest.mark.clause("IAM-5", "what a delegated session never may")
@pytest.mark.parametrize("method", FORBIDDEN)
def test_what_a_session_never_may(world: World, method: str) -> None:
    robot = world.agent(world.acme, boundary=["*"])
    session = world.session(robot, world.acme, ["*"])
    names = {"bob": world.bob.id, "robot": robot.id}
    fields = {name: names.get(str(value), value) for name, value in FORBIDDEN[method].items()}
    before = [model.objects.count() for model in (Principal, ApiKey, Delegation, DelegatedSession)]
    assert "details" not in session.iam(method, **fields).refused("ACCESS_DENIED")
    entry = last_decision(outcome="deny")
    assert (entry.reason, entry.agent_id, entry.principal_id) == ("session-rule", robot.id, world.acme.id)
    # It is refused before any id is looked up.
    unknown = {name: "nothing" if name.endswith("Id") else value for name, value in fields.items()}
    session.iam(method, **unknown).refused("ACCESS_DENIED")
    assert [model.objects.count() for model in (Principal, ApiKey, Delegation, DelegatedSession)] == before


def test_a_session_may_stop_things(world: World) -> None:
    robot = world.agent(world.acme, boundary=["*"])
    session = world.session(robot, world.acme, ["*"])
    assert session.iam("principals/suspend", principalId=world.bob.id).status == 200
    assert session.iam("keys/revoke", keyId=ApiKey.objects.get(principal_id=world.vic.id).id).status == 200
    assert session.iam("delegations/revoke", delegationId=session.delegation_id).status == 200
    session.iam(WHOAMI).refused("UNAUTHENTICATED")


# --- What it costs, and what is left of it ----------------------------------------------------------------------------


@pytest.mark.clause("API-2", "typed and checksummed")
def test_authenticating_a_session_is_one_query(world: World, session: Session, django_assert_num_queries: Any) -> None:
    now = compute_now()
    caller = authenticate(session.token, now=now, source_ip=None)
    assert (caller.principal_id, caller.agent_id, caller.session_id) == (
        world.bob.id,
        session.agent_id,
        session.session_id,
    )
    with django_assert_num_queries(1):
        authenticate(session.token, now=now, source_ip=None)
    unknown = tokens.mint(tokens.SESSION_TYPE).text
    other_secret = session.token[:12] + unknown[12:44]
    key_like = "cpk_" + session.token[4:44]
    # A wrong secret, an unknown beginning, and that of a session as a key take one query, a wrong checksum none.
    cases = [
        (1, unknown),
        (1, other_secret + tokens.checksum(other_secret)),
        (1, key_like + tokens.checksum(key_like)),
        (0, "cpk_" + session.token[4:]),
    ]
    for queries, token in cases:
        with django_assert_num_queries(queries), pytest.raises(Unauthenticated):
            authenticate(token, now=now, source_ip=None)


def test_the_use_of_a_session_is_no_use_of_its_key(world: World, session: Session, robot: Person, clock: Clock) -> None:
    used = key_of(robot).last_used_at
    clock.advance(seconds=120)
    assert session.iam(WHOAMI).status == 200
    assert key_of(robot).last_used_at == used
    assert robot.api.iam(WHOAMI).status == 200
    assert key_of(robot).last_used_at != used


def test_what_its_key_may_per_minute_comes_with_the_caller(world: World) -> None:
    robot = world.agent(world.ann, key={"requestsPerMinute": 77})
    session = world.session(robot, world.bob)
    now = compute_now()
    limits = [
        authenticate(token, now=now, source_ip=None).requests_per_minute
        for token in (robot.api.token, session.token, world.bob.api.token)
    ]
    assert limits == [77, 77, None]


def test_the_callers_of_many_stored_requests_are_two_queries(
    world: World, robot: Person, clock: Clock, django_assert_num_queries: Any
) -> None:
    sessions = [world.session(robot, user) for user in (world.bob, world.vic, world.ann)]
    keys = [(who.id, ApiKey.objects.get(principal_id=who.id).id, "") for who in (world.bob, world.vic, robot)]
    wanted = [*keys, *((one.user_id, one.session_id, robot.id) for one in sessions)]
    # Not a session's of somebody else, nor a key as a session, nor the other way round.
    strangers = [
        (world.ann.id, sessions[0].session_id, robot.id),
        (world.bob.id, sessions[0].session_id, world.vic.id),
        (world.bob.id, sessions[0].session_id, ""),
        (world.bob.id, keys[0][1], robot.id),
        (world.bob.id, "", ""),
    ]
    with django_assert_num_queries(2):
        found = live_callers([*wanted, *strangers], now=clock.now)
    assert set(found) == set(wanted)
    assert {caller.credential_id for caller in found.values()} == {credential_id for _, credential_id, _ in wanted}
    with django_assert_num_queries(1):
        live_callers(keys, now=clock.now)


@pytest.mark.clause("API-2", "shown once, stored as a hash")
def test_a_sessions_token_is_in_no_row_no_answer_and_no_log(
    world: World, robot: Person, session: Session, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    other = world.assume(robot, session.delegation_id, idempotencyKey="one")
    again = robot.api.iam("delegations/assume", delegationId=session.delegation_id, idempotencyKey="one").body
    session.iam("principals/list").refused("ACCESS_DENIED")
    session("pools/get", poolId="pool_x").refused("NOT_FOUND")
    pool = world.offered_pool()
    session("pools/get", poolId=pool).data  # noqa: B018
    events = str(world.acme.api("events/list").body)
    lists = [str(world.acme.api.iam(f"{group}/list").body) for group in ("keys", "principals", "agents")]
    shown = [str(again), *lists, events, str(world.bob.api.iam("delegations/list").body)]
    with connection.cursor() as cursor:
        cursor.execute("SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace")
        for (table,) in cursor.fetchall():
            cursor.execute(f"SELECT coalesce(string_agg(t::text, chr(10)), '') FROM \"{table}\" AS t")
            shown.append(cursor.fetchone()[0])
    logged = "\n".join(str(record.msg) + record.getMessage() for record in caplog.records)
    assert "request_finished" in logged
    for token in (session.token, other.token, robot.api.token):
        assert not any(token[12:] in text for text in [*shown, logged])
        assert any(tokens.read(token).digest in text for text in shown)  # type: ignore[union-attr]


def test_what_is_long_over_is_forgotten(world: World, robot: Person, session: Session, clock: Clock) -> None:
    fields = {"delegationId": session.delegation_id, "idempotencyKey": fresh_key()}
    for _ in range(2):
        world.assume(robot, session.delegation_id)
    robot.api.iam("delegations/assume", **fields).data  # noqa: B018
    # Whatever their ids, the oldest go first.
    last = DelegatedSession.objects.order_by("id")[0]
    DelegatedSession.objects.exclude(id=last.id).update(expires_at=F("expires_at") - 1)
    clock.advance(seconds=900)
    clock.advance(hours=30 * 24, milliseconds=-1)
    clock.advance(milliseconds=-1)
    assert forget_old_sessions(now=clock.now, limit=10) == 0
    clock.advance(milliseconds=2)
    # The delegation has ended by now; sessions of a later one are kept.
    young = world.session(robot, world.bob)
    assert forget_old_sessions(now=clock.now, limit=3) == 3
    assert DelegatedSession.objects.filter(id=last.id).exists()
    assert forget_old_sessions(now=clock.now, limit=3) == 1
    assert forget_old_sessions(now=clock.now, limit=3) == 0
    assert [one.id for one in DelegatedSession.objects.all()] == [young.session_id]
    # The idempotency key is no new one: what it made is gone.
    robot.api.iam("delegations/assume", **fields).refused("NOT_FOUND")
