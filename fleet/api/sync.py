"""``nodes/sync``: the protocol of the node software (NOD-2, NOD-8, NOD-9)."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from computeplatform.api.calls import Call
from computeplatform.api.fields import Anything, Flag, Id, Input, Instant, Items, Mapped, OneOf, Shape, Text, Whole
from computeplatform.api.methods import KIB, Answer, Data, method
from fleet.api.resources import load_node
from fleet.api.shapes import TaintShape, present, taint_json
from fleet.contracts import Told
from fleet.domain.sync import Held, Report, ReportedDevice
from fleet.metrics import SYNC_UNKNOWN_FIELDS
from fleet.operations.sync import sync_node

_BOOT = r"^[A-Za-z0-9._:-]{1,128}\Z"
_MOST = 10_000  # allocations on one node; far above what 1 MiB can carry


class Tolerant(Shape):
    """A part of a report. Node software is older or newer than the server, so unknown members are no error (API-4)."""

    ignore_unknown = True

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        if isinstance(data, dict):
            SYNC_UNKNOWN_FIELDS.inc(len(data.keys() - self.fields.keys()))
        return super().to_internal_value(data)


@extend_schema_field(
    {
        "oneOf": [
            {"type": "integer", "minimum": 0, "maximum": 1_000_000},
            {"type": "array", "items": {"type": "string", "maxLength": 256}, "maxItems": 4_096},
        ]
    }
)
class Holders(serializers.Field[int, Any, int, Any]):
    """How many workloads still use the devices, as a number or as the list of their names."""

    def to_internal_value(self, data: Any) -> int:
        if isinstance(data, int) and not isinstance(data, bool) and 0 <= data <= 1_000_000:
            return data
        if isinstance(data, list) and len(data) <= 4_096 and all(isinstance(name, str) for name in data):
            return len(data)
        raise serializers.ValidationError(["must be a number of workloads, or the list of their names"])

    def to_representation(self, value: int) -> int:
        return value


class SoftwareShape(Mapped):
    """What the software says of itself; `version` is required, the rest is recorded as it is."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(child=Anything(), max_items=64, **kwargs)

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        value = super().to_internal_value(data)
        version = value.get("version")
        if not isinstance(version, str) or not 1 <= len(version) <= 128:
            raise serializers.ValidationError({"version": ["must be a string of 1 to 128 characters"]})
        return value


class MigShape(Tolerant):
    uuid = Text(max_length=128)
    profile = Text(max_length=32)
    index = Whole(max_value=255, help_text="Its place on the GPU: 0 to 7, each once.")


class DeviceReport(Tolerant):
    position = Whole(max_value=63, help_text="Its place in the node, from 0; below the node's `positions`.")
    uuid = Text(max_length=128)
    model = Text(max_length=64)
    memoryMiB = Whole()
    health = OneOf(choices=["ok", "unhealthy"])
    mig = Items(child=MigShape(), required=False, max_length=64)
    slots = Whole(max_value=256, required=False)


class HostReport(Tolerant):
    vcpu = Whole(max_value=1_000_000, required=False)
    memoryMiB = Whole(required=False)
    hugepages1Gi = Whole(max_value=1_000_000, required=False)


class AllocationReport(Tolerant):
    reservationId = Id()
    state = OneOf(choices=["bound", "withdrawing", "withdrawn"])
    holders = Holders(required=False)
    generation = Whole(min_value=1, required=False, help_text="As in the answer by which it was bound.")


class SyncInput(Tolerant, Input):
    nodeId = Id()
    bootId = Text(pattern=_BOOT, max_length=128, help_text="Another one after each boot of the machine.")
    session = Whole(min_value=1, required=False, help_text="As the last answer gave it. Left out: opens a session.")
    sequence = Whole(help_text="Rises with every message of a boot.")
    software = SoftwareShape()
    devices = Items(child=DeviceReport(), max_length=64, help_text="All GPUs that are there.")
    host = HostReport(required=False, help_text="What can be booked of the host. Left out: as reported before.")
    allocations = Items(
        child=AllocationReport(), max_length=_MOST, help_text="All that is held, and all withdrawn that is still asked."
    )


class ToldDevice(Shape):
    position = Whole(max_value=63, help_text="The GPU's place in the node.")
    uuid = Text(max_length=128, help_text="The GPU's, of class mig the instance's.")
    index = Whole(max_value=7, required=False, help_text="Of class mig: the instance's place on the GPU.")
    slot = Whole(max_value=255, required=False, help_text="Of class slot: which of the GPU's slots.")

    def get_fields(self) -> dict[str, Any]:
        # A Python keyword on the wire: it cannot be declared as an attribute.
        return {**super().get_fields(), "class": OneOf(choices=["gpu", "mig", "slot"])}


