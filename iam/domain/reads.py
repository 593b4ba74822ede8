"""What a policy's outcome can depend on, read off its statements: what must be asked again, and what must not.

Works on the engine's JSON form of a statement, as ``iam.domain.review`` does.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

Body = dict[str, Any]
# The actions and groups of actions that a statement's scope names; None: it is about every action.
Scope = frozenset[str] | None

# The circumstances that a user alone would not be in: of the call, and of the thing that its agent makes.
_OF_SESSIONS = frozenset({"delegated", "agentId", "creatorAgentId"})


@dataclass(frozen=True)
class Reads:
    """What statements look at; in doubt it says more, never less.

    ``attributes``: the names of all attributes, of whatever. ``mentions_agents``: one may tell a delegated session from
    its user alone. ``named``: the ids of all things that the text names; of a type and a tenant, nothing else can be
    told apart from what has the same attributes.
    """

    attributes: frozenset[str] = frozenset()
    mentions_agents: bool = False
    named: frozenset[str] = frozenset()

    def __or__(self, other: "Reads") -> "Reads":
        return Reads(
            self.attributes | other.attributes,
            self.mentions_agents or other.mentions_agents,
            self.named | other.named,
        )


def reads(statements: Iterable[Body]) -> dict[Scope, Reads]:
    """What the statements look at, by the actions that they are about."""
    found: dict[Scope, Reads] = {}
    for body in statements:
        scope = _actions(body["action"])
        found[scope] = found.get(scope, Reads()) | _reads(body)
    return found


def _reads(body: Body) -> Reads:
    seen = _Seen()
    for condition in body["conditions"]:
        seen.look(condition["body"])
    return Reads(
        frozenset(seen.attributes),
        seen.whole_context or bool(seen.attributes & _OF_SESSIONS),
        frozenset(_named(body)),
    )


def _actions(scope: Body) -> Scope:
    if scope["op"] == "All":
        return None
    return frozenset(entity["id"] for entity in scope.get("entities", [scope.get("entity")]))


def _named(body: Body) -> Iterator[str]:
    """The ids of the entities in a statement, wherever they stand."""
    left: list[Any] = [body]
    while left:
        node = left.pop()
        if isinstance(node, list):
            left += node
        elif isinstance(node, dict):
            if node.keys() == {"type", "id"} and isinstance(node["id"], str):
                yield node["id"]
            left += (value for key, value in node.items() if key != "pattern" or not isinstance(value, list))


class _Seen:
    """The attributes that an expression reads, and whether it uses the context as a whole value."""

    def __init__(self) -> None:
        self.attributes: set[str] = set()
        self.whole_context = False

    def look(self, expression: Any) -> None:
        """No recursion: an expression may be as deep as the scanner lets it."""
        left = [expression]
        while left:
            node = left.pop()
            if isinstance(node, list):
                left += node
            elif isinstance(node, dict):
                for operator, operand in node.items():
                    left += self._operands(operator, operand)

    def _operands(self, operator: str, operand: Any) -> list[Any]:
        """The expressions that an operator works on, as far as they are still to be looked at."""
        if operator == "Var":
            self.whole_context |= operand == "context"
        elif operator in (".", "has"):
            self.attributes.add(operand["attr"])
            return [] if "Var" in operand["left"] else [operand["left"]]
        elif operator == "like":
            # Its pattern is a list with an entry per character.
            return [operand["left"]]
        elif operator != "Value":
            # Not the operand itself: its members, a record's above all, may be named as operators are.
            return list(operand.values()) if isinstance(operand, dict) else [operand]
        return []
