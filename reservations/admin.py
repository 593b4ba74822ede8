"""Reservations and bookings for operators, who can release and cancel them (OPS-1)."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse

from computeplatform.admin_tools import (
    TABLE_ROWS,
    OperatedAdmin,
    ReadOnlyAdmin,
    Table,
    at,
    column,
    duration,
    instant,
    known,
    labelled,
    length,
    link,
    linked,
    list_of,
    lists,
    named,
    names_of,
    offered,
    prettied,
    ranged,
    register_kind,
    span,
    state,
    table,
    unbroken,
    utc,
    window,
)
from fleet import queries as fleet
from fleet.contracts import places_of
from quotas.queries import live_lines
from reservations import queries
from reservations.acts import CANCEL, RELEASE, devices_text
from reservations.domain import states
from reservations.domain.requests import BINDINGS
from reservations.models import Booking, Downtime, Reservation

register_kind("reservation", "reservations_reservation")
register_kind("booking", "reservations_booking")
register_kind("downtime", "reservations_downtime")

TENANT = linked("tenant_id", "tenant")
POOL = linked("pool_id", "pool")
CREATOR = linked("creator_id", "principal", "created by")
DECISION = linked("decision_id", "decision")
ALL_STATES = sorted(states.VISIBLE) + sorted(states.DRAFT_STATES)


def _kind_of_credential(row: Reservation) -> str:
    return "session" if row.creator_agent_id else "key"


def _devices_in_short(row: Reservation) -> Any:
    return unbroken(f"{row.nodes} × {row.count} {row.device_class}")


def _asked_window(row: Reservation) -> str:
    start = f"from {utc(row.requested_starts_at)}" if row.requested_starts_at is not None else "from now on"
    end = f"for {length(row.duration)}" if row.duration is not None else f"until {utc(row.requested_ends_at)}"
    before = f", to start before {utc(row.start_before)}" if row.start_before is not None else ""
    return f"{start}, {end}{before}"


def _cost(row: Reservation) -> str:
    return f"{row.estimated_cost} {row.currency}".strip()


def _downtimes(row: Reservation) -> Any:
    return lists({"Downtimes": "reservations_downtime"}, reservation_id=row.id)


DEVICES = column("what", "devices", devices_text)
IN_SHORT = column("what_in_short", "nodes × devices", _devices_in_short, ordering="count")
WINDOW = column("window", "window", lambda row: window(row.starts_at, row.ends_at), ordering="starts_at")
PERIOD = column("period", "window", lambda row: span(row.starts_at, row.ends_at))
STATE = labelled("state")


@admin.register(Reservation)
class ReservationAdmin(OperatedAdmin):
    """Every reservation, drafts too."""

    subject_type = "reservation"
    act_columns = (linked("id", "reservation", "reservation"), TENANT, POOL, STATE, WINDOW)
    list_display = ("id", "name", TENANT, STATE, "reason", POOL, IN_SHORT, WINDOW, CREATOR, instant("created_at"))
    list_filter = (
        known("state", ALL_STATES),
        named("pool_id", "pool"),
        named("tenant_id", "tenant"),
        known("device_class", ["gpu", "mig", "slot"]),
        known("binding", BINDINGS),
        "spot",
        ("held_since", admin.EmptyFieldListFilter),
        ("disturbed_since", admin.EmptyFieldListFilter),
    )
    search_fields = ("=id", "=tenant_id", "=creator_id", "name", "=idempotency_key", "=pool_id")
    ordering = ("-created_at", "-id")
    actions = ("release_selected", "cancel_selected")
    actions_detail = ("release", "cancel")
    fieldsets = (
        (
            None,
            {
                "fields": [
                    "id",
                    "name",
                    TENANT,
                    POOL,
                    STATE,
                    "reason",
                    DEVICES,
                    PERIOD,
                    CREATOR,
                    linked("creator_agent_id", "principal", "agent"),
                    DECISION,
                    linked("confirmation_id", "confirmation"),
                    prettied("labels"),
                ]
            },
        ),
        (
            "Asked for",
            {
                "fields": [
                    column("asked_window", "window", _asked_window),
                    "sharing",
                    "binding",
                    "spot",
                    "priority",
                    duration("lease_seconds", "lease", seconds=True),
                    "max_cost",
                    prettied("requested_resources", "host, on each node"),
                ]
            },
        ),
        (
            "Host and price",
            {
                "classes": ["collapse"],
                "fields": [
                    "vcpu_milli",
                    "memory_mib",
                    "hugepages_1gi",
                    "share_vcpu_milli",
                    "share_memory_mib",
                    prettied("price"),
                ],
            },
        ),
        (
            "Changes and troubles",
            {
                "classes": ["collapse"],
                "fields": [
                    instant("extended_at", "extended"),
                    duration("extended_by", "extended by"),
                    prettied("pending_change"),
                    instant("lease_expires_at", "lease expires"),
                    instant("ending_told_for", "told of the end at"),
                    instant("lease_told_for", "told of the lease's end at"),
                    "preempted_by",
                    prettied("claim", "devices that are kept for it"),
                    instant("held_since", "devices held since"),
                    instant("disturbed_since", "nodes in trouble since"),
                    column("downtimes_list", "downtimes", _downtimes),
                ],
            },
        ),
        (
            "Times",
            {
                "classes": ["collapse"],
                "fields": [
                    instant("created_at"),
                    instant("pending_since"),
                    instant("queued_at", "queued"),
                    instant("starts_at", "starts"),
                    instant("binding_since"),
                    instant("active_at", "active since"),
                    instant("ends_at", "ends"),
                    instant("ended_at", "ended"),
                    instant("changed_at", "last changed"),
                    instant("due_at", "looked at next"),
                ],
            },
        ),
        (
            "Admission",
            {
                "classes": ["collapse"],
                "fields": [
                    "decided",
                    linked("credential_id", _kind_of_credential, "credential"),
                    "idempotency_key",
                    column("cost", "estimated cost", _cost),
                    "attempts",
                    instant("call_open_until", "call open until"),
                    prettied("context", "circumstances"),
                    prettied("outcome", "answered"),
                    "version",
                ],
            },
        ),
    )

    def tables(self, row: Reservation) -> list[Table]:
        bookings = (linked("id", "booking", "booking"), *RUN)
        return [
            _operation(row),
            _conditions(row),
            table(
                "Bookings",
                Booking,
                bookings,
                row.bookings.order_by("node_id", "units", "id"),
                list_of("reservations_booking", reservation_id=row.id),
            ),
            _allocations(row),
            _charges(row),
        ]

    @offered("Release…", address="release", icon="stop_circle", danger=True)
    def release(self, request: HttpRequest, object_id: str) -> HttpResponse:
        return self.act_on_one(request, RELEASE, object_id)

    @offered("Cancel…", address="cancel", icon="cancel")
    def cancel(self, request: HttpRequest, object_id: str) -> HttpResponse:
        return self.act_on_one(request, CANCEL, object_id)

    @offered("Release…")
    def release_selected(self, request: HttpRequest, _rows: object) -> HttpResponse:
        return self.act_on_selected(request, RELEASE)

    @offered("Cancel…")
    def cancel_selected(self, request: HttpRequest, _rows: object) -> HttpResponse:
        return self.act_on_selected(request, CANCEL)


def _operation(row: Reservation) -> Table:
    """What the platform does for it just now, as callers see it (GET-1)."""
    headers = ["kind", "status", "step", "attempts", "started", "next try", "finished", "reason"]
    if row.state not in states.VISIBLE:
        return Table("Operation", headers, [])
    now = queries.progress_of(row)["operation"]
    times = [at(now.get(name)) for name in ("startedAt", "nextTryAt", "finishedAt")]
    words = [now["kind"], state(now["status"]), now["step"], now["attempts"]]
    return Table("Operation", headers, [[*words, *times, now.get("reason") or "-"]])


def _conditions(row: Reservation) -> Table:
    headers = ["condition", "status", "reason", "message", "since"]
    rows = [[c["type"], c["status"], c["reason"], c["message"], at(c["lastTransitionAt"])] for c in row.conditions]
    return Table("Conditions", headers, rows)


def _allocations(row: Reservation) -> Table:
    """What its nodes should hold for it, and what they say they hold."""
    headers = ["node", "positions", "desired", "observed", "holders", "observed since", "first told to bind", "until"]
    found = fleet.allocations_of([row.id]).get(row.id, [])[: TABLE_ROWS + 1]
    names = names_of(("node", one.node_id) for one in found)
    rows = [
        [
            link("node", one.node_id, names),
            ", ".join(str(device.position) for device in one.devices),
            state(one.desired),
            state(one.observed),
            one.holders,
            at(one.observed_at),
            at(one.told_at),
            at(one.until),
        ]
        for one in found
    ]
    return Table("Allocations", headers, rows, list_of("fleet_allocation", reservation_id=row.id))


def _charges(row: Reservation) -> Table:
    rows = [[line.resource, line.amount] for line in live_lines([row.id])]
    return Table("Charged now", ["resource", "amount"], rows, list_of("quotas_charge", reservation_id=row.id))


def _positions(row: Booking) -> str:
    places = places_of(row.units.lower, row.units.upper)
    return str(places[0]) if len(places) == 1 else f"{places[0]}–{places[-1]}"


PLACE = (linked("node_id", "node"), column("positions", "positions", _positions, ordering="units"), "devices")
RUN = (
    *PLACE,
    ranged("planned", short=True),
    ranged("during", "blocks", short=True),
    ranged("billed", short=True),
)


@admin.register(Booking)
class BookingAdmin(ReadOnlyAdmin):
    """Runs of adjacent devices for time ranges."""

    list_display = ("id", linked("reservation_id", "reservation"), TENANT, POOL, *RUN)
    list_filter = (
        named("pool_id", "pool"),
        named("tenant_id", "tenant"),
        ("held_since", admin.EmptyFieldListFilter),
        ("stuck_since", admin.EmptyFieldListFilter),
    )
    search_fields = ("=reservation__id", "=tenant_id", "=node_id")
    ordering = ("-id",)
    fieldsets = (
        (None, {"fields": [linked("reservation_id", "reservation"), TENANT, POOL, *PLACE, "units"]}),
        ("When", {"fields": [ranged("planned"), ranged("during", "blocks"), ranged("billed")]}),
        ("Host", {"fields": ["vcpu_milli", "memory_mib", "hugepages_1gi"]}),
        (
            "Held by its node",
            {"fields": [instant("held_since", "held since"), instant("stuck_since", "beyond its end since")]},
        ),
    )


@admin.register(Downtime)
class DowntimeAdmin(ReadOnlyAdmin):
    """Times in which a reservation was down as a whole, and unbilled."""

    list_display = (
        "id",
        linked("reservation_id", "reservation"),
        instant("began_at", "began"),
        instant("ended_at", "ended"),
    )
    list_filter = (("ended_at", admin.EmptyFieldListFilter),)
    search_fields = ("=reservation__id", "=reservation__tenant_id", "=reservation__pool_id")
    ordering = ("-began_at", "-id")
    fieldsets = (
        (
            None,
            {
                "fields": [
                    linked("reservation_id", "reservation"),
                    instant("began_at", "began"),
                    instant("ended_at", "ended"),
                ]
            },
        ),
    )
