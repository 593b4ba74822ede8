"""``nodes/register``, ``list``, ``get``, ``cordon``, ``uncordon``, ``drain``, ``remove``, ``assign`` (NOD-1, NOD-4)."""

from computeplatform.api.calls import Call, Resource
from computeplatform.api.fields import Creating, Id, Input, Items, Name, Page, Shape, Text, Whole
from computeplatform.api.methods import Answer, Data, Replay, method
from fleet import queries
from fleet.api.resources import load_fleet, load_node_of_fleet
from fleet.api.shapes import Labels, NodeShape, node_json
from fleet.contracts import FLEET
from fleet.operations import nodes as operations
from iam.operations.decisions import refuse_barred

DNS_LABEL = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z"
READ = "compute:fleet:read"
ADMIN = "compute:fleet:admin"


class RegisterInput(Creating):
    name = Text(pattern=DNS_LABEL, max_length=63, help_text="A DNS label, unique in the fleet.")
    poolId = Id(required=False, help_text="Left out: it belongs to no pool until nodes/assign.")
    positions = Whole(min_value=1, max_value=64, help_text="How many GPUs it can hold.")
    labels = Labels(required=False)


class ListInput(Page):
    poolId = Id(required=False)


class NodeInput(Input):
    nodeId = Id()


class ChangeInput(NodeInput):
    version = Whole(min_value=1, required=False, help_text="The node's present version.")


class CordonInput(ChangeInput):
    reason = Name(required=False)


class AssignInput(ChangeInput):
    poolId = Id(required=False, help_text="Left out: the node leaves its pool.")


class NodeAnswer(Shape):
    node = NodeShape()


class RegisterAnswer(Shape):
    node = NodeShape()
    token = Text(required=False, help_text="The credential of the node's software; in the first answer only.")


class ListAnswer(Shape):
    nodes = Items(child=NodeShape())
    nextCursor = Text(required=False)


def _stored(node_id: str) -> Answer:
    return {"node": node_json(queries.node(node_id))}


def _load_for_register(call: Call, data: Data) -> tuple[Resource, None]:
    if call.caller.agent_id:
        # The key of the node's software would outlive the session (IAM-5).
        refuse_barred(call.caller, ADMIN, FLEET, context=call.context, reason="session-rule")
    return load_fleet(call, data)


@method(
    "nodes/register",
    kind="mutation",
    action=ADMIN,
    resource="compute-fleet",
    input=RegisterInput,
    output=RegisterAnswer,
    load=_load_for_register,
    codes=("INVALID_STATE",),
    replay=Replay(lambda answer: str(answer["node"]["id"]), lambda _, node_id: _stored(node_id)),
)
def register(call: Call, data: Data, _: None) -> Answer:
    """Make a node known, and make the service that its software signs in as (NOD-1).

    `token` is the software's credential, good for `nodes/sync` of this node alone; it is shown in the first answer and
    never again, not even to a repetition with the same `idempotencyKey`. The node is `registered` until its first
    applied sync, and takes nothing before that. It holds up to `positions` GPUs, and its span of units is its own for
    ever (NOD-4). A name in use is CONFLICT, an archived pool INVALID_STATE. Emits `node.registered`. A
    delegated session is ACCESS_DENIED: it makes no key and no principal, whatever permits say (IAM-5).
    """
    node_id, token = operations.register_node(
        name=data["name"],
        pool_id=data.get("poolId"),
        positions=data["positions"],
        labels=data.get("labels", {}),
        by=call.actor,
        now=call.now,
    )
    return _stored(node_id) | {"token": token}


@method(
    "nodes/list",
    kind="read",
    action=READ,
    resource="compute-fleet",
    input=ListInput,
    output=ListAnswer,
    load=load_fleet,
)
def list_(call: Call, data: Data, _: None) -> Answer:
    """The fleet's nodes, newest first, of one pool or of all; removed ones are not listed (NOD-1).

    `cursor` is the id of the last node of the page before; an unknown one is INVALID_INPUT.
    """
    nodes, cursor = queries.list_nodes(limit=data["limit"], pool_id=data.get("poolId"), cursor=data.get("cursor"))
    return {"nodes": [node_json(node) for node in nodes]} | ({"nextCursor": cursor} if cursor else {})


