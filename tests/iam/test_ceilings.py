"""Ceilings: each is one more permit that must be there, read live; and what a session never may (IAM-1, IAM-5)."""

from typing import Any

import pytest

from iam.models import ApiKey, Decision, Principal, Tenant
from tests.iam.support import last_decision, put
from tests.kernel.test_isolation import INPUTS, faceless
from tests.support.api import Answer
from tests.support.world import Person, Session, World

FREE = ["*"]
# Enough for the agent itself: to assume.
ASSUME = "iam:delegations:assume"
READ = "compute:pools:read"


def last_reason(**wanted: Any) -> str:
    """Why the latest call was denied."""
    return str(last_decision(outcome="deny", **wanted).reason)


def chained(
    world: World,
    user: Person,
    *,
    key: list[str] = FREE,
    boundary: list[str] = FREE,
    scopes: list[str] = FREE,
    **of: Any,
) -> Session:
    """A session with these ceilings."""
    agent = world.agent(world.ann, key={"scopes": key}, boundary=boundary)
    return world.session(agent, user, scopes=scopes, **of)


# --- Each alone ---


@pytest.mark.clause("IAM-1", "every ceiling must permit too")
@pytest.mark.parametrize(
    ("ceilings", "reason"),
    [
        ({}, None),
        ({"key": ["iam:*"]}, "key-scope"),
        ({"boundary": ["iam:*"]}, "boundary"),
        ({"scopes": ["iam:*"]}, "delegation-scope"),
        ({"assume": {"scopes": ["iam:*:read"]}}, "delegation-scope"),
        # The first of several, in the order of the log's reasons.
        ({"boundary": ["iam:*"], "scopes": ["iam:*"]}, "boundary"),
        ({"key": ["iam:*"], "boundary": ["iam:*"], "scopes": ["iam:*"]}, "key-scope"),
        ({"key": [READ, ASSUME], "boundary": ["compute:*", ASSUME], "scopes": ["compute:*:read"]}, None),
    ],
)
def test_each_ceiling_of_a_session_bounds_it_alone(world: World, ceilings: dict[str, Any], reason: str | None) -> None:
    session = chained(world, world.bob, **ceilings)
    answer = session("pools/list")
    if reason is None:
        assert answer.data["pools"] == []
        return
    answer.refused("ACCESS_DENIED")
    entry = last_decision(outcome="deny")
    assert (entry.reason, entry.action) == (reason, READ)
    assert entry.policies == [{"policy": "builtin", "statement": "reserver"}]  # policies would have let it through
    assert world.bob.api("pools/list").status == 200


@pytest.mark.clause("IAM-1", "every ceiling must permit too")
@pytest.mark.parametrize(
    ("boundary", "scopes", "reason"),
    [
        (["compute:*"], FREE, None),
        (["iam:*"], FREE, "boundary"),
        (["compute:*"], ["iam:*"], "key-scope"),
    ],
)
def test_an_agent_alone_has_its_boundary_and_its_key(
    world: World, boundary: list[str], scopes: list[str], reason: str | None
) -> None:
    agent = world.agent(world.ann, boundary=boundary, key={"scopes": scopes})
    # An agent has no roles; its tenant gives it this right.
    put(world, f'permit (principal is Compute::Agent, action == Compute::Action::"{READ}", resource);')
    answer = agent.api("pools/list")
    if reason is None:
        assert answer.status == 200
    else:
        answer.refused("ACCESS_DENIED")
        assert last_reason() == reason


@pytest.mark.clause("IAM-1", "every ceiling must permit too")
def test_ceilings_grant_nothing(world: World) -> None:
    nobody = world.person(world.acme, "nobody")
    chained(world, nobody)("pools/list").refused("ACCESS_DENIED")
    assert last_reason() == "no-permit"


# --- Live ---


@pytest.mark.clause("IAM-1", "ceilings are read live")
def test_narrowing_a_boundary_narrows_open_sessions(world: World) -> None:
    agent = world.agent(world.ann, boundary=FREE)
    session = world.session(agent, world.bob, scopes=FREE)
    narrow = {"boundary": ["compute:reservations:*", ASSUME]}
    assert session("pools/list").status == 200
    world.acme.api.iam("principals/update", principalId=agent.id, **narrow).data  # noqa: B018
    session("pools/list").refused("ACCESS_DENIED")
    assert last_reason() == "boundary"
    assert session("reservations/list").status == 200
    world.acme.api.iam("principals/update", principalId=agent.id, boundary=FREE).data  # noqa: B018
    assert session("pools/list").status == 200


