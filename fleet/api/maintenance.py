"""``nodes/maintenance`` and its end: for operators (NOD-7)."""

from computeplatform.api.calls import Call
from computeplatform.api.fields import Creating, Id, Instant, Items, Name, Shape
from computeplatform.api.methods import Answer, Data, Replay, method
from fleet import queries, troubles
from fleet.api.nodes import ADMIN, NodeAnswer, NodeInput
from fleet.api.resources import load_node_of_fleet
from fleet.api.shapes import MaintenanceShape, NodeBookingShape, NodeShape, booking_json, maintenance_json, node_json
from fleet.contracts import NodeBooking
from fleet.occupancy import bookings_on_node
from fleet.operations import maintenance as operations


class MaintenanceInput(Creating):
    nodeId = Id()
    until = Instant(help_text="Its end, exclusive; it lies in the future.")
    reason = Name(required=False)

    # `from` is a word of the language.
    vars()["from"] = Instant(help_text="Its start; one in the past is as good as now.")


class MaintenanceAnswer(Shape):
    node = NodeShape()
    maintenance = MaintenanceShape()
    bookings = Items(child=NodeBookingShape(), help_text="What is booked there in that time; it stays.")


class CancelInput(NodeInput):
    maintenanceId = Id()


def _planned(maintenance_id: str, bookings: list[NodeBooking]) -> Answer:
    node_id, planned = troubles.maintenance(maintenance_id)
    return {
        "node": node_json(queries.node(node_id)),
        "maintenance": maintenance_json(planned),
        "bookings": [booking_json(booking) for booking in bookings],
    }


def _replayed(call: Call, maintenance_id: str) -> Answer:
    node_id, planned = troubles.maintenance(maintenance_id)
    since = max(planned.starts_at, call.now)
    return _planned(maintenance_id, bookings_on_node(node_id, starts_at=since, ends_at=max(planned.ends_at, since)))


@method(
    "nodes/maintenance",
    kind="mutation",
    action=ADMIN,
    resource="compute-fleet",
    input=MaintenanceInput,
    output=MaintenanceAnswer,
    load=load_node_of_fleet,
    codes=("INVALID_STATE", "CONFLICT"),
    replay=Replay(lambda answer: str(answer["maintenance"]["id"]), _replayed),
)
def plan(call: Call, data: Data, _: None) -> Answer:
    """Plan a time, from `from` until `until` (epoch milliseconds), in which nothing new is booked on the node (NOD-7).

    Placement, `pools/availability`, extensions and rollouts see it as busy. What is booked there in that time stays,
    and is listed in `bookings`. An empty time, or one that is over, is INVALID_INPUT. The node shows what is planned as
    `maintenance`, and `nodes/cancelMaintenance` takes it back. Emits `node.maintenance-planned`.
    """
    made, bookings = operations.plan_maintenance(
        node_id=data["nodeId"],
        starts_at=data["from"],
        ends_at=data["until"],
        reason=data.get("reason", ""),
        by=call.actor,
        now=call.now,
    )
    return _planned(made, bookings)


@method(
    "nodes/cancelMaintenance",
    kind="mutation",
    action=ADMIN,
    resource="compute-fleet",
    input=CancelInput,
    output=NodeAnswer,
    load=load_node_of_fleet,
    codes=("INVALID_STATE",),
)
def cancel(call: Call, data: Data, _: None) -> Answer:
    """What is left of a maintenance does not take place (NOD-7).

    One that has begun ends now, one that has not is gone, one that is over is left as it is. NOT_FOUND for one that is
    not the node's. The pool's pending reservations are tried at once. Emits `node.maintenance-cancelled`.
    """
    operations.cancel_maintenance(
        node_id=data["nodeId"], maintenance_id=data["maintenanceId"], by=call.actor, now=call.now
    )
    return {"node": node_json(queries.node(data["nodeId"]))}
