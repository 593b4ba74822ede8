"""What is out of order in a pool, and when a node is away: the part of the fleet's queries that is about trouble."""

from collections import defaultdict
from collections.abc import Collection

from django.db import connection

from fleet.contracts import MaintenanceView, NodeTrouble, SickDevice
from fleet.domain.units import UNITS_PER_NODE, units_of
from fleet.errors import MaintenanceNotFound, NodeNotFound
from fleet.models import Device, Maintenance, Node
from fleet.projections import maintenance_view

_TROUBLED = """
SELECT pool_id FROM fleet_node WHERE pool_id IS NOT NULL AND (lost_at IS NOT NULL OR draining)
UNION SELECT n.pool_id FROM fleet_device d JOIN fleet_node n ON n.id = d.node_id
WHERE n.pool_id IS NOT NULL AND d.retired_at IS NULL AND d.health <> 'ok' ORDER BY 1
"""
_TROUBLES = """
SELECT n.id, n.unit_base, n.lost_at, n.draining, d.position, d.uuid, d.health, coalesce(d.health_since, d.first_seen_at)
FROM fleet_node n
LEFT JOIN fleet_device d ON d.node_id = n.id AND d.retired_at IS NULL AND d.health <> 'ok'
WHERE n.pool_id = %s AND (n.lost_at IS NOT NULL OR n.draining OR d.id IS NOT NULL) ORDER BY n.id, d.position
"""


def pools_in_trouble() -> list[str]:
    """Pools with a node that is lost or draining, or a sick device; one query."""
    with connection.cursor() as cursor:
        cursor.execute(_TROUBLED)
        return [pool_id for (pool_id,) in cursor.fetchall()]


def troubles(pool_id: str) -> list[NodeTrouble]:
    """The pool's nodes that are lost or draining or have sick devices, with these; one query."""
    sick: dict[tuple[str, int, int | None, bool], list[SickDevice]] = defaultdict(list)
    with connection.cursor() as cursor:
        cursor.execute(_TROUBLES, [pool_id])
        for node_id, base, lost_at, draining, position, uuid, health, since in cursor.fetchall():
            found = sick[node_id, base, lost_at, draining]
            if uuid is not None:
                found.append(SickDevice(position, uuid, health, since, units_of(base, position)))
    return [
        NodeTrouble(node_id, (base, base + UNITS_PER_NODE), lost_at, draining, tuple(devices))
        for (node_id, base, lost_at, draining), devices in sick.items()
    ]


def healthy_since(node_ids: Collection[str]) -> dict[tuple[str, int], int]:
    """Since which report the live devices of these nodes are ok, by node and position; the sick ones are absent."""
    rows = Device.objects.filter(node_id__in=set(node_ids), retired_at=None, health="ok")
    return {(row.node_id, row.position): row.health_since or row.first_seen_at for row in rows}


def maintenance(maintenance_id: str) -> tuple[str, MaintenanceView]:
    """The node and the time of a maintenance; raises MaintenanceNotFound."""
    row = Maintenance.objects.filter(id=maintenance_id).first()
    if row is None:
        raise MaintenanceNotFound
    return row.node_id, maintenance_view(row)


def unit_base_of(node_id: str) -> int:
    """The first unit of a node's span; raises NodeNotFound."""
    base = Node.objects.filter(id=node_id).values_list("unit_base", flat=True).first()
    if base is None:
        raise NodeNotFound
    return base
