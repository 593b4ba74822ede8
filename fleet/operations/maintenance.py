"""Times in which a node takes no bookings (NOD-7)."""

from computeplatform.api.calls import Actor
from computeplatform.db.retry import in_transaction
from computeplatform.errors import InvalidInput
from computeplatform.events.outbox import emit
from computeplatform.ids import new_id
from computeplatform.wakes import wake
from fleet import events
from fleet.contracts import NodeBooking
from fleet.errors import MaintenanceNotFound
from fleet.models import Maintenance, Node
from fleet.occupancy import bookings_on_node
from fleet.operations.nodes import lock_node_with_pool


@in_transaction
def plan_maintenance(
    *, node_id: str, starts_at: int, ends_at: int, reason: str, by: Actor, now: int
) -> tuple[str, list[NodeBooking]]:
    """Nothing new is booked on the node in ``[starts_at, ends_at)``; returns its id and what is booked there: it stays.

    The pool's lock is taken, so an admission that is placing now either has booked, and is listed, or sees it. Raises
    NodeNotFound, NodeRemoved, and InvalidInput for an empty time or one that is over. Emits
    ``node.maintenance-planned``.
    """
    if ends_at <= starts_at:
        raise InvalidInput.at("until", "must be after from")
    if ends_at <= now:
        raise InvalidInput.at("until", "is past")
    node = lock_node_with_pool(node_id, None)
    row = Maintenance.objects.create(
        id=new_id("mnt"),
        node=node,
        starts_at=starts_at,
        ends_at=ends_at,
        reason=reason,
        created_at=now,
        created_by=by.principal_id,
    )
    _tell(node, row, events.NODE_MAINTENANCE_PLANNED, by=by, now=now, reason=reason)
    return row.id, bookings_on_node(node_id, starts_at=max(starts_at, now), ends_at=ends_at)


@in_transaction
def cancel_maintenance(*, node_id: str, maintenance_id: str, by: Actor, now: int) -> None:
    """The rest of it does not take place: one that has begun ends now, one that has not is gone; over: unchanged.

    Raises NodeNotFound, NodeRemoved, MaintenanceNotFound. Emits ``node.maintenance-cancelled`` and wakes the pool.
    """
    node = lock_node_with_pool(node_id, None)
    row = Maintenance.objects.filter(id=maintenance_id, node=node).first()
    if row is None:
        raise MaintenanceNotFound
    if row.ends_at <= now:
        return
    if row.starts_at < now:
        row.ends_at = now
        row.save(update_fields=["ends_at"])
    else:
        Maintenance.objects.filter(pk=row.pk).delete()
    _tell(node, row, events.NODE_MAINTENANCE_CANCELLED, by=by, now=now)
    if node.pool_id is not None:
        wake("placement", node.pool_id)


def _tell(node: Node, row: Maintenance, type_: str, *, by: Actor, now: int, reason: str = "") -> None:
    node.version += 1
    node.save(update_fields=["version"])
    data = {"maintenanceId": row.id, "from": row.starts_at, "until": row.ends_at}
    emit([events.node_event(type_, node, by=by, now=now, reason=reason, **data)])
