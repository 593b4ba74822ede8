"""``iam/policies/*`` (IAM-2; IAM-API §3, §9)."""

from typing import Any

import pytest

from iam.models import Policy, PolicyVersion, Tenant
from tests.iam.support import AGENTS, ERRING, NOT_US_EAST, RESEARCH, allowed, last_decision, put, reservation
from tests.support.clock import Clock
from tests.support.world import World

PERMIT = "permit (principal, action, resource);"
POOLS = 'action == Compute::Action::"compute:pools:read"'


def test_put_stores_versions(world: World, clock: Clock) -> None:
    created = put(world, NOT_US_EAST)["policy"]
    assert created == {
        "name": "rules",
        "tenantId": "acme",
        "text": NOT_US_EAST,
        "version": 1,
        "statements": [{"id": "not-us-east", "effect": "forbid", "line": 2}],
        "createdAt": clock.now,
        "createdBy": world.acme.id,
        "updatedAt": clock.now,
        "updatedBy": world.acme.id,
    }
    clock.advance(seconds=5)
    assert put(world, NOT_US_EAST)["policy"] == created
    second = put(world, RESEARCH + NOT_US_EAST)["policy"]
    assert (second["version"], second["createdAt"], second["updatedAt"]) == (2, clock.now - 5_000, clock.now)
    assert [s["id"] for s in second["statements"]] == ["research-24h", "not-us-east"]
    assert world.acme.api.iam("policies/get", name="rules").data["policy"] == second
    assert world.acme.api.iam("policies/get", name="rules", version=1).data["policy"] == created
    world.acme.api.iam("policies/get", name="rules", version=3).refused("NOT_FOUND")
    world.acme.api.iam("policies/get", name="other").refused("NOT_FOUND")


@pytest.mark.clause("API-11", "a stale version is CONFLICT")
def test_versions_are_compared(world: World) -> None:
    iam = world.acme.api.iam
    iam("policies/put", name="rules", text=NOT_US_EAST, version=1).refused("CONFLICT", version=0)
    iam("policies/put", name="rules", text=NOT_US_EAST, version=0).data  # noqa: B018
    iam("policies/put", name="rules", text=RESEARCH, version=0).refused("CONFLICT", version=1)
    iam("policies/put", name="rules", text=RESEARCH, version=1).data  # noqa: B018
    iam("policies/delete", name="rules", version=1).refused("CONFLICT", version=2)
    assert Policy.objects.get().version == 2
    assert iam("policies/delete", name="rules", version=2).data["policy"]["text"] == RESEARCH


def test_numbers_go_on_after_a_delete(world: World) -> None:
    iam = world.acme.api.iam
    put(world, NOT_US_EAST)
    iam("policies/delete", name="rules").data  # noqa: B018
    iam("policies/get", name="rules").refused("NOT_FOUND")
    iam("policies/delete", name="rules").refused("NOT_FOUND")
    assert iam("policies/get", name="rules", version=1).data["policy"]["text"] == NOT_US_EAST
    assert iam("policies/list").data["policies"] == []
    again = iam("policies/put", name="rules", text=NOT_US_EAST, version=0).data["policy"]
    assert again["version"] == 2


@pytest.mark.clause("IAM-2", "a typo is refused with the place")
@pytest.mark.parametrize(
    ("text", "message", "line", "column", "statement"),
    [
        (
            'permit (principal,\n  action == Compute::Action::"compute:pools:reed",\n  resource);',
            'unrecognized action `Compute::Action::"compute:pools:reed"`; did you mean `compute:pools:read`?',
            *(2, 13, "s1"),
        ),
        (
            f'{PERMIT}\n@id("typo")\nforbid (principal, {POOLS}, resource)\nwhen {{ resource.regoin == "x" }};',
            "attribute `regoin` not found on Compute::Tenant",
            *(4, 17, "typo"),
        ),
        (f'permit (principal in Compute::Grup::"acme/x", {POOLS}, resource);', "`Compute::Grup`", *(1, 22, "s1")),
        (f"permit (principal, {POOLS}, resource is Compute::Fleet);", "unable to find an applicable", *(1, 1, "s1")),
        (f"permit (principal, {POOLS}, resource)\nwhen {{ 1 + }};", "unexpected token `}`", *(2, 12, "s1")),
        (
            f"permit (principal, {POOLS}, resource) when {{ context.sourceIp.isLoopback() }};",
            "optional attribute `sourceIp`",
            *(1, 94, "s1"),
        ),
        (
            f"permit (principal, {POOLS}, resource) when {{ context has sourceIP }};",
            "attribute `sourceIP` exists on nothing; did you mean `sourceIp`?",
            *(1, 98, "s1"),
        ),
        (f"permit (principal, {POOLS}, resource) when {{ resource.tenantId > 1 }};", "unexpected type", *(1, 1, "s1")),
        (f"permit (principal, {POOLS}, resource) when {{ fo(1) }};", "`fo` is not a valid function", *(1, 86, "s1")),
    ],
)
def test_faults_are_refused_with_their_place(
    world: World, text: str, message: str, line: int, column: int, statement: str
) -> None:
    error = world.acme.api.iam("policies/put", name="rules", text=text).refused("INVALID_INPUT")
    (issue,) = error["details"]["issues"]
    assert message in issue["message"]
    place = {"path": "text", "line": line, "column": column, "statement": statement}
    assert issue == place | {"message": issue["message"]}
    tried = world.acme.api.iam("policies/test", text=text).refused("INVALID_INPUT")
    assert tried["details"] == error["details"]
    assert Policy.objects.count() == PolicyVersion.objects.count() == 0
    # The same as an answer, which is not a refusal.
    validated = world.acme.api.iam("policies/validate", text=text).data
    assert (validated["valid"], validated["issues"]) == (False, [issue])


