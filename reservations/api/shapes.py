"""Shapes of the wire (CONTRACT §2, §15)."""

from typing import Any

from computeplatform.api.fields import (
    Anything,
    Flag,
    Id,
    IdempotencyKey,
    Input,
    Instant,
    Items,
    Mapped,
    Name,
    Number,
    OneOf,
    Page,
    Shape,
    Text,
    Whole,
)
from computeplatform.errors import InvalidInput
from reservations.domain import requests, states, waits
from reservations.domain.requests import ReservationRequest
from reservations.errors import BindingUnsupported

MAX_WAIT_MS = 30_000
_LABEL_KEY = r"^[A-Za-z0-9._/-]{1,63}\Z"
_NO_CONTROLS = r"^[^\x00-\x1f\x7f-\x9f]*\Z"
_MONEY = r"^[0-9]{1,16}(\.[0-9]{1,4})?\Z"


# A member named ``class`` cannot be written as an attribute, hence no class statements here.
_CLASS = {"class": OneOf(["gpu", "mig", "slot"])}
Devices = type(
    "Devices",
    (Shape,),
    {
        "__doc__": "What is asked for on each node.",
        "__module__": __name__,
        **_CLASS,
        "count": Whole(min_value=1, max_value=4096),
        "profile": Text(max_length=32, required=False, help_text="MIG profile, only for class mig."),
        "sharing": OneOf(["exclusive", "mig", "timeslice", "mps"], required=False),
    },
)
DevicesShown = type(
    "DevicesShown",
    (Shape,),
    {"__module__": __name__, **_CLASS, "count": Whole(), "profile": Text(required=False), "sharing": Text()},
)


class HostResources(Shape):
    """Per node, whole numbers."""

    vcpu = Whole(max_value=1_000_000, required=False)
    memoryGiB = Whole(max_value=1_000_000, required=False)
    hugepages1Gi = Whole(max_value=1_000_000, required=False)


class HostAmounts(Shape):
    """Per node; a share of the host may be a part of a vCPU or of a GiB."""

    vcpu = Number(required=False)
    memoryGiB = Number(required=False)
    hugepages1Gi = Whole(required=False)


class Wait(Shape):
    """How long the answer may be held while the reservation is pending."""

    timeoutMs = Whole(min_value=0, max_value=MAX_WAIT_MS)


