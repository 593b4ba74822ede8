"""What is allowed in a policy and yet deserves a second look (IAM-API §9)."""

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from iam.adapters import cedar
from iam.adapters.validation import place_of
from iam.catalogue import NAMESPACE, entity_types
from iam.contracts import PLATFORM, PLATFORM_ROLES, ROLES
from iam.domain.review import mentions, permits_everybody, rights_given_away, shuts_everybody_out
from iam.domain.scanner import Scanned, Statement
from iam.queries.principals import existing_principals, groups_in_use

_KINDS = ("User", "Service", "Agent")


@dataclass(frozen=True)
class Remark:
    """Something to look at, with its place in the text, counted from 1."""

    message: str
    line: int
    column: int


def remarks(tenant_id: str, scanned: Scanned) -> list[Remark]:
    """Of text without issues: names of what does not exist, permits to everybody, rights that amount to all rights, and
    what nobody could take back."""
    bodies = cedar.structure(scanned.text)
    named = [mentions(body) for body in bodies]
    unknown = _unknown(tenant_id, {pair for pairs in named for pair in pairs})
    found: list[Remark] = []
    for statement, body, pairs in zip(scanned.statements, bodies, named, strict=True):
        found += [_at(scanned, statement, unknown[pair], pair) for pair in sorted(pairs & unknown.keys())]
        if permits_everybody(body):
            found.append(_at(scanned, statement, "this permits it to everybody in the tenant"))
        if given := rights_given_away(body):
            message = f"whoever has {', '.join(given)} can take every right in the tenant"
            found.append(_at(scanned, statement, message))
        if shuts_everybody_out(body):
            message = "this forbids everybody policies/put and policies/delete: nobody could take it back"
            found.append(_at(scanned, statement, message))
    return sorted(found, key=lambda remark: (remark.line, remark.column))


def _at(scanned: Scanned, statement: Statement, message: str, pair: tuple[str, str] | None = None) -> Remark:
    place = None
    if pair:
        full = f'{NAMESPACE}::{pair[0]}::"{pair[1]}"'
        place = place_of(scanned, statement, full) or place_of(scanned, statement, pair[1])
    return Remark(message, *(place or scanned.place(statement.start)))


def _unknown(tenant_id: str, pairs: Collection[tuple[str, str]]) -> dict[tuple[str, str], str]:
    by_type: dict[str, set[str]] = defaultdict(set)
    for entity, identifier in pairs:
        by_type[entity].add(identifier)
    found: dict[tuple[str, str], str] = {}
    for entity, identifiers in by_type.items():
        for identifier, message in _unknown_of(tenant_id, entity, identifiers):
            found[entity, identifier] = message
    return found


def _unknown_of(tenant_id: str, entity: str, identifiers: Collection[str]) -> Iterator[tuple[str, str]]:
    if entity == "Role":
        roles = PLATFORM_ROLES if tenant_id == PLATFORM else ROLES
        yield from ((name, f"`{name}` is not a role of this tenant") for name in identifiers if name not in roles)
    elif entity == "Group":
        prefix = f"{tenant_id}/"
        used = groups_in_use(tenant_id, [name.removeprefix(prefix) for name in identifiers])
        for name in identifiers:
            if not name.startswith(prefix) or name.removeprefix(prefix) not in used:
                yield name, f"nobody is in the group `{name}`"
    elif entity in _KINDS:
        known = existing_principals(tenant_id, identifiers)
        yield from ((one, f"the tenant has no principal `{one}`") for one in identifiers if one not in known)
    elif (kind := entity_types().get(entity)) and kind.existing:
        there = kind.existing(tenant_id, identifiers)
        yield from ((one, f"the tenant has no {kind.name} `{one}`") for one in identifiers if one not in there)
