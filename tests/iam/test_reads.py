"""What a policy's outcome can depend on: which attributes, the thing itself, whether an agent acts."""

from functools import reduce
from operator import or_

import pytest

from iam.adapters import cedar
from iam.adapters.validation import check_text
from iam.domain import builtin
from iam.domain.reads import Reads, reads
from iam.queries.compiled import Compiled

EXTEND = 'action == Compute::Action::"compute:reservations:extend"'


def of(condition: str, resource: str = "resource") -> Reads:
    """What one statement reads."""
    text = f"permit (principal, {EXTEND}, {resource}) when {{ {condition} }};"
    assert check_text(text)[1] == []
    return all_of(text)


def all_of(text: str) -> Reads:
    return reduce(or_, reads(cedar.structure(text)).values())


@pytest.mark.parametrize(
    ("condition", "names"),
    [
        ("true", set()),
        ('resource.region == "a"', {"region"}),
        ('resource["region"] == "a"', {"region"}),
        ("resource has region", {"region"}),
        ('principal.id == "u"', {"id"}),
        ("context has sourceIp && context.sourceIp.isLoopback()", {"sourceIp"}),
        ('(if true then resource else resource).region == "a"', {"region"}),
        ("{a: resource.nodes}.a == resource.vcpu", {"a", "nodes", "vcpu"}),
        ('[resource.region, "b"].contains(resource.profile)', {"region", "profile"}),
        ('resource.estimatedCost.lessThan(decimal("1.0"))', {"estimatedCost"}),
        ('!(resource.region like "*creatorId*")', {"region"}),
        ('"creatorId" == "creatorId"', set()),
        # The members of a record may be called as the engine calls its operators.
        ('{"Var": 1, "has": {"attr": 1}, "==": 2, "Record": 3}.Var == resource.nodes', {"Var", "nodes"}),
    ],
)
def test_attributes_are_found_wherever_they_stand(condition: str, names: set[str]) -> None:
    assert of(condition).attributes == names


@pytest.mark.parametrize(
    ("condition", "resource", "names"),
    [
        ("true", "resource", False),
        ('resource.tenantId == "res_1"', "resource", False),
        ("true", "resource is Compute::Reservation", False),
        ("resource is Compute::Reservation", "resource", False),
        ("true", 'resource == Compute::Reservation::"res_1"', True),
        ("true", 'resource in Compute::Reservation::"res_1"', True),
        ("true", 'resource is Compute::Reservation in Compute::Reservation::"res_1"', True),
        ('resource == Compute::Reservation::"res_1"', "resource", True),
        ('Compute::Reservation::"res_1" == resource', "resource", True),
        ('resource in Compute::Reservation::"res_1"', "resource", True),
        ('resource in [Compute::Reservation::"res_1"]', "resource", True),
        ('resource is Compute::Reservation in Compute::Reservation::"res_1"', "resource", True),
        ('[Compute::Reservation::"res_1"].contains(resource)', "resource", True),
        ('{it: Compute::Reservation::"res_1"}.it == resource', "resource", True),
        ('(if true then Compute::Reservation::"res_1" else resource).region == "a"', "resource", True),
    ],
)
def test_a_resource_that_may_be_told_by_its_name_is_noticed(condition: str, resource: str, *, names: bool) -> None:
    assert ("res_1" in of(condition, resource).named) is names


@pytest.mark.parametrize(
    ("condition", "mentions"),
    [
        ("true", False),
        ("context has sourceIp && context.sourceIp.isLoopback()", False),
        ("resource.creatorId == principal.id", False),
        ("context.delegated", True),
        ('context["delegated"]', True),
        ('context.agentId == ""', True),
        ('resource.creatorAgentId == ""', True),
        ("context == context", True),
        ("{c: context}.c.time == context.time", True),
    ],
)
def test_what_may_tell_a_session_from_its_user_is_noticed(condition: str, *, mentions: bool) -> None:
    assert of(condition).mentions_agents is mentions


def test_the_builtin_policies_tell_by_attributes_alone() -> None:
    """So lists need not ask once per row, and sessions not twice, in a tenant without policies of its own."""
    found = all_of("\n".join(text for _, text in builtin.STATEMENTS))
    assert not found.mentions_agents
    assert found.attributes >= {"tenantId", "creatorId"}


def test_what_is_read_is_kept_apart_by_the_actions_that_it_is_for() -> None:
    """A list asks about one action: what a policy for another one reads must not make it ask more often."""
    found = reads(
        cedar.structure(
            f"permit (principal, {EXTEND}, resource) when {{ resource.nodes > 1 }};"
            'forbid (principal, action in [Compute::Action::"compute:*:read"], resource) when { context.delegated };'
            'forbid (principal, action, resource == Compute::Reservation::"res_1");'
        )
    )
    assert found.keys() == {frozenset({"compute:reservations:extend"}), frozenset({"compute:*:read"}), None}
    compiled = Compiled(None, (), found)
    asked = {name: compiled.reads_of(f"compute:reservations:{name}") for name in ("extend", "read", "create")}
    assert {name: read.attributes for name, read in asked.items()} == {
        "extend": {"nodes"},
        "read": {"delegated"},
        "create": set(),
    }
    assert {name: read.named >= {"res_1"} for name, read in asked.items()} == dict.fromkeys(asked, True)
    assert compiled.mentions_agents