@pytest.mark.clause("IAM-1", "from live state")
def test_a_session_has_the_roles_and_groups_that_its_user_has_now(world: World) -> None:
    session = chained(world, world.bob)
    assert session("pools/list").status == 200
    world.acme.api.iam("principals/update", principalId=world.bob.id, roles=[]).data  # noqa: B018
    session("pools/list").refused("ACCESS_DENIED")
    assert last_reason() == "no-permit"


# --- As its user alone ---


@pytest.mark.clause("IAM-5", "a session never may what its user may not")
@pytest.mark.parametrize("condition", ["context.delegated", 'context.agentId != ""', "{c: context}.c.delegated"])
def test_no_policy_gives_a_session_more_than_its_user(world: World, condition: str) -> None:
    session = chained(world, world.vic)
    put(
        world,
        f'permit (principal, action == Compute::Action::"compute:pools:create", resource) when {{ {condition} }};',
    )
    session("pools/create", **INPUTS["pools/create"]).refused("ACCESS_DENIED")
    entry = last_decision(outcome="deny")
    assert (entry.reason, entry.policies) == ("no-permit", [])
    assert entry.context["delegated"] is True


@pytest.mark.clause("IAM-5", "a session never may what its user may not")
def test_what_is_forbidden_to_the_user_alone_is_forbidden_to_the_session(world: World) -> None:
    session = chained(world, world.bob)
    scope = f'principal, action == Compute::Action::"{READ}", resource'
    put(world, f'@id("by-hand") forbid ({scope}) unless {{ context.delegated }};')
    world.bob.api("pools/list").refused("ACCESS_DENIED")
    assert last_reason(agent_id="") == "forbidden"
    session("pools/list").refused("ACCESS_DENIED")
    entry = last_decision(agent_id=session.agent_id, outcome="deny")
    assert (entry.reason, entry.policies) == ("forbidden", [{"policy": "rules", "version": 1, "statement": "by-hand"}])


def test_a_rule_for_sessions_binds_them_and_not_their_user(world: World) -> None:
    session = chained(world, world.bob)
    put(world, f'forbid (principal, action == Compute::Action::"{READ}", resource) when {{ context.delegated }};')
    assert world.bob.api("pools/list").status == 200
    session("pools/list").refused("ACCESS_DENIED")
    assert last_reason() == "forbidden"


# --- What a session never may ---

NEVER = (
    *("keys/create", "keys/rotate", "policies/put", "policies/delete"),
    *("principals/create", "principals/update", "principals/resume", "agents/create", "agents/resume"),
    *("delegations/grant", "delegations/assume", "confirmations/decide"),
)


def call(session: Session, method: str) -> Answer:
    """With ids that do not exist."""
    return session.iam(method, **INPUTS[method])


@pytest.mark.clause("IAM-5", "what a session can never do")
@pytest.mark.clause("IAM-7", "all mutations and all denials are entries")
@pytest.mark.parametrize("method", NEVER)
def test_a_session_never_may_these_before_any_id_is_looked_up(world: World, method: str) -> None:
    session = chained(world, world.acme)
    call(session, method).refused("ACCESS_DENIED")
    entry = last_decision(outcome="deny")
    assert (entry.reason, entry.policies, entry.resource_type) == ("session-rule", [], "iam-tenant")
    assert (entry.agent_id, entry.delegation_id) == (session.agent_id, session.delegation_id)
    assert entry.action == f"iam:{method.replace('/', ':')}"


@pytest.mark.clause("IAM-5", "what a session can never do")
def test_a_session_makes_no_tenant_with_an_administrator_and_a_key(world: World) -> None:
    operator = world.person(Person("", world.admin), "olga", "tenant-admin")
    session = world.session(world.agent(operator, boundary=FREE), operator, scopes=FREE)
    session.iam("tenants/create", id="initech", name="Initech", admin={"name": "bill"}).refused("ACCESS_DENIED")
    entry = last_decision(outcome="deny")
    assert entry.reason == "session-rule"
    # No policy had to do with it, then or now.
    explained = world.admin.iam("decisions/explain", decisionId=entry.id).data["decision"]
    assert (explained["outcome"], explained["reason"]) == ("deny", "session-rule")
    assert not Tenant.objects.filter(id="initech").exists()
    assert session.iam("tenants/create", id="initech", name="Initech").status == 200


