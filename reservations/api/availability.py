"""``pools/availability`` (POL-2): served here, because it needs the bookings."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from computeplatform.api.calls import Call, Resource, tenant_resource
from computeplatform.api.fields import Id, Input, Instant, Items, Shape, Text, Whole
from computeplatform.api.methods import Answer, Data, method
from computeplatform.errors import InvalidInput, Issue
from fleet.queries import visible_pool
from reservations.api.shapes import Devices, HostResources, TimeWindow
from reservations.domain import availability as rules
from reservations.domain.requests import ReservationRequest, pool_issues
from reservations.operations import availability
from reservations.operations.creating import rules_of

if TYPE_CHECKING:
    from fleet.contracts import PoolView


# ``from`` cannot be written as an attribute, hence no class statements here.
_RANGE = {"from": Instant(), "to": Instant(help_text="Exclusive.")}
Stretch = type("Stretch", (Shape,), {"__module__": __name__, **_RANGE, "devices": Whole()})
AvailabilityInput = type(
    "AvailabilityInput",
    (Input,),
    {
        "__doc__": "What is looked for, and when.",
        "__module__": __name__,
        "poolId": Id(),
        "devices": Devices(),
        "nodes": Whole(min_value=1, max_value=4096, default=1, help_text="A gang: so many distinct nodes."),
        "resources": HostResources(required=False),
        "durationSeconds": Whole(min_value=1, max_value=10**9),
        "from": Instant(help_text="Epoch ms; up to 60 seconds past means now."),
        "to": Instant(help_text="Epoch ms, exclusive: every window ends by then."),
    },
)


class AvailabilityAnswer(Shape):
    earliest = TimeWindow(required=False, help_text="Where it fits first, durationSeconds long.")
    windows = Items(child=TimeWindow(), help_text="At most 10. It fits at any time in them, not only at their start.")
    free = Items(child=Stretch(), help_text="At most 200 stretches; so many devices at least are free in each.")
    reason = Text(required=False, help_text="Why it fits nowhere, as a condition Unschedulable would say.")
    message = Text(required=False)


def _bookable(call: Call, data: Data) -> tuple[Resource, "PoolView"]:
    pool = visible_pool(tenant_id=call.tenant_id, pool_id=data["poolId"], for_booking=True)
    return tenant_resource(call), pool


@method(
    "pools/availability",
    kind="read",
    action="compute:pools:read",
    input=AvailabilityInput,
    output=AvailabilityAnswer,
    load=_bookable,
)
def available(call: Call, data: Data, pool: "PoolView") -> Answer:
    """When a pool has room for a request: its earliest start, further windows, and how many devices are free when.

    Looked for are windows of ``durationSeconds`` that begin at ``from`` or later (epoch milliseconds; up to 60 seconds
    past means now) and end by ``to``, for ``devices``, ``nodes`` and ``resources`` as ``reservations/create`` takes
    them. ``earliest`` is the first of them. ``windows`` are up to 10 stretches of time in each of which the request
    fits wherever it begins, as long as it ends within; over a stretch the devices may be others. Where there is none,
    ``reason`` and ``message`` say why it does not fit at ``from``, as the condition ``Unschedulable`` of a reservation
    would. ``free`` covers the whole range: how many of the pool's devices can be booked and are free in each stretch.
    Where it would be more than 200 stretches, neighbours are told as one, with the fewest that are free.

    What is answered, ``reservations/create`` places if nothing changed between: bookings, maintenance, host resources
    and devices that are kept for the first in line count. Spot work counts as taken, though a request that is not spot
    may preempt it. The quota is not looked at; ``dryRun`` of create does that. Whose a booking is, is never told.

    INVALID_INPUT: class, profile or sharing differs from the pool's; ``to`` is not after ``from``, or is more than
    ``policy.maxAdvanceDays`` ahead; ``from`` is past; the duration is longer than the range or than
    ``policy.maxDurationHours``. NOT_FOUND: the pool is neither owned by nor offered to the tenant, or is archived.

    Clause POL-2.
    """
    request = _request(data)
    if issues := [*request.shape_issues(), *_issues(call, data, request, pool)]:
        raise InvalidInput(issues)
    found = availability.available(call=call, pool=pool, request=request, until=data["to"])
    answer: Answer = {
        "windows": [{"startsAt": begin, "endsAt": end} for begin, end in found.windows],
        "free": [{"from": begin, "to": end, "devices": devices} for begin, end, devices in found.free],
    }
    if found.earliest:
        answer["earliest"] = {"startsAt": found.earliest[0], "endsAt": found.earliest[1]}
    if found.shortfall:
        answer |= {"reason": found.shortfall.reason, "message": found.shortfall.message}
    return answer


def _request(data: Data) -> ReservationRequest:
    """As create would be asked for the first window."""
    devices = data["devices"]
    return ReservationRequest(
        pool_id=data["poolId"],
        device_class=devices["class"],
        count=devices["count"],
        nodes=data["nodes"],
        profile=devices.get("profile", ""),
        sharing=devices.get("sharing", ""),
        starts_at=data["from"],
        duration=data["durationSeconds"] * 1000,
        resources=data.get("resources"),
    )


def _issues(call: Call, data: Data, request: ReservationRequest, pool: "PoolView") -> Iterator[Issue]:
    for issue in pool_issues(request, rules_of(pool, tenant_id=call.tenant_id), now=call.now):
        # The range has a look of its own at where it begins.
        if issue.path != "startsAt":
            yield issue
    yield from rules.range_issues(
        begin=data["from"],
        end=data["to"],
        length=data["durationSeconds"] * 1000,
        max_advance_days=pool.policy.max_advance_days,
        now=call.now,
    )
