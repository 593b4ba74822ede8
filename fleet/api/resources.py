"""What the fleet's methods are decided on (CONTRACT §14)."""

from typing import Any

from computeplatform.api.calls import Call, Resource, tenant_resource
from fleet.contracts import FLEET, PLATFORM, PoolView
from fleet.errors import NodeNotFound, PoolNotFound
from fleet.queries import node_exists, pools_by_id, visible_pool


def pool_resource(pool: PoolView) -> Resource:
    """A pool, in its owner's tenant (IAM-4)."""
    attributes = {
        "tenantId": pool.tenant_id,
        "poolId": pool.id,
        "region": pool.region,
        "gpuModel": pool.gpu_model,
        "deviceClass": pool.device_class,
        "sharing": pool.sharing,
    }
    return Resource("compute-pool", pool.id, pool.tenant_id, attributes)


def load_pool(call: Call, data: dict[str, Any]) -> tuple[Resource, PoolView]:
    """A visible pool, for methods decided on the pool."""
    pool = visible_pool(tenant_id=call.tenant_id, pool_id=data["poolId"])
    return pool_resource(pool), pool


def load_pool_for_tenant(call: Call, data: dict[str, Any]) -> tuple[Resource, PoolView | None]:
    """A visible pool, if one is named, for methods decided on the calling tenant."""
    pool_id = data.get("poolId")
    pool = visible_pool(tenant_id=call.tenant_id, pool_id=pool_id) if pool_id else None
    return tenant_resource(call), pool


def load_fleet(call: Call, data: dict[str, Any]) -> tuple[Resource, None]:
    """The fleet. To a tenant that is not the platform the pools that are named here do not matter: it is refused."""
    pool_id = data.get("poolId")
    if pool_id and call.tenant_id == PLATFORM and pool_id not in pools_by_id([pool_id]):
        raise PoolNotFound
    return FLEET, None


def load_node_of_fleet(call: Call, data: dict[str, Any]) -> tuple[Resource, None]:
    """The fleet, after the node that is named was found; nodes are the platform's, so no other tenant finds any."""
    _find_node(call, data["nodeId"])
    return load_fleet(call, data)


def load_node(call: Call, data: dict[str, Any]) -> tuple[Resource, None]:
    """The node itself, for its software."""
    node_id = data["nodeId"]
    _find_node(call, node_id)
    return Resource("compute-node", node_id, PLATFORM, {"tenantId": PLATFORM, "nodeId": node_id}), None


def _find_node(call: Call, node_id: str) -> None:
    if call.tenant_id != PLATFORM or not node_exists(node_id):
        raise NodeNotFound