@pytest.mark.clause("IAM-5", "what a session can never do")
def test_a_session_registers_no_node_and_so_makes_no_key(world: World) -> None:
    """With the boundary that agents have by default; the node's key would outlive the session."""
    operator = world.person(Person("", world.admin), "olga", "tenant-admin", "fleet-admin")
    session = world.session(world.agent(operator), operator)
    keys = ApiKey.objects.count()
    session("nodes/register", name="mole", positions=1, poolId="none").refused("ACCESS_DENIED")
    entry = last_decision(outcome="deny")
    assert (entry.reason, entry.action) == ("session-rule", "compute:fleet:admin")
    assert not Principal.objects.filter(name="mole").exists()
    assert ApiKey.objects.count() == keys
    assert session("nodes/list").status == 200


@pytest.mark.clause("IAM-5", "what a session can never do")
def test_it_may_still_stop_things(world: World) -> None:
    session = chained(world, world.acme)
    key = world.bob.api.iam("keys/list", principalId=world.bob.id).data["keys"][0]["id"]
    assert session.iam("keys/revoke", keyId=key).data["key"]["status"] == "revoked"
    assert session.iam("principals/suspend", principalId=world.vic.id).data["principal"]["status"] == "suspended"
    delegation = session.iam("delegations/revoke", delegationId=session.delegation_id).data["delegation"]
    assert delegation["status"] == "revoked"


# --- One answer for every cause ---


@pytest.mark.clause("IAM-3", "the caller sees ACCESS_DENIED and nothing else")
def test_the_caller_is_told_the_same_whatever_the_cause(world: World) -> None:
    sessions = {
        "key-scope": chained(world, world.bob, key=["iam:*"]),
        "boundary": chained(world, world.bob, boundary=["iam:*"]),
        "delegation-scope": chained(world, world.bob, scopes=["iam:*"]),
    }
    refused = {reason: session("pools/list") for reason, session in sessions.items()}
    refused["no-permit"] = world.vic.api("pools/create", **INPUTS["pools/create"])
    refused["session-rule"] = call(sessions["boundary"], "keys/create")
    # Not the user's own, whatever policies permit.
    refused["barred"] = world.agent(world.ann).api.iam(
        "delegations/assume", delegationId=sessions["boundary"].delegation_id
    )
    late = 'context.time.offset(duration("9223372036854775807ms")) < context.time'
    put(world, f'permit (principal, action == Compute::Action::"{READ}", resource) when {{ {late} }};', "erring")
    refused["policy-error"] = world.bob.api("pools/list")
    world.acme.api.iam("policies/delete", name="erring").data  # noqa: B018
    put(world, f'forbid (principal, action == Compute::Action::"{READ}", resource);', "forbids")
    refused["forbidden"] = world.bob.api("pools/list")
    refused["isolation"] = world.bob.api("pools/list", tenantId="globex")
    answers = {reason: str(faceless(answer)) for reason, answer in refused.items()}
    assert len(set(answers.values())) == 1, answers
    assert set(refused["isolation"].error) == {"code", "message", "fix", "docs", "requestId"}
    # And each can be found by its request id, and why.
    for reason, answer in refused.items():
        entry = Decision.objects.get(request_id=answer.error["requestId"], outcome="deny")
        assert entry.reason == {"barred": "no-permit", "isolation": "forbidden"}.get(reason, reason)


@pytest.mark.clause("IAM-7", "all mutations and all denials are entries")
@pytest.mark.clause("IAM-4", "a caller of another tenant is refused")
def test_a_foreign_tenant_is_an_entry_of_the_callers_own(world: World) -> None:
    world.acme.api("reservations/list", tenantId="globex").refused("ACCESS_DENIED")
    entry = last_decision(outcome="deny")
    assert (entry.tenant_id, entry.principal_id) == ("acme", world.acme.id)
    assert (entry.resource_type, entry.resource_id, entry.attributes) == (
        "compute-tenant",
        "globex",
        {"tenantId": "globex"},
    )
    assert (entry.reason, entry.policies) == ("forbidden", [{"policy": "builtin", "statement": "isolation"}])
    world.acme.api("reservations/get", tenantId="globex", reservationId="res_x").refused("ACCESS_DENIED")
    entry = last_decision(outcome="deny", resource_type="compute-reservation")
    assert (entry.resource_id, entry.attributes) == ("", {"tenantId": "globex"})