class ToldAllocation(Shape):
    """What the node should hold. Of one that nobody knows only id and `desired: withdrawn` are there."""

    reservationId = Id()
    desired = OneOf(choices=["planned", "bound", "withdrawn"])
    tenantId = Id(required=False)
    binding = Text(max_length=16, required=False)
    devices = Items(child=ToldDevice(), required=False)
    resources = Mapped(child=Whole(), required=False, help_text="Host amounts to enforce; empty: none booked.")
    until = Instant(required=False, help_text="When the node withdraws by itself if it cannot reach us.")
    generation = Whole(min_value=1, required=False, help_text="From the second plan on; to be reported with it.")


class SyncAnswerShape(Shape):
    session = Whole(help_text="To be sent from now on.")
    stale = Flag(required=False, help_text="True: this session is over; open a new one by leaving it out.")
    allocations = Items(child=ToldAllocation())
    taints = Items(child=TaintShape())
    heartbeatSeconds = Whole(min_value=1, help_text="How long to wait until the next sync at most.")


@method(
    "nodes/sync",
    kind="mutation",
    action="compute:nodes:sync",
    resource="compute-node",
    input=SyncInput,
    output=SyncAnswerShape,
    load=load_node,
    body_limit=1024 * KIB,
)
def sync(call: Call, data: Data, _: None) -> Answer:
    """One exchange between a node's software and the platform (NOD-2, NOD-8, NOD-9).

    The node says what it has and holds, the answer what it should hold. Both are complete every time, so any message
    may be lost, repeated or reordered: of one boot, one with a lower `sequence` than the last is answered and not
    applied. One message at a time: the next is composed after the answer to the last, or after giving up on it.

    A message without `session` opens one: nothing in it is applied, and the answer carries the number that later ones
    send. A message of an older session, or of another boot than the one that opened it, is ignored and answered `stale:
    true`; a living node then opens a new session. The first applied message makes the node `ready`.

    For each allocation the node obeys `desired`: `planned` is for its information, `bound` is to be bound as soon as
    whatever held those devices before is withdrawn, `withdrawn` is to be let go of, and reported `withdrawn` until an
    answer no longer lists it. It withdraws at `until` by itself. What it holds and does not see in an answer it keeps.
    What is withdrawn, or not listed, with no `holders` is released (`AllocationReleased`): only then a `kubernetes`
    reservation's devices are free (REL-4).

    A reservation may come back to a node that still holds other devices for it: it is told `withdrawn` first, and of
    the new devices once the old ones are released. Such an answer has a `generation`; software that reports it with the
    allocation cannot be misunderstood, and other software may leave it out.

    Unknown members are ignored and counted. A device that is no longer reported is `missing` and takes nothing new; a
    new one at a position takes the place of the one before. A report that contradicts itself, or names a position that
    the node was not registered with, is INVALID_INPUT. Bodies may have 1 MiB.
    """
    answer = sync_node(node_id=data["nodeId"], report=_report(data), by=call.actor, now=call.now)
    return present(
        session=answer.session,
        stale=answer.stale or None,
        allocations=[_told_json(told) for told in answer.allocations],
        taints=[taint_json(taint) for taint in answer.taints],
        heartbeatSeconds=answer.heartbeat_seconds,
    )


def _report(data: Data) -> Report:
    devices = tuple(
        ReportedDevice(
            position=device["position"],
            uuid=device["uuid"],
            model=device["model"],
            memory_mib=device["memoryMiB"],
            health=device["health"],
            mig=[dict(instance) for instance in device.get("mig", [])],
            slots=device.get("slots"),
        )
        for device in data["devices"]
    )
    return Report(
        boot_id=data["bootId"],
        session=data.get("session"),
        sequence=data["sequence"],
        software=data["software"],
        devices=devices,
        host=data.get("host"),
        allocations=tuple(
            (a["reservationId"], Held(a["state"], a.get("holders", 0), a.get("generation")))
            for a in data["allocations"]
        ),
    )


def _told_json(told: Told) -> dict[str, Any]:
    return present(
        reservationId=told.reservation_id,
        desired=told.desired,
        tenantId=told.tenant_id,
        binding=told.binding,
        devices=None if told.devices is None else [device.as_json() for device in told.devices],
        resources=None if told.resources is None else dict(told.resources),
        until=told.until,
        generation=told.generation,
    )
