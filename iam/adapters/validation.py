"""Checks policy text: our scanner, then the engine's parser, then the schema. Every fault gets its place (IAM-2).

The engine says which statement is wrong and quotes a name, but no place; the scanner knows where each statement and
each word stands. The place is that of the quoted name, else of the statement.
"""

import difflib
import re
from collections.abc import Iterator, Sequence
from typing import Any

from iam.adapters import cedar
from iam.catalogue import actions_by_name, attribute_names
from iam.domain.review import walk
from iam.domain.scanner import Scanned, Statement, cut, scan
from iam.errors import TextIssue

_QUOTED = re.compile(r"`([^`]+)`")
_MISSING = re.compile(r"attribute `([^`]+)` on entity type `([^`]+)` not found")
_UNEXPECTED = re.compile(r"unexpected token `(.+)`", re.DOTALL)
_PARSER = "Policy parse error: "
_NO_ACTION = "unable to find an applicable action"


def check_text(text: str) -> tuple[Scanned, list[TextIssue]]:
    """The text cut into statements, and everything that is wrong with it; no issue means that it may be stored."""
    scanned = scan(text)
    issues = list(scanned.issues) or list(_unparsed(scanned)) or list(_invalid(scanned)) or list(_unknown_has(scanned))
    return scanned, sorted(issues, key=lambda issue: (issue.line or 0, issue.column or 0))


def place_of(scanned: Scanned, statement: Statement, name: str) -> tuple[int, int] | None:
    """Where a name first stands in a statement, as a path, a member or a string."""
    for spelling in (name, f'"{name}"'):
        wanted = [word.text for word in cut(spelling)[0]]
        texts = [word.text for word in statement.words]
        for at in range(len(texts) - len(wanted) + 1 if wanted else 0):
            if texts[at : at + len(wanted)] == wanted:
                return scanned.place(statement.words[at].start)
    return None


def _issue(scanned: Scanned, statement: Statement, message: str, *names: str) -> TextIssue:
    places = (place_of(scanned, statement, name) for name in names)
    place = next((found for found in places if found), scanned.place(statement.start))
    return TextIssue("text", message, *place, statement=statement.id)


def _unparsed(scanned: Scanned) -> Iterator[TextIssue]:
    for statement in scanned.statements:
        source = scanned.source(statement)
        fault = cedar.parse_fault(source)
        if fault is None:
            continue
        message = fault.rpartition(_PARSER)[2]
        unexpected = _UNEXPECTED.search(message)
        if unexpected:
            place = scanned.place(_first_unexpected(scanned, statement, unexpected[1]))
            yield TextIssue("text", message, *place, statement=statement.id)
        else:
            yield _issue(scanned, statement, message, *_QUOTED.findall(message))


def _first_unexpected(scanned: Scanned, statement: Statement, culprit: str) -> int:
    """Where the parser gives up: the end of the shortest beginning that no continuation could save.

    A beginning is good if the parser, given a sign after it that fits nowhere, stumbles over that sign and not before.
    """
    marker = "@" if culprit != "@" else "::"
    good, bad = 0, len(statement.words)
    while bad - good > 1:
        middle = (good + bad) // 2
        beginning = scanned.text[statement.start : statement.words[middle - 1].end]
        stumbled = _UNEXPECTED.search(cedar.parse_fault(f"{beginning} {marker};") or "")
        if stumbled and stumbled[1] != marker:
            bad = middle
        else:
            good = middle
    return statement.words[bad - 1].start


def _invalid(scanned: Scanned) -> Iterator[TextIssue]:
    found: dict[Statement, list[str]] = {}
    for complaint in cedar.complaints(scanned.text):
        # The parser took every statement alone, so a complaint without one cannot be; it must not be lost either.
        found.setdefault(scanned.statements[complaint.statement or 0], []).append(complaint.message)
    for statement, messages in found.items():
        yield from _of_statement(scanned, statement, messages)


def _of_statement(scanned: Scanned, statement: Statement, messages: Sequence[str]) -> Iterator[TextIssue]:
    """One issue per fault: an attribute that several types lack is one, and so is a name nobody knows."""
    lacking: dict[str, list[str]] = {}
    for message in messages:
        if match := _MISSING.fullmatch(message):
            lacking.setdefault(match[1], []).append(match[2])
    for name, types in lacking.items():
        text = f"attribute `{name}` not found on {', '.join(sorted(types))}{_hint(name, attribute_names())}"
        yield _issue(scanned, statement, text, name)
    others = [message for message in dict.fromkeys(messages) if not _MISSING.fullmatch(message)]
    unknown = [message for message in others if message.startswith("unrecognized")]
    for message in others:
        if message.startswith(_NO_ACTION) and unknown:
            continue
        quoted = _QUOTED.findall(message)
        hint = ""
        if message.startswith("unrecognized action") and quoted:
            hint = _hint(quoted[0].partition('"')[2].rstrip('"'), actions_by_name())
        yield _issue(scanned, statement, message + hint, *quoted)


def _hint(name: str, known: Any) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
    return f"; did you mean `{near[0]}`?" if near and near[0] != name else ""


def _unknown_has(scanned: Scanned) -> Iterator[TextIssue]:
    """``has`` on a name that nothing has is false for ever: to the engine no fault, to us a typo (IAM-2)."""
    known = attribute_names()
    for statement, body in zip(scanned.statements, cedar.structure(scanned.text), strict=True):
        names = {node["attr"] for node in walk(body, "has") if isinstance(node, dict)}
        for name in sorted(names - known):
            yield _issue(scanned, statement, f"attribute `{name}` exists on nothing{_hint(name, known)}", name)
