"""What policies can speak about: resource types, their attributes, actions (IAM-API §5-§7).

iam loads nobody's objects. Each app says at start what its part of the vocabulary is, and later hands attributes over
as data. From what is registered here the Cedar schema is written, patterns of actions are read, and the attributes of
each decision are checked. An app registers in its ``AppConfig.ready``::

    register(
        "fleet",
        resources=[ResourceType("compute-pool", "Pool", {"tenantId": STRING, "poolId": STRING}, in_tenant=True)],
        actions=[Action("compute:pools:admin", on=("Pool",))],
    )
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from typing import Final, Literal

Kind = Literal["String", "Long", "Bool", "decimal"]
Attribute = str | int | bool | Decimal

STRING: Final = "String"
LONG: Final = "Long"
BOOL: Final = "Bool"
DECIMAL: Final = "decimal"

NAMESPACE = "Compute"

_EMPTY: Mapping[Kind, Attribute] = {STRING: "", LONG: 0, BOOL: False, DECIMAL: Decimal(0)}

_ACTION = re.compile(r"^(compute|iam):[a-z]+:[a-zA-Z]+\Z")


@dataclass(frozen=True)
class ResourceType:
    """A contract resource type and the Cedar entity that stands for it.

    ``attributes`` are all there, always, in every decision on such a resource; ``tenantId`` must be among them.
    ``in_tenant``: the entity has its tenant as parent. ``in_platform``: such things exist in the platform tenant alone.
    ``empty`` has the attributes whose value for "nothing" is not that of their kind. ``existing`` tells which of the
    given ids exist for a tenant; it serves the warnings of policies, and a type without it is never warned about.
    """

    name: str
    entity: str
    attributes: Mapping[str, Kind]
    in_tenant: bool = False
    in_platform: bool = False
    empty: Mapping[str, Attribute] = field(default_factory=dict)
    existing: Callable[[str, Collection[str]], Collection[str]] | None = None

    def completed(self, given: Mapping[str, Attribute]) -> dict[str, Attribute]:
        """Every attribute of the type: as given, else empty (IAM-API §6); what the type has not is left out."""
        empty = {name: _EMPTY[kind] for name, kind in self.attributes.items()} | dict(self.empty)
        return {name: given.get(name, value) for name, value in empty.items()}


@dataclass(frozen=True)
class Action:
    """An action of CONTRACT §14 and the Cedar entities it is asked of.

    ``counted``: allowed calls are counted and not recorded, as those of every ``…:read`` are (IAM-7).
    """

    name: str
    on: tuple[str, ...]
    counted: bool = False

    @property
    def service(self) -> str:
        """``compute`` or ``iam``."""
        return self.name.partition(":")[0]

    @property
    def is_read(self) -> bool:
        """Whether the action is in ``<service>:*:read``."""
        return self.name.endswith(":read")

    @property
    def recorded_when_allowed(self) -> bool:
        """Whether an allowed decision is an entry of the audit log; a denied one always is."""
        return not (self.is_read or self.counted)


@dataclass(frozen=True)
class Fragment:
    """What one app registered."""

    app: str
    resources: tuple[ResourceType, ...]
    actions: tuple[Action, ...]


_fragments: dict[str, Fragment] = {}


def register(app: str, *, resources: Iterable[ResourceType] = (), actions: Iterable[Action] = ()) -> None:
    """Add an app's part of the vocabulary; called once per app, at start.

    Raises ValueError for a name that is taken or malformed, and for a resource without ``tenantId``.
    """
    fragment = Fragment(app, tuple(resources), tuple(actions))
    others = [f for f in _fragments.values() if f.app != app]
    taken = {r.name for f in others for r in f.resources} | {a.name for f in others for a in f.actions}
    for resource in fragment.resources:
        if resource.name in taken or resource.attributes.get("tenantId") != STRING:
            raise ValueError(f"{app}: {resource.name} is registered twice, or has no tenantId")
    for action in fragment.actions:
        if action.name in taken or not _ACTION.match(action.name):
            raise ValueError(f"{app}: {action.name} is registered twice, or is not <service>:<group>:<verb>")
    _fragments[app] = fragment
    for derived in (actions_by_name, resources_by_name, entity_types, schema_text):
        derived.cache_clear()


@cache
def actions_by_name() -> Mapping[str, Action]:
    """Every registered action."""
    return {a.name: a for f in _fragments.values() for a in f.actions}


@cache
def resources_by_name() -> Mapping[str, ResourceType]:
    """Every registered resource type, by its contract name."""
    return {r.name: r for f in _fragments.values() for r in f.resources}


@cache
def entity_types() -> Mapping[str, ResourceType]:
    """Every registered resource type, by its Cedar entity without namespace."""
    return {r.entity: r for r in resources_by_name().values()}


# Who asks, and in what circumstances: the same for every action, so it is not an app's to register.
_BASE = """\
  type Call = { delegated: Bool, agentId: String, sourceIp?: ipaddr, time: datetime };
  entity Role, Group;
  entity User in [Tenant, Role, Group] = { id: String, tenantId: String };
  entity Service in [Tenant, Role, Group] = { id: String, tenantId: String, nodeId: String };
  entity Agent in [Tenant, Role, Group] = { id: String, tenantId: String, sponsorId: String };
"""

PRINCIPAL_ATTRIBUTES = frozenset({"id", "tenantId", "nodeId", "sponsorId"})
CONTEXT_ATTRIBUTES = frozenset({"delegated", "agentId", "sourceIp", "time"})


@cache
def schema_text() -> str:
    """The Cedar schema of everything that is registered."""
    lines = [_BASE]
    for entity, resource in sorted(entity_types().items()):
        parents = " in [Tenant]" if resource.in_tenant else ""
        attributes = ", ".join(f"{name}: {kind}" for name, kind in resource.attributes.items())
        lines.append(f"  entity {entity}{parents} = {{ {attributes} }};")
    services = sorted({action.service for action in actions_by_name().values()})
    lines += [f'  action "{name}:*";\n  action "{name}:*:read" in ["{name}:*"];' for name in services]
    for name, action in sorted(actions_by_name().items()):
        group = f"{action.service}:*:read" if action.is_read else f"{action.service}:*"
        applies = f"principal: [User, Service, Agent], resource: [{', '.join(action.on)}], context: Call"
        lines.append(f'  action "{name}" in ["{group}"] appliesTo {{ {applies} }};')
    return f"namespace {NAMESPACE} {{\n" + "\n".join(lines) + "\n}\n"


def attribute_names() -> frozenset[str]:
    """Every attribute that any principal, resource or context has: ``has`` on another name is a typo."""
    of_resources = {name for r in resources_by_name().values() for name in r.attributes}
    return PRINCIPAL_ATTRIBUTES | CONTEXT_ATTRIBUTES | of_resources
