"""The schema that the apps' parts add up to (IAM-API §7)."""

import re

import pytest

from iam.adapters import cedar
from iam.catalogue import Action, ResourceType, actions_by_name, register, schema_text
from iam.domain import builtin

STRINGS = dict.fromkeys
RESERVATION = {
    **STRINGS(("tenantId", "poolId", "ownerTenantId", "region", "gpuModel", "deviceClass", "profile"), "String"),
    **STRINGS(("sharing", "binding", "currency", "creatorId", "creatorKind", "creatorAgentId"), "String"),
    **STRINGS(("gpuCount", "deviceCount", "nodes", "priority", "durationHours", "startsInHours"), "Long"),
    **STRINGS(("leaseSeconds", "vcpu", "memoryGiB", "hugepages1Gi"), "Long"),
    "spot": "Bool",
    "estimatedCost": "decimal",
}
POOL = STRINGS(("tenantId", "poolId", "region", "gpuModel", "deviceClass", "sharing"), "String")
WHO = ["Tenant", "Role", "Group"]
ENTITIES = {
    "Tenant": ([], {"tenantId": "String"}),
    "User": (WHO, STRINGS(("id", "tenantId"), "String")),
    "Service": (WHO, STRINGS(("id", "tenantId", "nodeId"), "String")),
    "Agent": (WHO, STRINGS(("id", "tenantId", "sponsorId"), "String")),
    "Reservation": (["Tenant"], RESERVATION),
    "Pool": (["Tenant"], POOL),
    "Fleet": ([], {"tenantId": "String"}),
    "Node": ([], STRINGS(("tenantId", "nodeId"), "String")),
    "ReservedHost": (["Tenant"], STRINGS(("tenantId", "name"), "String")),
    "IamTenant": ([], STRINGS(("tenantId", "subjectId", "sponsorId"), "String")),
}


def of(service: str, resources: str, names: str) -> dict[str, tuple[str, list[str]]]:
    """``group:verb`` words of one service, all on the same resources."""
    found = {}
    for name in names.split():
        group = f"{service}:*:read" if name.endswith(":read") else f"{service}:*"
        found[f"{service}:{name}"] = (group, resources.split())
    return found


ACTIONS = {
    **of("compute", "Reservation", "reservations:create reservations:extend reservations:release"),
    **of("compute", "Reservation Tenant", "reservations:read"),
    **of("compute", "Tenant", "pools:read quotas:read usage:read budgets:read events:read webhooks:read"),
    **of("compute", "Tenant", "pools:create budgets:admin webhooks:admin"),
    **of("compute", "Pool", "pools:admin"),
    **of("compute", "Fleet", "fleet:read fleet:admin"),
    **of("compute", "Node", "nodes:sync"),
    **of("compute", "ReservedHost Tenant", "reservedhosts:read"),
    **of("compute", "ReservedHost", "reservedhosts:release"),
    **of("iam", "IamTenant", "principals:read keys:read policies:read agents:read delegations:read"),
    **of("iam", "IamTenant", "confirmations:read decisions:read tenants:read"),
    **of("iam", "IamTenant", "principals:create principals:update principals:suspend principals:resume"),
    **of("iam", "IamTenant", "keys:create keys:rotate keys:revoke policies:put policies:delete"),
    **of("iam", "IamTenant", "agents:create agents:suspend agents:resume agents:suspendAll"),
    **of("iam", "IamTenant", "delegations:grant delegations:assume delegations:revoke confirmations:decide"),
    **of("iam", "IamTenant", "tenants:create tenants:suspend tenants:resume"),
}

ENTITY = re.compile(r"entity (\w+)(?: in \[([\w, ]+)\])? = \{ ([^}]*) \};")
ACTION = re.compile(r'action "([^"]+)" in \["([^"]+)"\] appliesTo \{ (.*), resource: \[([\w, ]+)\], context: Call \};')


@pytest.mark.clause("IAM-2", "the schema of actions, resources and attributes")
def test_the_schema_has_every_entity_with_its_attributes() -> None:
    found = {
        name: (parents.split(", ") if parents else [], dict(a.split(": ") for a in attributes.split(", ")))
        for name, parents, attributes in ENTITY.findall(schema_text())
    }
    assert found == ENTITIES


@pytest.mark.clause("IAM-4", "action and resource of every method")
def test_the_schema_has_every_action_on_its_resources() -> None:
    found = {name: (group, on, who) for name, group, who, on in ACTION.findall(schema_text())}
    assert {name: (group, sorted(on.split(", "))) for name, (group, on, _) in found.items()} == {
        name: (group, sorted(on)) for name, (group, on) in ACTIONS.items()
    }
    assert {who for _, _, who in found.values()} == {"principal: [User, Service, Agent]"}
    for service in ("compute", "iam"):
        assert f'action "{service}:*";' in schema_text()
        assert f'action "{service}:*:read" in ["{service}:*"];' in schema_text()


def test_the_builtin_policies_validate() -> None:
    text = "\n".join(text for _, text in builtin.STATEMENTS)
    assert cedar.complaints(text) == []


def test_only_reads_and_sync_are_counted_and_not_recorded() -> None:
    counted = {name for name, action in actions_by_name().items() if not action.recorded_when_allowed}
    assert counted == {name for name in ACTIONS if name.endswith(":read")} | {"compute:nodes:sync"}


@pytest.mark.parametrize(
    ("resources", "actions"),
    [
        ([ResourceType("compute-pool", "Pool2", {"tenantId": "String"})], []),
        ([ResourceType("compute-thing", "Thing", {})], []),
        ([], [Action("compute:pools:read", on=("Tenant",))]),
        ([], [Action("compute:pools", on=("Tenant",))]),
        ([], [Action("other:pools:read", on=("Tenant",))]),
    ],
)
def test_what_does_not_fit_is_not_registered(resources: list[ResourceType], actions: list[Action]) -> None:
    before = schema_text()
    with pytest.raises(ValueError, match="another"):
        register("another", resources=resources, actions=actions)
    assert schema_text() == before
