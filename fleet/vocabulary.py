"""What policies can say about the fleet (IAM-API §5-§7)."""

from collections.abc import Collection

from fleet.queries import owned_pools_among
from iam.catalogue import STRING, Action, Kind, ResourceType, register

POOL_ATTRIBUTES: dict[str, Kind] = dict.fromkeys(
    ("tenantId", "poolId", "region", "gpuModel", "deviceClass", "sharing"), STRING
)


def _pools(tenant_id: str, ids: Collection[str]) -> Collection[str]:
    return owned_pools_among(tenant_id=tenant_id, pool_ids=ids)


def register_vocabulary() -> None:
    """Called when Django starts."""
    register(
        "fleet",
        resources=[
            ResourceType("compute-pool", "Pool", POOL_ATTRIBUTES, in_tenant=True, existing=_pools),
            ResourceType("compute-fleet", "Fleet", {"tenantId": STRING}, in_platform=True),
            ResourceType("compute-node", "Node", {"tenantId": STRING, "nodeId": STRING}, in_platform=True),
            ResourceType("compute-reservedhost", "ReservedHost", {"tenantId": STRING, "name": STRING}, in_tenant=True),
        ],
        actions=[
            Action("compute:pools:read", on=("Tenant",)),
            Action("compute:pools:create", on=("Tenant",)),
            Action("compute:pools:admin", on=("Pool",)),
            Action("compute:quotas:read", on=("Tenant",)),
            Action("compute:fleet:read", on=("Fleet",)),
            Action("compute:fleet:admin", on=("Fleet",)),
            Action("compute:nodes:sync", on=("Node",), counted=True),
            Action("compute:reservedhosts:read", on=("ReservedHost", "Tenant")),
            Action("compute:reservedhosts:release", on=("ReservedHost",)),
        ],
    )
