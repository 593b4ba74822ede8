"""``events/list`` (EVT-2)."""

from typing import Any

from computeplatform.api.calls import Call
from computeplatform.api.fields import Anything, Id, Input, Instant, Items, Shape, Text, Whole
from computeplatform.api.methods import Answer, Data, method
from computeplatform.events import queries

_TYPE = r"^[a-z]+(\.([a-z-]+|\*))\Z"


class ListInput(Input):
    """Where to go on reading."""

    after = Whole(default=0, help_text="The sequence of the last event read; 0 for the first.")
    types = Items(child=Text(pattern=_TYPE, max_length=64), max_length=50, required=False)
    limit = Whole(min_value=1, max_value=1000, default=100)


class Subject(Shape):
    type = Text()
    id = Text()
    version = Whole()


class EventActor(Shape):
    principal = Text()
    agent = Id(required=False)


class Event(Shape):
    id = Id()
    sequence = Whole()
    type = Text()
    tenantId = Text()
    at = Instant()
    subject = Subject()
    actor = EventActor()
    reason = Text(required=False)
    requestId = Text(required=False)
    data = Anything()  # type: ignore[assignment]  # DRF keeps declared fields apart from its own members


class ListAnswer(Shape):
    events = Items(child=Event())
    next = Whole(help_text="Give this as `after` to go on.")


@method(
    "events/list",
    kind="read",
    action="compute:events:read",
    input=ListInput,
    output=ListAnswer,
)
def list_(call: Call, data: Data, _: Any) -> Answer:
    """The tenant's events by sequence, past ``after``; only stamped ones, so nothing can turn up in between later.

    ``types`` are event types, or a family such as ``reservation.*``. ``limit`` 1-1000, default 100. ``next`` is the
    sequence to go on from. Sequences of a tenant have no gaps; an event is stamped within a second of its commit.
    Clauses EVT-1, EVT-2.
    """
    events = queries.after(
        tenant_id=call.tenant_id, sequence=data["after"], types=data.get("types", ()), limit=data["limit"]
    )
    return {"events": events, "next": events[-1]["sequence"] if events else data["after"]}