class CreateInput(Input):
    """What a tenant asks for."""

    idempotencyKey = IdempotencyKey(help_text="Names this request; the reservation's id is derived from it.")
    poolId = Id()
    devices = Devices()
    nodes = Whole(min_value=1, max_value=4096, default=1, help_text="A gang: so many distinct nodes, count on each.")
    startsAt = Instant(required=False, help_text="Epoch ms; left out: now.")
    endsAt = Instant(required=False, help_text="A fixed end; give this or durationSeconds.")
    durationSeconds = Whole(min_value=1, max_value=10**9, required=False, help_text="A window that slides.")
    startBefore = Instant(required=False, help_text="Give up if it has not started by then.")
    spot = Flag(default=False)
    priority = Whole(max_value=100, required=False, help_text="Default 50, lowered to the offer's ceiling.")
    binding = Text(max_length=64, default="hold", help_text="hold, node or kubernetes.")
    resources = HostResources(required=False)
    leaseSeconds = Whole(min_value=30, max_value=86_400, required=False)
    name = Name(required=False)
    labels = Mapped(
        child=Text(min_length=0, max_length=255, pattern=_NO_CONTROLS),
        key_pattern=_LABEL_KEY,
        max_items=32,
        required=False,
    )
    wait = Wait(required=False)
    dryRun = Flag(default=False)
    maxCost = Text(pattern=_MONEY, max_length=24, required=False, help_text="Decimal text in the pool's currency.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """What fields say together is part of the shape, so it is refused before the tenant is looked at (CRE-21)."""
        request = reservation_request(attrs)
        if issues := list(request.shape_issues()):
            raise InvalidInput(issues)
        if request.binding not in requests.BINDINGS:
            raise BindingUnsupported(request.binding)
        return attrs


def reservation_request(data: dict[str, Any]) -> ReservationRequest:
    """The input of create as the domain reads it."""
    devices = data["devices"]
    return ReservationRequest(
        pool_id=data["poolId"],
        device_class=devices["class"],
        count=devices["count"],
        nodes=data["nodes"],
        profile=devices.get("profile", ""),
        sharing=devices.get("sharing", ""),
        starts_at=data.get("startsAt"),
        ends_at=data.get("endsAt"),
        duration=data["durationSeconds"] * 1000 if "durationSeconds" in data else None,
        start_before=data.get("startBefore"),
        spot=data["spot"],
        priority=data.get("priority"),
        binding=data["binding"],
        resources=data.get("resources"),
        lease_seconds=data.get("leaseSeconds"),
        name=data.get("name", ""),
        labels=data.get("labels", {}),
        max_cost=data.get("maxCost", ""),
        dry_run=data["dryRun"],
    )


class ReservationInput(Input):
    """One reservation of the tenant."""

    reservationId = Id()


class GetWait(Shape):
    """What the answer is held for, and how long at most."""

    until = OneOf(
        waits.UNTIL,
        help_text="active: it runs, or has ended; terminal: it has ended; changed: its version is another one.",
    )
    version = Whole(required=False, help_text="For changed: the version known to the caller. Default: the present one.")
    timeoutMs = Whole(max_value=MAX_WAIT_MS)


class GetInput(ReservationInput):
    """One reservation, now or as soon as something holds."""

    wait = GetWait(required=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """A version that would not be looked at is a mistake of the caller."""
        wait = attrs.get("wait", {})
        if "version" in wait and wait["until"] != waits.CHANGED:
            raise InvalidInput.at("wait.version", "is only for until changed")
        return attrs


class OneOrSeveral(Items):
    """A list, or its only item by itself."""

    def to_internal_value(self, data: Any) -> list[Any]:
        # By itself it has no index: what is wrong with it is wrong with the field.
        return [self.child.run_validation(data)] if isinstance(data, str) else super().to_internal_value(data)


class ListInput(Page):
    """Which of the tenant's reservations."""

    state = OneOrSeveral(
        child=OneOf(sorted(states.VISIBLE)), required=False, allow_empty=False, help_text="One state or several."
    )
    poolId = Id(required=False)
    scope = OneOf(["mine", "all"], default="mine")


class Condition(Shape):
    type = Text()
    status = OneOf(["True", "False"])
    reason = Text()
    message = Text()
    lastTransitionAt = Instant()


class Requested(Shape):
    startsAt = Instant(required=False)
    endsAt = Instant(required=False)
    durationSeconds = Whole(required=False)
    startBefore = Instant(required=False)


class CreatedBy(Shape):
    principal = Id()
    agent = Id(required=False)


class PlacedDevice(Shape):
    position = Whole(help_text="The GPU's place in the node.")
    uuid = Text(help_text="The GPU's, of class mig the instance's.")
    index = Whole(required=False, help_text="The place of a MIG instance on its GPU.")
    slot = Whole(required=False, help_text="The slot of a shared GPU.")


class Placed(Shape):
    nodeId = Id()
    devices = Items(child=PlacedDevice())


class Reservation(Shape):
    """A reservation as every method shows it (API-10)."""

    id = Id()
    tenantId = Id()
    state = OneOf(sorted(states.VISIBLE))
    reason = Text(required=False)
    conditions = Items(child=Condition())
    poolId = Id()
    devices = DevicesShown()
    nodes = Whole()
    binding = OneOf(["hold", "node", "kubernetes"])
    resources = HostAmounts(help_text="Booked on each node, the share of its GPUs included; empty: none.")
    spot = Flag()
    priority = Whole()
    name = Name(required=False)
    labels = Mapped(child=Text(min_length=0))
    requested = Requested()
    startsAt = Instant(required=False)
    endsAt = Instant(required=False)
    releasedAt = Instant(required=False)
    leaseSeconds = Whole(required=False)
    leaseExpiresAt = Instant(required=False, help_text="From placement on; later by any gap in our own service.")
    estimatedCost = Text(help_text="Decimal text; its currency is beside it.")
    currency = Text(required=False)
    createdAt = Instant()
    createdBy = CreatedBy()
    placement = Items(child=Placed(), required=False)
    version = Whole()


class Operation(Shape):
    """The latest thing the platform does for the reservation."""

    kind = OneOf(["create", "extend", "end"])
    status = OneOf(["running", "waiting", "done", "failed"])
    step = Text()
    attempts = Whole()
    nextTryAt = Instant(required=False)
    startedAt = Instant()
    finishedAt = Instant(required=False)
    reason = Text(required=False)


class BoundNode(Shape):
    nodeId = Id()
    devices = Items(child=Anything())


class ReservationAnswer(Shape):
    reservation = Reservation()


class TimeWindow(Shape):
    startsAt = Instant()
    endsAt = Instant(help_text="Exclusive.")


class ForeseenRefusal(Shape):
    """As the error of a create would say it."""

    code = Text()
    message = Text()
    details = Mapped(child=Anything(), required=False)
    fix = Text()


class DryRun(Shape):
    """What a create of this moment would come to."""

    decision = OneOf(["allow", "deny"], help_text="deny too where a person would have to confirm it first.")
    outcome = OneOf(["placed", "pending", "refused"])
    refusal = ForeseenRefusal(required=False, help_text="What with. After deny nothing else is told.")
    charge = Mapped(child=Whole(), required=False, help_text="Resource to amount, over the whole gang.")
    estimatedCost = Text(required=False, help_text="Decimal text; its currency is beside it.")
    currency = Text(required=False)
    resources = HostAmounts(required=False, help_text="As the reservation would show them.")
    queued = Flag(required=False, help_text="The pool's placer places it, after create has answered pending.")
    startsAt = Instant(required=False)
    endsAt = Instant(required=False)
    placement = Items(child=Placed(), required=False)
    reason = Text(required=False, help_text="Why it would be pending, as its condition Unschedulable would say.")
    message = Text(required=False)
    earliestStart = TimeWindow(required=False, help_text="When it could start, as far as is known now.")


class CreateAnswer(Shape):
    reservation = Reservation(required=False, help_text="Always, but for a dry run.")
    dryRun = DryRun(required=False, help_text="For a dry run alone.")


class GetAnswer(Shape):
    reservation = Reservation()
    operation = Operation()
    binding = Items(child=BoundNode(), required=False)


class ListAnswer(Shape):
    reservations = Items(child=Reservation())
    nextCursor = Text(required=False)