def test_members_of_records_may_be_called_as_operators(world: World) -> None:
    """The engine's JSON form, in which texts are looked through, tells them apart only by where they stand."""
    record = '{"has": {"a": 1}, "==": {"b": 2}, "__entity": {"c": 3}, "Var": 4, ".": {"d": 5}, "Record": 6, "in": 7}'
    text = f"permit (principal, action, resource) when {{ {record} == {record} }};"
    answer = world.acme.api.iam("policies/validate", text=text).data
    assert (answer["valid"], answer["issues"]) == (True, [])
    assert put(world, text)["policy"]["version"] == 1
    assert allowed(world.vic, reservation())


@pytest.mark.clause("IAM-2", "every fault at once")
def test_one_issue_per_fault(world: World) -> None:
    text = (
        "permit (principal, action, resource) when { resource.gpus > 1 };\npermit (principal, action == "
        'Compute::Action::"compute:reservations:create", resource)\nwhen { resource.gpuCont > 1 && resource.nods > 1 };'
    )
    issues = world.acme.api.iam("policies/validate", text=text).data["issues"]
    # An attribute that several types lack is one fault.
    assert [(i["line"], i["column"]) for i in issues] == [(1, 54), (3, 17), (3, 41)]
    assert "did you mean `gpuCount`?" in issues[1]["message"]


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"text": ""}, "text"),
        ({"text": "x" * 16_385}, "text"),
        ({"text": "é" * 8_193}, "text"),
        ({"text": PERMIT * 65}, "text"),
        ({"name": "Rules"}, "name"),
        ({"name": "x" * 64}, "name"),
        ({"name": "-x"}, "name"),
        ({"version": -1}, "version"),
    ],
)
def test_wrong_fields_are_named(world: World, fields: dict[str, Any], path: str) -> None:
    answer = world.acme.api.iam("policies/put", **({"name": "rules", "text": PERMIT} | fields))
    answer.refused_at(path)
    assert Policy.objects.count() == 0


def test_a_tenant_has_a_thousand_policies_at_most(world: World) -> None:
    when = {"created_at": 0, "created_by": "x", "updated_at": 0, "updated_by": "x", "version": 1}
    rows = Policy.objects.bulk_create(Policy(tenant_id="acme", name=f"p{n}", **when) for n in range(1_000))
    texts = {
        "version": 1,
        "text": NOT_US_EAST,
        "statements": [{"id": "s1", "effect": "forbid", "line": 2}],
        "created_at": 0,
        "created_by": "x",
    }
    PolicyVersion.objects.bulk_create(PolicyVersion(policy=row, **texts) for row in rows)
    Tenant.objects.filter(id="acme").update(policy_revision=1)
    answer = world.acme.api.iam("policies/put", name="one-more", text=NOT_US_EAST)
    answer.refused("INVALID_STATE", reason="too-many-policies")
    assert not Policy.objects.filter(name="one-more").exists()
    # Replacing one of them is no new one; and with one fewer there is room.
    assert world.acme.api.iam("policies/put", name="p1", text=RESEARCH).data["policy"]["version"] == 2
    world.acme.api.iam("policies/delete", name="p2").data  # noqa: B018
    assert world.acme.api.iam("policies/put", name="one-more", text=NOT_US_EAST).status == 200


def test_lists_are_by_name_without_text(world: World) -> None:
    for name in ("c", "a", "b"):
        put(world, NOT_US_EAST, name)
    first = world.acme.api.iam("policies/list", limit=2).data
    assert [p["name"] for p in first["policies"]] == ["a", "b"]
    assert "text" not in first["policies"][0]
    second = world.acme.api.iam("policies/list", limit=2, cursor=first["nextCursor"]).data
    assert [p["name"] for p in second["policies"]] == ["c"]
    assert "nextCursor" not in second
    world.acme.api.iam("policies/list", cursor="never-was").refused_at("cursor")
    world.globex.api.iam("policies/list", cursor="a").refused_at("cursor")


