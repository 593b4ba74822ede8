"""The policy engine. Nothing else imports it.

Text from callers must have passed ``iam.domain.scanner`` before it comes here: deep nesting overflows the engine's
stack and ends the process. Handles are immutable and may be shared between threads; the engine holds the GIL.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import cedarpy

from iam.catalogue import NAMESPACE, schema_text
from iam.domain.entities import Question

# Characters; parsing them takes about 5 ms.
_LONG = 65_536

_POLICY = re.compile(r"policy(\d+)")


@dataclass(frozen=True)
class Answer:
    """What the engine says; ``determining`` and ``erring`` are places of statements in the text, counted from 0.

    ``decided`` False: the request or its entities do not fit the schema, and ``errors`` says how.
    """

    allowed: bool
    decided: bool
    determining: tuple[int, ...]
    errors: tuple[tuple[int | None, str], ...]


@dataclass(frozen=True)
class Complaint:
    """One fault that validation found: in which statement, and the engine's words."""

    statement: int | None
    message: str


@cache
def _schema(text: str) -> cedarpy.Schema:
    return cedarpy.Schema.from_str(text)


def compile_policies(text: str) -> cedarpy.PolicySet:
    """The text, parsed once. Raises ValueError for text that does not parse.

    A long text is parsed without the GIL, so that other threads go on; to get it back costs about 5 ms, more than a
    short text takes.
    """
    return cedarpy.PolicySet.from_str(text, release_gil=len(text) > _LONG)


def parse_fault(text: str) -> str | None:
    """What the parser says of text that it does not understand; None if it does."""
    try:
        cedarpy.PolicySet.from_str(text)
    except ValueError as error:
        return str(error)
    return None


def complaints(text: str) -> list[Complaint]:
    """What strict validation against the present schema finds in text that parses."""
    found = []
    for error in cedarpy.validate_policies(text, _schema(schema_text())).errors:
        match = _POLICY.fullmatch(error.policy_id)
        message = error.error.removeprefix(f"for policy `{error.policy_id}`, ")
        found.append(Complaint(int(match[1]) if match else None, message))
    return found


def structure(text: str) -> list[dict[str, Any]]:
    """The statements of text that parses, in the engine's JSON form, in order."""
    policies = json.loads(cedarpy.policies_to_json_str(text))["staticPolicies"]
    return [policies[f"policy{place}"] for place in range(len(policies))]


def ask(policies: cedarpy.PolicySet, questions: Sequence[Question]) -> list[Answer]:
    """One answer per question."""
    schema = _schema(schema_text())
    return [_ask(policies, schema, question) for question in questions]


def _ask(policies: cedarpy.PolicySet, schema: cedarpy.Schema, question: Question) -> Answer:
    request = {
        "principal": question.principal,
        "action": {"type": f"{NAMESPACE}::Action", "id": question.action},
        "resource": question.resource,
        "context": json.dumps(question.context),
    }
    result = cedarpy.is_authorized(request, policies, json.dumps(question.entities), schema)
    decided = result.decision is not cedarpy.Decision.NoDecision
    return Answer(
        allowed=result.allowed,
        decided=decided,
        determining=tuple(sorted(_place(reason) for reason in result.diagnostics.reasons)),
        errors=tuple(_error(text, decided=decided) for text in result.diagnostics.errors),
    )


def _place(policy_id: str) -> int:
    return int(policy_id.removeprefix("policy"))


def _error(text: str, *, decided: bool) -> tuple[int | None, str]:
    if not decided:
        # The text repeats all entities before it says what is wrong with them.
        return None, text.rpartition("]: ")[2]
    match = re.match(r"error while evaluating policy `policy(\d+)`: (.*)", text, re.DOTALL)
    return (int(match[1]), match[2]) if match else (None, text)
