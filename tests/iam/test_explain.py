"""``decisions/list`` and ``decisions/explain`` (IAM-3; IAM-API §2, §3, §6, §9)."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from computeplatform.errors import AccessDenied
from iam.models import ApiKey, Decision
from iam.operations.confirmations import gate
from iam.operations.decisions import DECISIONS, Question, decide_many, refuse_barred
from iam.ports import decide
from reservations.vocabulary import ATTRIBUTES
from tests.iam.random_policies import ACTIONS, TEXTS
from tests.iam.support import CREATE, ERRING, NOT_US_EAST, caller, circumstances, put, reservation
from tests.support.api import Answer
from tests.support.clock import Clock
from tests.support.world import Person, Session, World, fresh_key

EXTEND = "compute:reservations:extend"
ASKED = {"principalId": "", "action": CREATE, "resource": {"type": "compute-reservation"}}


def explain(world: World, **fields: Any) -> dict[str, Any]:
    return dict(world.acme.api.iam("decisions/explain", **fields).data)


def ask(world: World, who: str, **changed: Any) -> Answer:
    """A question about this principal."""
    return world.acme.api.iam("decisions/explain", question=ASKED | {"principalId": who} | changed)


def listed(world: World, **wanted: Any) -> list[dict[str, Any]]:
    return list(world.acme.api.iam("decisions/list", **wanted).data["decisions"])


def session_caller(session: Session) -> Person:
    return Person(session.user_id, session)


# --- The log ---


@pytest.mark.clause("IAM-3", "who may sees why in decisions/list")
def test_the_log_says_what_was_decided_and_why(world: World, clock: Clock) -> None:
    put(world, NOT_US_EAST)
    ann = caller(world.ann)
    resource = reservation(region="us-east", estimatedCost=Decimal("17.6000"))
    decide(ann, CREATE, resource, context=circumstances(request_id="req-1"), record=True)
    (shown,) = listed(world, requestId="req-1")
    assert shown == {
        "id": shown["id"],
        "tenantId": "acme",
        "at": clock.now,
        "principal": {"id": world.ann.id, "kind": "user"},
        "keyId": ApiKey.objects.get(principal_id=world.ann.id).id,
        "action": CREATE,
        "resource": {"type": "compute-reservation", "id": "res_1"},
        "attributes": dict(resource.attributes) | {"estimatedCost": "17.6000"},
        "context": {"delegated": False, "agentId": "", "time": clock.now, "sourceIp": "192.0.2.7"},
        "outcome": "deny",
        "reason": "forbidden",
        "policies": [{"policy": "rules", "version": 1, "statement": "not-us-east"}],
        "errors": [],
        "requestId": "req-1",
    }


@pytest.mark.clause("IAM-3", "who may sees why in decisions/list")
def test_filters_narrow_the_log(world: World, clock: Clock) -> None:
    session = world.session(world.agent(world.ann), world.bob)
    clock.advance(seconds=10)
    began = clock.now
    for who, resource_id in ((world.bob, "res_a"), (session_caller(session), "res_b"), (world.vic, "res_b")):
        resource = reservation()
        decide(
            caller(who), CREATE, type(resource)(resource.type, resource_id, "acme", resource.attributes),
            context=circumstances(request_id=f"req-{resource_id}"), record=True,
        )  # fmt: skip
        clock.advance(seconds=1)
    by = {"from": began, "action": CREATE}

    def ids(**wanted: Any) -> list[tuple[str, str]]:
        found = listed(world, **by | wanted)
        return [(d["principal"]["id"], d["resource"]["id"]) for d in found]

    bob, agent, vic = (world.bob.id, "res_a"), (world.bob.id, "res_b"), (world.vic.id, "res_b")
    assert ids() == [vic, agent, bob]  # newest first
    assert ids(outcome="deny") == [vic]
    assert ids(principalId=world.bob.id) == [agent, bob]
    assert ids(agentId=session.agent_id) == [agent]
    assert ids(resourceId="res_b") == [vic, agent]
    assert ids(requestId="req-res_a") == [bob]
    assert ids(to=began + 1_000) == [bob]
    assert ids(**{"from": began + 1_000}) == [vic, agent]
    assert ids(action=EXTEND) == []
    (shown,) = listed(world, agentId=session.agent_id)
    assert (shown["delegationId"], shown["context"]["delegated"]) == (session.delegation_id, True)


def test_pages_follow_each_other(world: World) -> None:
    for _ in range(5):
        decide(caller(world.vic), CREATE, reservation(), context=circumstances(), record=True)
    seen: list[str] = []
    page: dict[str, Any] = {"nextCursor": None}
    while "nextCursor" in page:
        following = {"cursor": page["nextCursor"]} if page["nextCursor"] else {}
        page = world.acme.api.iam("decisions/list", principalId=world.vic.id, limit=2, **following).data
        seen += [d["id"] for d in page["decisions"]]
    assert len(seen) == len(set(seen)) == 5
    assert seen == sorted(seen, reverse=True)


def test_a_cursor_of_another_tenant_is_none(world: World) -> None:
    decide(caller(world.gil), CREATE, reservation("globex"), context=circumstances(), record=True)
    theirs = Decision.objects.get(tenant_id="globex", action=CREATE).id
    for cursor in (theirs, "dec_nothing"):
        world.acme.api.iam("decisions/list", cursor=cursor).refused_at("cursor")
    assert theirs not in {d["id"] for d in listed(world, limit=200)}
    world.acme.api.iam("decisions/explain", decisionId=theirs).refused("NOT_FOUND")


def test_from_is_before_to(world: World) -> None:
    world.acme.api.iam("decisions/list", **{"from": 2, "to": 2}).refused_at("to")


@pytest.mark.clause("IAM-3", "who may: iam:decisions:read")
@pytest.mark.parametrize("method", ["decisions/list", "decisions/explain"])
def test_only_who_may_reads_decisions(world: World, method: str) -> None:
    given = {} if method.endswith("list") else {"question": ASKED | {"principalId": world.vic.id}}
    world.vic.api.iam(method, **given).refused("ACCESS_DENIED")
    put(
        world,
        'permit (principal in Compute::Role::"viewer", action == Compute::Action::"iam:decisions:read", resource);',
    )
    assert world.vic.api.iam(method, **given).status == 200


# --- Explain a question ---


@pytest.mark.clause("IAM-3", "explain says why")
def test_a_question_is_answered_with_empty_attributes(world: World, clock: Clock) -> None:
    found = ask(world, world.ann.id).data
    empty: dict[str, Any] = {"String": "", "Long": 0, "Bool": False, "decimal": "0"}
    assert found["decision"] == {
        "tenantId": "acme",
        "at": clock.now,
        "principal": {"id": world.ann.id, "kind": "user"},
        "action": CREATE,
        "resource": {"type": "compute-reservation", "id": ""},
        "attributes": {n: empty[k] for n, k in ATTRIBUTES.items()} | {"tenantId": "acme", "nodes": 1},
        "context": {"delegated": False, "agentId": "", "time": clock.now},
        "outcome": "allow",
        "reason": "permitted",
        "policies": [{"policy": "builtin", "statement": "reserver"}],
        "errors": [],
        "requestId": found["decision"]["requestId"],
    }
    assert found["ceilings"] == {"keyScope": "none", "boundary": "none", "delegationScope": "none"}
    assert found["confirmation"] == "not-needed"


@pytest.mark.clause("IAM-3", "explain decides without recording")
@pytest.mark.clause("IAM-7", "explain is no entry")
def test_explaining_records_and_counts_nothing(world: World) -> None:
    def counted() -> float:
        return sum(s.value for m in DECISIONS.collect() for s in m.samples if s.labels.get("action") == CREATE)

    before, count = Decision.objects.count(), counted()
    assert ask(world, world.vic.id).data["decision"]["outcome"] == "deny"
    decide(caller(world.vic), CREATE, reservation(), context=circumstances(), record=True)
    (entry,) = listed(world, principalId=world.vic.id)
    explain(world, decisionId=entry["id"])
    assert Decision.objects.count() == before + 1
    assert counted() == count + 1


@pytest.mark.parametrize(
    ("attributes", "outcome"),
    [
        ({"region": "eu"}, "allow"),
        ({"region": "us-east"}, "deny"),
        ({"region": "eu", "estimatedCost": "100.0001"}, "deny"),
        ({"region": "eu", "estimatedCost": "100"}, "allow"),
        ({"region": "eu", "nodes": 3}, "deny"),
        ({"region": "eu", "spot": True}, "deny"),
    ],
)
def test_attributes_count_with_their_types(world: World, attributes: dict[str, Any], outcome: str) -> None:
    conditions = (
        'resource.region == "us-east"',
        'resource.estimatedCost.greaterThan(decimal("100.0"))',
        "resource.spot",
    )
    rules = [f'forbid (principal, action == Compute::Action::"{CREATE}", resource) when {{ {c} }};' for c in conditions]
    put(world, "\n".join([*rules, rules[2].replace("resource.spot", "resource.nodes > 2")]))
    decision = ask(world, world.ann.id, attributes=attributes).data["decision"]
    assert decision["outcome"] == outcome
    assert {k: decision["attributes"][k] for k in attributes} == attributes


@pytest.mark.parametrize(
    ("changed", "paths"),
    [
        ({"attributes": {"gpuCount": "8"}}, {"question.attributes.gpuCount"}),
        ({"attributes": {"gpuCount": True}}, {"question.attributes.gpuCount"}),
        ({"attributes": {"gpuCount": 1.5}}, {"question.attributes.gpuCount"}),
        ({"attributes": {"gpuCount": None}}, {"question.attributes.gpuCount"}),
        ({"attributes": {"spot": 1}}, {"question.attributes.spot"}),
        ({"attributes": {"region": 1}}, {"question.attributes.region"}),
        ({"attributes": {"region": "x" * 301}}, {"question.attributes.region"}),
        ({"attributes": {"estimatedCost": 17.6}}, {"question.attributes.estimatedCost"}),
        ({"attributes": {"estimatedCost": "1.00001"}}, {"question.attributes.estimatedCost"}),
        ({"attributes": {"estimatedCost": "1e3"}}, {"question.attributes.estimatedCost"}),
        ({"attributes": {"estimatedCost": "999999999999999.0000"}}, {"question.attributes.estimatedCost"}),
        (
            {"attributes": {"colour": "red", "gpuCount": "8"}},
            {"question.attributes.colour", "question.attributes.gpuCount"},
        ),
        ({"attributes": [1]}, {"question.attributes"}),
        ({"action": "compute:reservations:destroy"}, {"question.action"}),
        ({"action": "compute:*"}, {"question.action"}),
        ({"resource": {"type": "compute-thing"}}, {"question.resource.type"}),
        ({"resource": {"type": "Reservation"}}, {"question.resource.type"}),
        ({"resource": {"type": "compute-pool"}}, {"question.resource.type"}),
        (
            {"resource": {"type": "compute-tenant"}, "attributes": {"a": 1}},
            {"question.resource.type", "question.attributes.a"},
        ),
        ({"resource": {}}, {"question.resource.type"}),
        ({"colour": "red"}, {"question.colour"}),
    ],
)
def test_what_is_no_question_is_refused_with_its_places(world: World, changed: dict[str, Any], paths: set[str]) -> None:
    answer = ask(world, world.ann.id, **changed)
    issues = answer.refused("INVALID_INPUT")["details"]["issues"]
    assert {issue["path"] for issue in issues} == paths


@pytest.mark.parametrize("given", [{}, {"decisionId": "dec_x", "question": ASKED | {"principalId": "usr_x"}}])
def test_exactly_one_of_both(world: World, given: dict[str, Any]) -> None:
    world.acme.api.iam("decisions/explain", **given).refused_at("decisionId")


def test_what_is_not_there_is_not_found(world: World) -> None:
    key, theirs = ApiKey.objects.get(principal_id=world.ann.id).id, ApiKey.objects.get(principal_id=world.gil.id).id
    session = world.session(world.agent(world.ann), world.bob)
    for changed in ({"keyId": "key_x"}, {"keyId": theirs}, {"delegationId": "dlg_x"}):
        ask(world, world.ann.id, **changed).refused("NOT_FOUND")
    for who in ("usr_x", world.gil.id):
        ask(world, who).refused("NOT_FOUND")
    unknown = world.acme.api.iam("decisions/explain", decisionId="dec_x").refused("NOT_FOUND")
    entry = Decision.objects.filter(tenant_id="globex").first()
    assert entry is not None
    foreign = world.acme.api.iam("decisions/explain", decisionId=entry.id).refused("NOT_FOUND")
    assert foreign | {"requestId": ""} == unknown | {"requestId": ""}
    # There, but somebody else's.
    ask(world, world.bob.id, keyId=key).refused_at("question.keyId")
    ask(world, world.ann.id, delegationId=session.delegation_id).refused_at("question.delegationId")
    ask(world, world.bob.id, delegationId=session.delegation_id, keyId=key).refused_at("question.keyId")


def test_things_of_the_platform_and_of_others(world: World) -> None:
    fleet = ask(
        world, world.acme.id, action="compute:fleet:read", resource={"type": "compute-fleet", "id": "fleet"}
    ).data
    assert fleet["decision"]["attributes"] == {"tenantId": "platform"}
    assert (fleet["decision"]["reason"], fleet["decision"]["policies"]) == (
        "forbidden", [{"policy": "builtin", "statement": "isolation"}],
    )  # fmt: skip
    theirs = ask(world, world.acme.id, attributes={"tenantId": "globex"}).data["decision"]
    assert (theirs["outcome"], theirs["reason"]) == ("deny", "forbidden")
    tenant = ask(world, world.vic.id, action="compute:pools:read", resource={"type": "compute-tenant"}).data["decision"]
    assert (tenant["resource"]["id"], tenant["outcome"]) == ("acme", "allow")


# --- Ceilings and confirmation ---


@pytest.mark.clause("IAM-3", "explain says what each ceiling permits")
@pytest.mark.parametrize(
    ("key", "boundary", "scopes", "said", "reason"),
    [
        (["*"], ["*"], ["*"], ("permit", "permit", "permit"), "permitted"),
        (["iam:*"], ["*"], ["*"], ("refuse", "permit", "permit"), "key-scope"),
        (["*"], ["iam:*"], ["compute:*"], ("permit", "refuse", "permit"), "boundary"),
        (["compute:*", "iam:*"], ["*"], ["compute:pools:*"], ("permit", "permit", "refuse"), "delegation-scope"),
    ],
)
def test_ceilings_are_told_apart(
    world: World, key: list[str], boundary: list[str], scopes: list[str], said: tuple[str, ...], reason: str
) -> None:
    agent = world.agent(world.ann, key={"scopes": key}, boundary=boundary)
    session = world.session(agent, world.bob, scopes=scopes)
    key_id = ApiKey.objects.get(principal_id=agent.id).id
    found = ask(world, world.bob.id, delegationId=session.delegation_id, keyId=key_id).data
    assert tuple(found["ceilings"].values()) == said
    decision = found["decision"]
    assert (decision["reason"], decision["agentId"], decision["keyId"]) == (reason, agent.id, key_id)
    assert (decision["delegationId"], decision["context"]["delegated"]) == (session.delegation_id, True)
    # Without a key none stands in the way.
    bare = ask(world, world.bob.id, delegationId=session.delegation_id).data["ceilings"]
    assert tuple(bare.values()) == ("none", *said[1:])


@pytest.mark.clause("IAM-5", "confirm gates create and extend alone")
@pytest.mark.parametrize(
    ("confirm", "action", "confirmation", "reason"),
    [
        ([CREATE], CREATE, "needed", "confirmation-required"),
        ([EXTEND], CREATE, "not-needed", "permitted"),
        ([], CREATE, "not-needed", "permitted"),
        (["compute:*"], EXTEND, "needed", "confirmation-required"),
        (["compute:*"], "compute:reservations:release", "not-needed", "permitted"),
    ],
)
def test_what_the_user_would_be_asked(
    world: World, confirm: list[str], action: str, confirmation: str, reason: str
) -> None:
    session = world.session(world.agent(world.ann), world.bob, confirm=confirm)
    question = {"action": action, "attributes": {"creatorId": world.bob.id}, "delegationId": session.delegation_id}
    found = ask(world, world.bob.id, **question).data
    assert (found["confirmation"], found["decision"]["reason"]) == (confirmation, reason)
    # The user themself is not asked.
    del question["delegationId"]
    found = ask(world, world.bob.id, **question).data
    assert (found["confirmation"], found["decision"]["outcome"]) == ("not-needed", "allow")


def test_what_a_session_never_may_is_said(world: World) -> None:
    session = world.session(world.agent(world.ann, boundary=["*"]), world.acme, scopes=["*"])
    about = {"action": "iam:keys:create", "resource": {"type": "iam-tenant"}}
    assert ask(world, world.acme.id, **about).data["decision"]["reason"] == "permitted"
    found = ask(world, world.acme.id, delegationId=session.delegation_id, **about).data
    assert (found["decision"]["reason"], found["decision"]["outcome"]) == ("session-rule", "deny")


# --- Explain an entry ---


def entry_of(world: World, person: Person, action: str = CREATE, **changed: Any) -> str:
    """The id of a decision that is made now."""
    verdict = decide(caller(person), action, reservation(**changed), context=circumstances(), record=True)
    return verdict.decision_id


@pytest.mark.clause("IAM-3", "explain says why")
def test_an_entry_is_explained_with_what_holds_now(world: World, clock: Clock) -> None:
    put(world, NOT_US_EAST)
    decision_id = entry_of(world, world.ann, region="us-east")
    (entry,) = listed(world, resourceId="res_1")
    clock.advance(hours=1)
    found = explain(world, decisionId=decision_id)["decision"]
    assert found == {k: v for k, v in entry.items() if k != "id"} | {"at": clock.now}
    # Today's policies.
    world.acme.api.iam("policies/delete", name="rules").data  # noqa: B018
    found = explain(world, decisionId=decision_id)["decision"]
    assert (found["outcome"], found["reason"]) == ("allow", "permitted")
    assert found["context"] == entry["context"]  # the circumstances of then
    # Today's principal.
    world.acme.api.iam("principals/update", principalId=world.ann.id, roles=[]).data  # noqa: B018
    found = explain(world, decisionId=decision_id)["decision"]
    assert (found["outcome"], found["reason"]) == ("deny", "no-permit")
    assert Decision.objects.get(id=decision_id).reason == "forbidden"


@pytest.mark.clause("IAM-3", "explain says what each ceiling permits")
def test_an_entry_of_a_session_keeps_its_scopes_and_takes_the_boundary_of_now(world: World) -> None:
    agent = world.agent(world.ann, boundary=["*"])
    session = world.session(agent, world.bob, scopes=["*"], assume={"scopes": ["compute:pools:*"]})
    decision_id = entry_of(world, session_caller(session))
    found = explain(world, decisionId=decision_id)
    assert found["decision"]["reason"] == "delegation-scope"
    assert found["ceilings"] == {"keyScope": "permit", "boundary": "permit", "delegationScope": "refuse"}
    narrow = ["iam:delegations:assume"]
    world.acme.api.iam("principals/update", principalId=agent.id, boundary=narrow).data  # noqa: B018
    found = explain(world, decisionId=decision_id)
    assert found["decision"]["reason"] == "boundary"
    assert found["ceilings"]["boundary"] == "refuse"


def test_what_no_policy_can_permit_stays_refused(world: World) -> None:
    """Entries of calls that were not the caller's to make, whatever policies say of them."""
    resource = type(reservation())("iam-tenant", "acme", "acme", {"tenantId": "acme", "subjectId": "", "sponsorId": ""})
    with pytest.raises(AccessDenied):
        refuse_barred(
            caller(world.acme), "iam:confirmations:decide", resource, context=circumstances(), reason="no-permit"
        )
    barred = Decision.objects.get(action="iam:confirmations:decide")
    assert explain(world, decisionId=barred.id)["decision"]["reason"] == "no-permit"
    world.acme.api("pools/list", tenantId="globex").refused("ACCESS_DENIED")
    world.acme.api("reservations/get", tenantId="globex", reservationId="res_1").refused("ACCESS_DENIED")
    for entry in Decision.objects.filter(reason="forbidden"):
        found = explain(world, decisionId=entry.id)["decision"]
        assert (found["reason"], found["policies"]) == ("forbidden", [{"policy": "builtin", "statement": "isolation"}])