@method(
    "nodes/get",
    kind="read",
    action=READ,
    resource="compute-fleet",
    input=NodeInput,
    output=NodeAnswer,
    load=load_node_of_fleet,
)
def get(call: Call, data: Data, _: None) -> Answer:
    """A node with its devices, taints, maintenances and allocations, desired and observed (NOD-1).

    A `lost` node has been silent for 30 seconds; `lostAt` is its last contact. An `adopting` one knows of syncs that
    this server never stored (as after a restore from backup): it takes no bookings and is told to withdraw nothing,
    and `unknownAllocations` lists what it holds and nobody here knows, until an operator decides in the admin (NOD-6).
    A removed one is still answered, with `removedAt`.

    `version` rises with every change but heartbeats, software and allocations.
    """
    return _stored(data["nodeId"])


@method(
    "nodes/cordon",
    kind="mutation",
    action=ADMIN,
    resource="compute-fleet",
    input=CordonInput,
    output=NodeAnswer,
    load=load_node_of_fleet,
    codes=("CONFLICT", "INVALID_STATE"),
)
def cordon(call: Call, data: Data, _: None) -> Answer:
    """Book nothing new on the node; what is booked stays and runs on (NOD-1). Repeated: unchanged.

    Emits `node.cordoned`.
    """
    operations.cordon_node(
        node_id=data["nodeId"],
        reason=data.get("reason", ""),
        version=data.get("version"),
        by=call.actor,
        now=call.now,
    )
    return _stored(data["nodeId"])


@method(
    "nodes/uncordon",
    kind="mutation",
    action=ADMIN,
    resource="compute-fleet",
    input=ChangeInput,
    output=NodeAnswer,
    load=load_node_of_fleet,
    codes=("CONFLICT", "INVALID_STATE"),
)
def uncordon(call: Call, data: Data, _: None) -> Answer:
    """The node takes bookings again; its pool's pending reservations are tried at once (NOD-1). Repeated: unchanged.

    This ends draining too; what was moved or preempted stays so.

    Emits `node.uncordoned`.
    """
    operations.uncordon_node(node_id=data["nodeId"], version=data.get("version"), by=call.actor, now=call.now)
    return _stored(data["nodeId"])


@method(
    "nodes/drain",
    kind="mutation",
    action=ADMIN,
    resource="compute-fleet",
    input=CordonInput,
    output=NodeAnswer,
    load=load_node_of_fleet,
    codes=("CONFLICT", "INVALID_STATE"),
)
def drain(call: Call, data: Data, _: None) -> Answer:
    """Cordon the node and empty it as far as that breaks no promise (NOD-1). Repeated: unchanged.

    Within seconds reservations that have not started move to other nodes, or wait as pending if they fit nowhere; spot
    work is preempted, after the notice that the pool gives (`spotNoticeSeconds`); anything else runs to its end.
    `nodes/uncordon` ends it. Emits `node.draining`.
    """
    operations.drain_node(
        node_id=data["nodeId"],
        reason=data.get("reason", ""),
        version=data.get("version"),
        by=call.actor,
        now=call.now,
    )
    return _stored(data["nodeId"])


@method(
    "nodes/remove",
    kind="mutation",
    action=ADMIN,
    resource="compute-fleet",
    input=ChangeInput,
    output=NodeAnswer,
    load=load_node_of_fleet,
    codes=("INVALID_STATE", "CONFLICT"),
)
def remove(call: Call, data: Data, _: None) -> Answer:
    """Take a node out of the fleet for good (NOD-1).

    While a booking on it is live, now or later, or an allocation, it is INVALID_STATE with `details.bookings` and
    `details.allocations`; drain it first. An allocation is live while a reservation wants it, and while a node that is
    heard of has not withdrawn it. The software's key is revoked, and the node leaves its pool and `nodes/list`;
    `nodes/get` goes on answering it, with `removedAt`. Its name is free again, its span of units never is. Repeated:
    unchanged. Emits `node.removed`.
    """
    operations.remove_node(node_id=data["nodeId"], version=data.get("version"), by=call.actor, now=call.now)
    return _stored(data["nodeId"])


@method(
    "nodes/assign",
    kind="mutation",
    action=ADMIN,
    resource="compute-fleet",
    input=AssignInput,
    output=NodeAnswer,
    load=load_node_of_fleet,
    codes=("CONFLICT", "INVALID_STATE"),
)
def assign(call: Call, data: Data, _: None) -> Answer:
    """Put the node into a pool, or out of any (NOD-4). A node is in one pool at most.

    While a reservation is to hold the node, now or later, or the node still holds something: INVALID_STATE with
    `details.allocations`. An archived pool is INVALID_STATE too. Into the pool it is in: unchanged. Emits
    `node.assigned`; the new pool's pending reservations are tried at once.
    """
    operations.assign_node(
        node_id=data["nodeId"],
        pool_id=data.get("poolId"),
        version=data.get("version"),
        by=call.actor,
        now=call.now,
    )
    return _stored(data["nodeId"])