def warnings(world: World, text: str) -> list[tuple[str, int, int]]:
    answer = world.acme.api.iam("policies/validate", text=text).data
    assert answer["valid"], answer
    return [(w["message"], w["line"], w["column"]) for w in answer["warnings"]]


@pytest.mark.parametrize(
    ("scope", "condition", "words", "column"),
    [
        ('principal in Compute::Group::"acme/nobody"', "", "nobody is in the group `acme/nobody`", 22),
        ('principal in Compute::Group::"globex/research"', "", "nobody is in the group `globex/research`", 22),
        ('principal == Compute::User::"usr_x"', "", "the tenant has no principal `usr_x`", 22),
        ('principal in Compute::Role::"fleet-admin"', "", "`fleet-admin` is not a role of this tenant", 22),
        ("principal", "", "everybody", 1),
        ("principal is Compute::User", 'resource.tenantId == "acme"', "everybody", 1),
    ],
)
def test_warnings_have_places(world: World, scope: str, condition: str, words: str, column: int) -> None:
    tail = f" when {{ {condition} }}" if condition else ""
    ((message, line, at),) = warnings(world, f"permit ({scope},\n{POOLS}, resource){tail};")
    assert words in message
    assert (line, at) == (1, column)
    assert put(world, f"permit ({scope}, {POOLS}, resource){tail};")["warnings"] != []


def test_what_exists_is_not_warned_about(world: World) -> None:
    world.acme.api.iam("principals/update", principalId=world.ann.id, groups=["research"]).data  # noqa: B018
    text = (
        f'permit (principal in Compute::Group::"acme/research", {POOLS}, resource);'
        f'permit (principal == Compute::User::"{world.ann.id}", {POOLS}, resource);'
        f'permit (principal in Compute::Role::"viewer", {POOLS}, resource);'
        f"permit (principal, {POOLS}, resource) when {{ principal is Compute::Service }};"
        f"forbid (principal, {POOLS}, resource);"
    )
    assert warnings(world, text) == []


def test_pools_are_looked_up_by_the_fleet(world: World) -> None:
    pool_id = world.pool(owner=world.acme.api)
    action = 'action == Compute::Action::"compute:reservations:create"'
    known, unknown = (
        warnings(world, f'forbid (principal, {action}, resource) when {{ resource.poolId == "{one}" }};')
        for one in (pool_id, "pool_x")
    )
    assert known == []
    assert [message for message, *_ in unknown] == ["the tenant has no compute-pool `pool_x`"]


@pytest.mark.parametrize(
    ("action", "condition", "warned"),
    [
        ("action", "", True),
        ('action in Compute::Action::"iam:*"', "", True),
        ('action == Compute::Action::"iam:policies:put"', "", True),
        ('action in [Compute::Action::"iam:keys:create"]', "", True),
        ('action == Compute::Action::"iam:keys:create"', "resource.sponsorId == principal.id", False),
        ('action in Compute::Action::"iam:*:read"', "", False),
        ('action in Compute::Action::"compute:*"', "", False),
    ],
)
def test_rights_that_amount_to_all_rights(world: World, action: str, condition: str, warned: bool) -> None:
    tail = f" when {{ {condition} }}" if condition else ""
    for role, expected in (("viewer", warned), ("tenant-admin", False)):
        found = warnings(world, f'permit (principal in Compute::Role::"{role}", {action}, resource){tail};')
        assert bool(found) is expected
        assert all("every right" in message for message, *_ in found)


@pytest.mark.parametrize(
    ("scope", "warned"),
    [
        ("principal, action, resource", True),
        ('principal in Compute::Role::"tenant-admin", action in Compute::Action::"iam:*", resource', True),
        ("principal, action, resource is Compute::IamTenant", True),
        ('principal, action == Compute::Action::"iam:policies:put", resource', False),
        ('principal, action in Compute::Action::"compute:*", resource', False),
        ('principal in Compute::Role::"viewer", action, resource', False),
        ("principal, action, resource is Compute::Reservation", False),
    ],
)
def test_what_nobody_could_take_back(world: World, scope: str, warned: bool) -> None:
    """A deny wins, over those who would have to delete it too: whoever writes it is told before."""
    found = [message for message, *_ in warnings(world, f"forbid ({scope});")]
    assert [("nobody could take it back" in message) for message in found] == ([True] if warned else [])
    assert warnings(world, f"forbid ({scope}) when {{ context.delegated }};") == []