def test_what_a_delegation_wants_confirmed_is_said_of_entries_too(world: World) -> None:
    acting = world.session(world.agent(world.ann), world.bob, confirm=[EXTEND])
    who = caller(session_caller(acting))
    resource, context = reservation(creatorId=world.bob.id), circumstances()
    # A renewal is decided as an extension and never gated; an extension is.
    asked = gate({"endsAt": 1}, cost=Decimal(0), currency="", opens=False)
    questions = [Question(who, EXTEND, resource, context), Question(who, EXTEND, resource, context, gate=asked)]
    renewal, extension = decide_many(questions, now=context.time)
    assert (renewal.allowed, extension.allowed) == (True, False)
    found = explain(world, decisionId=renewal.decision_id)
    assert (found["confirmation"], found["decision"]["reason"]) == ("not-needed", "permitted")
    found = explain(world, decisionId=extension.decision_id)
    assert (found["confirmation"], found["decision"]["reason"]) == ("needed", "confirmation-required")
    (entry,) = listed(world, outcome="deny", agentId=acting.agent_id)
    assert entry["reason"] == "confirmation-required"


@pytest.mark.clause("IAM-3", "explain says why")
def test_errors_are_said(world: World) -> None:
    put(world, ERRING)
    found = ask(world, world.ann.id, attributes={"gpuCount": 8}).data["decision"]
    assert (found["outcome"], found["reason"]) == ("deny", "policy-error")
    (error,) = found["errors"]
    assert error.startswith("rules version 1, statement s1: integer overflow")


