"""From what is known of a call to the entities that policies speak about (IAM-API §5)."""

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from iam.catalogue import BOOL, DECIMAL, LONG, NAMESPACE, STRING, Action, Attribute, Kind, ResourceType
from iam.contracts import Subject

Json = dict[str, Any]

_TYPES: Mapping[Kind, type] = {STRING: str, LONG: int, BOOL: bool, DECIMAL: Decimal}
_ENTITY_OF_KIND = {"user": "User", "service": "Service", "agent": "Agent"}
_MAX_LONG = 2**63 - 1
_PLACES = 4
_DECIMAL = re.compile(r"^-?[0-9]{1,15}(\.[0-9]{1,4})?\Z")
_WORDS: Mapping[Kind, str] = {STRING: "a string", LONG: "a whole number", BOOL: "true or false"}
MAX_TEXT = 300


class Misfit(Exception):
    """What was handed over does not fit the vocabulary: a fault of ours, answered by a denial."""


@dataclass(frozen=True)
class Question:
    """One decision to be made, in the words of the engine."""

    principal: Json
    action: str
    resource: Json
    context: Json
    entities: tuple[Json, ...]


def uid(entity: str, identifier: str) -> Json:
    """A reference to an entity."""
    return {"type": f"{NAMESPACE}::{entity}", "id": identifier}


def principal_entity(subject: Subject) -> Json:
    """The principal with its tenant, roles and groups as parents."""
    attributes = {"id": subject.principal_id, "tenantId": subject.tenant_id}
    if subject.kind == "service":
        attributes["nodeId"] = subject.node_id
    elif subject.kind == "agent":
        attributes["sponsorId"] = subject.sponsor_id
    parents = [uid("Tenant", subject.tenant_id)]
    parents += [uid("Role", role) for role in subject.roles]
    parents += [uid("Group", f"{subject.tenant_id}/{group}") for group in subject.groups]
    return {"uid": uid(_ENTITY_OF_KIND[subject.kind], subject.principal_id), "attrs": attributes, "parents": parents}


def resource_entity(kind: ResourceType, identifier: str, tenant_id: str, attributes: Mapping[str, Attribute]) -> Json:
    """The resource with every attribute of its type. Raises Misfit for one missing, extra or of another type."""
    if attributes.keys() != kind.attributes.keys():
        wrong = sorted(attributes.keys() ^ kind.attributes.keys())
        raise Misfit(f"{kind.name}: attributes missing or unknown: {', '.join(wrong)}")
    if attributes["tenantId"] != tenant_id:
        raise Misfit(f"{kind.name}: tenantId is not the tenant that the resource is decided in")
    values = {name: _value(f"{kind.name}.{name}", attributes[name], kind.attributes[name]) for name in attributes}
    parents = [uid("Tenant", tenant_id)] if kind.in_tenant else []
    return {"uid": uid(kind.entity, identifier), "attrs": values, "parents": parents}


def _value(path: str, value: Attribute, kind: Kind) -> Any:
    if type(value) is not _TYPES[kind]:
        raise Misfit(f"{path}: {type(value).__name__} instead of {kind}")
    if isinstance(value, Decimal):
        return {"__extn": {"fn": "decimal", "arg": decimal_text(path, value)}}
    if kind == LONG and not -_MAX_LONG - 1 <= value <= _MAX_LONG:  # type: ignore[operator]
        raise Misfit(f"{path}: {value} does not fit into a Long")
    return value


def decimal_text(path: str, value: Decimal) -> str:
    """Cedar's spelling of a decimal: 1 to 4 places, no exponent. Raises Misfit where it has none."""
    if not value.is_finite() or value != round(value, _PLACES):
        raise Misfit(f"{path}: {value} is not a decimal of at most {_PLACES} places")
    text = f"{value.normalize():f}"
    scaled = int(value.scaleb(_PLACES))
    if not -_MAX_LONG - 1 <= scaled <= _MAX_LONG:
        raise Misfit(f"{path}: {text} is outside the range of a decimal")
    return text if "." in text else f"{text}.0"


def call_context(*, time: int, source_ip: str | None, agent_id: str) -> Json:
    """The context as Cedar reads it; an address that cannot be read is absent, so policies must test for it."""
    context: Json = {
        "delegated": bool(agent_id),
        "agentId": agent_id,
        "time": {"__extn": {"fn": "datetime", "arg": _instant(time)}},
    }
    if address := readable_ip(source_ip):
        context["sourceIp"] = {"__extn": {"fn": "ip", "arg": address}}
    return context


def readable_ip(source_ip: str | None) -> str | None:
    """The address without a zone, or None where it is not one."""
    try:
        return str(ipaddress.ip_address((source_ip or "").partition("%")[0]))
    except ValueError:
        return None


def _instant(milliseconds: int) -> str:
    moment = datetime.fromtimestamp(milliseconds // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03d}Z"


def question(
    subject: Subject,
    action: Action,
    kind: ResourceType,
    *,
    identifier: str,
    tenant_id: str,
    attributes: Mapping[str, Attribute],
    context: Json,
) -> Question:
    """Everything the engine needs for one decision; raises Misfit."""
    if kind.entity not in action.on:
        raise Misfit(f"{action.name} is not asked of a {kind.name}")
    principal = principal_entity(subject)
    resource = resource_entity(kind, identifier, tenant_id, attributes)
    return Question(principal["uid"], action.name, resource["uid"], context, (principal, resource))


def context_json(*, time: int, source_ip: str | None, agent_id: str) -> Json:
    """The context as the audit log stores it and as answers show it: time as epoch milliseconds."""
    context: Json = {"delegated": bool(agent_id), "agentId": agent_id, "time": time}
    address = readable_ip(source_ip)
    return context | ({"sourceIp": address} if address else {})


def attributes_json(attributes: Mapping[str, Attribute]) -> Json:
    """Attributes as the audit log stores them: a decimal as text, without an exponent."""
    return {name: f"{value:f}" if isinstance(value, Decimal) else value for name, value in attributes.items()}


def attributes_of_json(kind: ResourceType, stored: Mapping[str, Any]) -> dict[str, Attribute]:
    """Attributes as they were before ``attributes_json``, as the type has them today.

    What it has come to have since is empty, what it no longer has is left out.
    """
    decimals = {name for name, of in kind.attributes.items() if of == DECIMAL}
    return kind.completed({name: Decimal(value) if name in decimals else value for name, value in stored.items()})


def attribute_of_wire(kind: Kind, value: Any) -> Attribute:
    """An attribute as a caller writes it; raises Misfit, in words for the caller."""
    if kind == DECIMAL:
        if not isinstance(value, str) or not _DECIMAL.match(value):
            raise Misfit(f'must be decimal text with at most {_PLACES} places, such as "17.60"')
        decimal_text("it", Decimal(value))
        return Decimal(value)
    # A Boolean is an integer to Python and none here.
    if not isinstance(value, str | int) or type(value) is not _TYPES[kind]:
        raise Misfit(f"must be {_WORDS[kind]}")
    if isinstance(value, str) and len(value) > MAX_TEXT:
        raise Misfit(f"must have at most {MAX_TEXT} characters")
    return value
