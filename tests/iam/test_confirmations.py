"""``confirmations/list`` and ``decide`` through HTTP (IAM-6)."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from computeplatform.api.calls import Actor
from computeplatform.errors import AccessDenied
from iam.models import Confirmation, Decision
from iam.operations.confirmations import decide_confirmation
from tests.support.clock import Clock
from tests.support.confirming import CREATE, HALF_HOUR, Asking, answer_of, entries, must_confirm, stored
from tests.support.world import World, request

LIST, DECIDE = "confirmations/list", "iam:confirmations:decide"


@pytest.fixture
def pool(world: World) -> str:
    return world.offered_pool(policy={"price": {"perDeviceHour": "2.00", "currency": "EUR"}})


def ask(asking: Asking, pool: str, **changed: Any) -> str:
    """A new question to ann; its id."""
    return str(must_confirm(asking.create(request(pool, **changed)))["confirmationId"])


def listed(api: Any, **wanted: Any) -> list[str]:
    return [one["id"] for one in api.iam(LIST, **wanted).data["confirmations"]]


@pytest.mark.clause("IAM-6", "confirmations/list: what is asked, by whom, at which cost, until when")
def test_what_a_person_is_shown(asking: Asking, pool: str, clock: Clock):
    asked = request(
        pool, 2, durationSeconds=7200, startsAt=clock.now + 1000, startBefore=clock.now + 5000, leaseSeconds=60,
        name="train", labels={"team": "x"}, maxCost="9.5", resources={"vcpu": 40}, spot=True,
    )  # fmt: skip
    details = must_confirm(asking.create(asked))
    wanted = asked | {
        "devices": {"class": "gpu", "count": 2, "sharing": "exclusive"},
        "nodes": 1,
        "binding": "hold",
        "priority": 50,
        "maxCost": "9.50",
    }
    del wanted["idempotencyKey"]
    assert asking.shown(details["confirmationId"]) == {
        "id": details["confirmationId"],
        "tenantId": "acme",
        "userId": asking.world.ann.id,
        "agentId": asking.agent.id,
        "delegationId": asking.session.delegation_id,
        "action": CREATE,
        "resource": {"type": "compute-reservation", "id": details["reservationId"]},
        "asked": wanted,
        "estimatedCost": "8.00",
        "currency": "EUR",
        "state": "pending",
        "createdAt": clock.now,
        "expiresAt": clock.now + HALF_HOUR,
    }
    assert details["expiresAt"] == clock.now + HALF_HOUR


@pytest.mark.clause("IAM-6", "confirmations/decide {approve} by the user, for 30 minutes")
@pytest.mark.parametrize("approve", [True, False])
def test_an_answer(asking: Asking, pool: str, clock: Clock, approve: bool):
    one = ask(asking, pool)
    asked_at = clock.now
    clock.set(asked_at + HALF_HOUR - 1)
    answer = answer_of(asking.world.ann.api, one, approve=approve, reason="too dear, or not").data["confirmation"]
    assert answer["state"] == ("approved" if approve else "refused")
    assert answer["decidedAt"] == clock.now
    assert answer["expiresAt"] == (clock.now if approve else asked_at) + HALF_HOUR
    assert "usedAt" not in answer
    assert asking.shown(one) == answer
    assert stored(one).decide_reason == "too dear, or not"
    assert entries(DECIDE) == ["permitted"]


@pytest.mark.clause("IAM-6", "by its user alone, administrators included among those who may not")
def test_nobody_else_answers(asking: Asking, pool: str):
    world, one = asking.world, ask(asking, pool)
    policy = "permit (principal, action, resource);"
    assert world.acme.api.iam("policies/put", name="all", text=policy).status == 200
    for api in (world.acme.api, world.bob.api, world.vic.api, asking.agent.api, asking.session):
        answer_of(api, one).refused("ACCESS_DENIED")
    for api in (world.globex.api, world.admin):
        answer_of(api, one).refused("NOT_FOUND")
    assert stored(one).state == "pending"
    assert entries(DECIDE, principal_id=world.acme.id) == ["no-permit"]
    assert entries(DECIDE, agent_id=asking.agent.id) == ["session-rule"]


@pytest.mark.clause("IAM-6", "by its user alone, administrators included among those who may not")
def test_nobody_else_answers_whoever_calls_the_operation(asking: Asking, pool: str, clock: Clock):
    one = ask(asking, pool)
    for somebody in (asking.world.acme.id, asking.agent.id, ""):
        with pytest.raises(AccessDenied):
            decide_confirmation(tenant_id="acme", confirmation_id=one, approve=True, by=Actor(somebody), now=clock.now)
    assert stored(one).state == "pending"


@pytest.mark.clause("IAM-5", "a delegated session cannot decide confirmations, whatever permits say")
def test_a_session_never_answers(asking: Asking, pool: str):
    one = ask(asking, pool)
    wide = asking.world.session(asking.agent, asking.world.ann, scopes=["*"])
    for confirmation_id in (one, "cnf_none"):
        # Before any id is looked up.
        answer_of(wide, confirmation_id).refused("ACCESS_DENIED")
    assert stored(one).state == "pending"


@pytest.mark.clause("IAM-1", "a key's scopes bound answers too")
def test_a_key_that_may_not_answer(asking: Asking, pool: str):
    world, one = asking.world, ask(asking, pool)
    token = world.ann.api.iam("keys/create", principalId=world.ann.id, scopes=["compute:*"])
    assert token.status == 403  # a reserver makes no keys; the administrator does
    made = world.acme.api.iam("keys/create", principalId=world.ann.id, scopes=["compute:*", "iam:*:read"]).data
    narrow = type(world.ann.api)(made["token"], "acme")
    assert listed(narrow) == [one]
    answer_of(narrow, one).refused("ACCESS_DENIED")
    assert entries(DECIDE) == ["key-scope"]
    assert stored(one).state == "pending"


@pytest.mark.clause("IAM-6", "decided, lapsed or void: INVALID_STATE with details.reason")
@pytest.mark.parametrize(
    ("end", "reason", "state"),
    [
        ("approve", "decided", "approved"),
        ("refuse", "decided", "refused"),
        ("use", "decided", "used"),
        ("unanswered", "lapsed", "lapsed"),
        ("unused", "lapsed", "lapsed"),
        ("revoke", "void", "void"),
        ("expire", "void", "void"),
    ],
)
def test_what_takes_no_answer_any_more(asking: Asking, pool: str, clock: Clock, end: str, reason: str, state: str):
    asked = request(pool)
    if end == "expire":
        asking.session = asking.world.session(
            asking.agent, asking.world.ann, confirm=[CREATE], expiresInSeconds=60, assume={"expiresInSeconds": 60}
        )
    one = must_confirm(asking.create(asked))["confirmationId"]
    if end in ("approve", "use", "unused"):
        asking.decide(one)
    match end:
        case "refuse":
            asking.decide(one, approve=False)
        case "use":
            asking.create(asked).data  # noqa: B018
        case "unanswered" | "unused":
            clock.advance(milliseconds=HALF_HOUR)
        case "revoke":
            asking.world.ann.api.iam("delegations/revoke", delegationId=asking.session.delegation_id).data  # noqa: B018
        case "expire":
            clock.advance(seconds=60)
    before = Confirmation.objects.filter(id=one).values().get()
    for approve in (True, False):
        error = answer_of(asking.world.ann.api, one, approve=approve).refused(
            "INVALID_STATE", reason=reason, state=state
        )
        assert state in error["message"]
    assert Confirmation.objects.filter(id=one).values().get() == before
    assert asking.shown(one)["state"] == state


@pytest.mark.clause("IAM-6", "confirmations/decide: its fields")
def test_fields_of_decide(asking: Asking, pool: str):
    one = ask(asking, pool)
    api = asking.world.ann.api
    for approve in ("true", 1, None):
        answer_of(api, one, approve=approve).refused_at("approve")  # type: ignore[arg-type]
    api.iam("confirmations/decide", confirmationId=one).refused_at("approve")
    answer_of(api, one, reason="").refused_at("reason")
    answer_of(api, one, reason="x" * 129).refused_at("reason")
    answer_of(api, "x" * 65).refused_at("confirmationId")
    answer_of(api, "cnf_none").refused("NOT_FOUND")
    assert stored(one).state == "pending"


@pytest.mark.clause("IAM-6", "confirmations/list: mine, in a session its user's; all: the administrators'")
def test_whose_are_listed(asking: Asking, pool: str):
    world, one = asking.world, ask(asking, pool)
    robot = world.agent(world.bob, "robot-2", boundary=["*"])
    other = Asking(world, robot, world.session(robot, world.bob, scopes=["*"], confirm=[CREATE]))
    two = ask(other, pool)
    assert listed(world.ann.api) == [one]
    assert listed(world.bob.api) == listed(other.session) == [two]
    assert listed(world.acme.api) == []
    assert set(listed(world.acme.api, scope="all")) == {one, two}
    for api in (world.ann.api, world.bob.api, other.session, asking.agent.api):
        api.iam(LIST, scope="all").refused("ACCESS_DENIED")
    # Its scopes have nothing of iam.
    asking.session.iam(LIST).refused("ACCESS_DENIED")
    assert listed(world.globex.api, scope="all") == []
    assert listed(world.acme.api, scope="all", agentId=robot.id) == [two]
    assert listed(world.ann.api, agentId=robot.id) == []


@pytest.mark.clause("IAM-6", "confirmations/list: state is that of the moment")
def test_states_in_the_list(asking: Asking, pool: str, clock: Clock):
    api = asking.world.ann.api
    asked = [request(pool) for _ in range(4)]
    ids = [must_confirm(asking.create(one))["confirmationId"] for one in asked]
    asking.decide(ids[0], approve=False)
    asking.decide(ids[1])
    asking.create(asked[1]).data  # noqa: B018
    asking.decide(ids[2])
    by_state = {state: listed(api, state=state) for state in ("refused", "used", "approved", "pending")}
    assert by_state == {"refused": [ids[0]], "used": [ids[1]], "approved": [ids[2]], "pending": [ids[3]]}
    clock.advance(milliseconds=HALF_HOUR)
    assert set(listed(api, state="lapsed")) == {ids[2], ids[3]}
    assert listed(api, state="pending") == listed(api, state="approved") == listed(api, state="void") == []
    api.iam(LIST, state="open").refused_at("state")


@pytest.mark.clause("IAM-6", "confirmations/list: newest first, page by page, in as many queries for many")
def test_pages(asking: Asking, pool: str, clock: Clock):
    ids = []
    for _ in range(5):
        ids.append(ask(asking, pool))
        clock.advance(milliseconds=1)
    api, found, cursor = asking.world.ann.api, [], None
    while True:
        page = api.iam(LIST, limit=2, **({"cursor": cursor} if cursor else {})).data
        found += [one["id"] for one in page["confirmations"]]
        cursor = page.get("nextCursor")
        if cursor is None:
            break
    assert found == ids[::-1]
    api.iam(LIST, cursor="cnf_none").refused_at("cursor")
    asking.world.bob.api.iam(LIST, cursor=ids[0]).refused_at("cursor")
    counted = []
    for limit in (1, 5):
        with CaptureQueriesContext(connection) as queries:
            api.iam(LIST, limit=limit).data  # noqa: B018
        counted.append(len(queries))
    assert counted[0] == counted[1]


@pytest.mark.clause("IAM-7", "a gated request is a denial in the log, with the confirmation it waits for")
@pytest.mark.clause("IAM-3", "the administrator sees what a call waited for")
def test_in_the_audit_log(asking: Asking, pool: str):
    asked = request(pool)
    one = asking.approved(asked)["confirmationId"]
    asking.create(asked).data  # noqa: B018
    found = {row.reason: row for row in Decision.objects.filter(action=CREATE)}
    assert set(found) == {"confirmation-required", "permitted"}
    for row in found.values():
        assert row.context["confirmationId"] == one
        assert (row.principal_id, row.agent_id) == (asking.world.ann.id, asking.agent.id)
        assert row.delegation_id == asking.session.delegation_id
    assert stored(one).decision_id == found["permitted"].id