@pytest.mark.clause("IAM-1", "a changed policy bites at the next call")
def test_a_policy_bites_at_the_next_call(world: World) -> None:
    assert allowed(world.ann, reservation(region="us-east"))
    put(world, NOT_US_EAST)
    assert not allowed(world.ann, reservation(region="us-east"))
    assert allowed(world.ann, reservation())
    world.acme.api.iam("policies/delete", name="rules").data  # noqa: B018
    assert allowed(world.ann, reservation(region="us-east"))
    put(world, NOT_US_EAST)
    assert not allowed(world.ann, reservation(region="us-east"))
    put(world, RESEARCH)
    assert allowed(world.ann, reservation(region="us-east"))


def test_a_policy_counts_in_its_own_tenant_alone(world: World) -> None:
    put(world, NOT_US_EAST)
    assert allowed(world.gil, reservation("globex", region="us-east"))
    everybody = "permit (principal, action, resource);"
    world.admin.iam("policies/put", name="all", text=everybody).data  # noqa: B018
    world.ann.api.iam("principals/list").refused("ACCESS_DENIED")


def test_replay_shows_what_a_text_would_change(world: World) -> None:
    iam = world.acme.api.iam
    # Two creates in us-east, one of them before there was a policy against it.
    assert allowed(world.ann, reservation(region="us-east"), request_id="req-east")
    assert allowed(world.ann, reservation(), request_id="req-north")
    examined = iam("policies/test", text=NOT_US_EAST, name="rules", last=1_000).data
    assert examined["examined"] > 2
    (changed,) = examined["changed"]
    assert changed | {"decisionId": "", "at": 0} == {
        "decisionId": "",
        "at": 0,
        "requestId": "req-east",
        "principal": {"id": world.ann.id, "kind": "user"},
        "action": "compute:reservations:create",
        "resource": {"type": "compute-reservation", "id": "res_1"},
        "before": "allow",
        "after": "deny",
        "policies": [{"policy": "rules", "statement": "not-us-east"}],
    }
    assert iam("policies/test", text=NOT_US_EAST, last=1).data["examined"] == 1
    assert iam("policies/test", text=RESEARCH).data["changed"] == []


def test_replay_stands_in_for_the_policy_of_that_name(world: World) -> None:
    put(world, NOT_US_EAST)
    assert not allowed(world.ann, reservation(region="us-east"))
    # Beside the stored policy nothing changes; in its place the denial goes.
    beside = world.acme.api.iam("policies/test", text=RESEARCH).data["changed"]
    instead = world.acme.api.iam("policies/test", text=RESEARCH, name="rules").data["changed"]
    assert beside == []
    assert [(one["before"], one["after"]) for one in instead] == [("deny", "allow")]


def test_replay_records_nothing_and_turns_no_ceiling(world: World) -> None:
    scoped = world.person(world.acme, "sam", "reserver", scopes=["compute:*:read"])
    assert not allowed(scoped, reservation())
    before = world.acme.api.iam("policies/test", text=PERMIT).data
    assert before == world.acme.api.iam("policies/test", text=PERMIT).data
    assert [one for one in before["changed"] if one["principal"]["id"] == scoped.id] == []


def test_texts_that_meet_in_one_set_stay_apart(world: World) -> None:
    # A text that ends in a comment must not swallow the next one; statements keep their own policy's name.
    put(world, NOT_US_EAST + "// ends here", "a")
    put(world, ERRING.strip(), "b")
    put(world, AGENTS, "c")
    assert not allowed(world.ann, reservation(region="us-east"), request_id="req-err")
    assert not allowed(world.ann, reservation(region="us-east", gpuCount=0), request_id="req-east")
    (error,) = last_decision(request_id="req-err").errors
    assert error.startswith("b version 1, statement s1: ")
    assert last_decision(request_id="req-east").policies == [
        {"policy": "a", "version": 1, "statement": "not-us-east"},
        {"policy": "b", "version": 1, "statement": "s1"},
    ]


@pytest.mark.parametrize("method", ["put", "delete", "get", "list", "validate", "test"])
def test_only_administrators_have_to_do_with_policies(world: World, method: str) -> None:
    put(world, NOT_US_EAST)
    fields = {"put": {"name": "rules", "text": PERMIT}, "delete": {"name": "rules"}, "get": {"name": "rules"}}
    fields |= {"validate": {"text": PERMIT}, "test": {"text": PERMIT}}
    for person in (world.ann, world.vic):
        person.api.iam(f"policies/{method}", **fields.get(method, {})).refused("ACCESS_DENIED")
    if method in ("get", "delete"):
        world.globex.api.iam(f"policies/{method}", name="rules").refused("NOT_FOUND")
    assert PolicyVersion.objects.count() == 1
