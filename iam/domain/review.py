"""What a policy says beyond what it may say: whom it names, whom it lets in, what it gives away (IAM-API §8, §9).

Works on the engine's JSON form of a statement: ``effect``, ``principal``, ``action``, ``resource``, ``conditions``.
"""

from collections.abc import Iterator
from typing import Any

from iam.catalogue import NAMESPACE
from iam.contracts import TENANT_ADMIN
from iam.domain.patterns import permits

Body = dict[str, Any]

# Each of these lets its holder give themselves any other right of the tenant.
ESCALATING = ("iam:principals:update", "iam:keys:create", "iam:policies:put")
# Without both of these nobody of the tenant can take a policy back.
_WAY_BACK = ("iam:policies:put", "iam:policies:delete")


def walk(node: Any, operator: str) -> Iterator[Any]:
    """Every operand of an operator in the engine's JSON form, in no particular order.

    The members of a record are named by whoever wrote it, perhaps as operators are.
    """
    left = [node]
    while left:
        present = left.pop()
        if isinstance(present, dict):
            if isinstance(record := present.get("Record"), dict):
                left.extend(record.values())
                continue
            if operator in present:
                yield present[operator]
            left.extend(present.values())
        elif isinstance(present, list):
            left.extend(present)


def mentions(body: Body) -> set[tuple[str, str]]:
    """The entities that a statement names, actions excepted, as (type without namespace, id)."""
    found = {_pair(entity) for entity in walk(body["conditions"], "__entity")}
    for part in ("principal", "resource"):
        found |= {_pair(entity) for entity in walk(body[part], "entity")}
    for equation in walk(body["conditions"], "=="):
        sides = (equation["left"], equation["right"])
        for one, other in (sides, sides[::-1]):
            if one.get(".", {}).get("attr") == "poolId" and isinstance(other.get("Value"), str):
                found.add(("Pool", other["Value"]))
    return {pair for pair in found if pair[0] != "Action"}


def permits_everybody(body: Body) -> bool:
    """A permit whose scope lets every principal of some kind in, and whose conditions do not look at who it is."""
    scope = body["principal"]
    anyone = scope["op"] == "All" or (scope["op"] == "is" and "in" not in scope) or _type(scope) == "Tenant"
    looks = any(variable == "principal" for variable in walk(body["conditions"], "Var"))
    return body["effect"] == "permit" and anyone and not looks


def rights_given_away(body: Body) -> list[str]:
    """The actions of ESCALATING that a statement permits to others than tenant administrators."""
    scope, resource = body["principal"], body["resource"]
    admins = scope["op"] == "in" and _pair(scope["entity"]) == ("Role", TENANT_ADMIN)
    elsewhere = resource["op"] != "All" and _type(resource) != "IamTenant"
    if body["effect"] != "permit" or admins or elsewhere:
        return []
    named = set(_action_patterns(body["action"]))
    # Keys for one's own agents are no escalation: such a condition looks at whom the call is about.
    about = any(member.get("attr") in ("subjectId", "sponsorId") for member in walk(body["conditions"], "."))
    return [action for action in ESCALATING if permits(named, action) and not (about and action == "iam:keys:create")]


def shuts_everybody_out(body: Body) -> bool:
    """A forbid without conditions that takes the changing of policies from all administrators, itself included."""
    scope, resource = body["principal"], body["resource"]
    admins = scope["op"] == "in" and _pair(scope["entity"]) == ("Role", TENANT_ADMIN)
    elsewhere = resource["op"] != "All" and _type(resource) != "IamTenant"
    if body["effect"] != "forbid" or body["conditions"] or elsewhere or not (admins or scope["op"] == "All"):
        return False
    named = set(_action_patterns(body["action"]))
    return all(permits(named, action) for action in _WAY_BACK)


def _action_patterns(scope: Body) -> Iterator[str]:
    if scope["op"] == "All":
        yield "*"
    for entity in [scope["entity"]] if "entity" in scope else scope.get("entities", []):
        yield entity["id"]


def _pair(entity: Body) -> tuple[str, str]:
    return entity["type"].removeprefix(f"{NAMESPACE}::"), entity["id"]


def _type(scope: Body) -> str:
    """The entity type that a scope is about, if it says one."""
    named = scope.get("entity_type") or scope.get("entity", {}).get("type", "")
    return str(named).removeprefix(f"{NAMESPACE}::")