# --- Explained is decided ---


@pytest.fixture
def acting(world: World) -> Session:
    """Ann's agent in bob's name; bob wants to confirm creates."""
    return world.session(world.agent(world.ann), world.bob, confirm=[CREATE])


@pytest.mark.clause("IAM-3", "explain says what would be decided")
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=TEXTS,
    action=st.sampled_from(ACTIONS),
    delegated=st.booleans(),
    gpus=st.sampled_from([0, 7, 9]),
    by_agent=st.booleans(),
    cost=st.sampled_from(["0", "99.9999", "100.0000"]),
)
def test_what_is_explained_is_what_is_then_decided(
    world: World, acting: Session, text: str, action: str, *, delegated: bool, gpus: int, by_agent: bool, cost: str
) -> None:
    put(world, text)
    of_bob: dict[str, Any] = {
        "gpuCount": gpus,
        "creatorId": world.bob.id,
        "creatorAgentId": acting.agent_id if by_agent else "",
    }
    resource = reservation(**of_bob, estimatedCost=Decimal(cost))
    key = ApiKey.objects.get(principal_id=acting.agent_id if delegated else world.bob.id)
    question = {
        "principalId": world.bob.id,
        "keyId": key.id,
        "action": action,
        "resource": {"type": resource.type, "id": resource.id},
        "attributes": dict(resource.attributes) | {"estimatedCost": cost},
    } | ({"delegationId": acting.delegation_id} if delegated else {})
    found = explain(world, question=question)["decision"]
    who = caller(session_caller(acting) if delegated else world.bob)
    context = circumstances(source_ip=None, request_id=fresh_key())
    # As a dry run asks: nobody is bothered.
    asked = gate({}, cost=Decimal(cost), currency="", opens=False) if action == CREATE else None
    decide_many([Question(who, action, resource, context, gate=asked)], now=context.time)
    (entry,) = listed(world, requestId=context.request_id)
    own = ("id", "requestId")
    assert {k: v for k, v in found.items() if k not in own} == {k: v for k, v in entry.items() if k not in own}
