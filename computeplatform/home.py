"""The admin's home page and its sidebar; unfold finds both through the settings."""

from collections import Counter
from typing import Any

from django.conf import settings
from django.http import HttpRequest
from django.templatetags.static import static
from django.urls import reverse
from django.utils.html import format_html

from computeplatform.admin_tools import length, link, list_of, state, utc
from computeplatform.api.health import TICK_SILENCE
from computeplatform.clock import SECOND, compute_now
from computeplatform.models import Tick
from fleet.queries import capacity, nodes_by_state
from reservations.gauges import devices_booked, reservations_by_state

# What an operator does, and the pages for it: title, Material icon, list.
SIDEBAR: dict[str, list[tuple[str, str, str]]] = {
    "Capacity": [
        ("Pools", "grid_view", "fleet_pool"),
        ("Nodes", "dns", "fleet_node"),
        ("Devices", "memory", "fleet_device"),
        ("Taints", "block", "fleet_taint"),
        ("Maintenance", "build", "fleet_maintenance"),
        ("Offers", "handshake", "fleet_offer"),
    ],
    "Reservations": [
        ("Reservations", "event_available", "reservations_reservation"),
        ("Bookings", "calendar_month", "reservations_booking"),
        ("Allocations", "account_tree", "fleet_allocation"),
        ("Downtimes", "heart_broken", "reservations_downtime"),
    ],
    "Quotas": [
        ("Quotas", "speed", "quotas_quota"),
        ("Charges", "receipt_long", "quotas_charge"),
    ],
    "Identity": [
        ("Tenants", "domain", "iam_tenant"),
        ("Principals", "group", "iam_principal"),
        ("API keys", "key", "iam_apikey"),
        ("Policies", "policy", "iam_policy"),
        ("Policy versions", "history_edu", "iam_policyversion"),
        ("Delegations", "handshake", "iam_delegation"),
        ("Delegated sessions", "vpn_key", "iam_delegatedsession"),
        ("Confirmations", "how_to_reg", "iam_confirmation"),
        ("Operators", "admin_panel_settings", "iam_operator"),
    ],
    "Audit": [
        ("Decisions", "gavel", "iam_decision"),
        ("Decision batches", "inventory_2", "iam_decisionbatch"),
        ("Decisions to be sealed", "hourglass_top", "iam_unsealeddecision"),
        ("Events", "history", "computeplatform_event"),
    ],
    "Platform": [
        ("Ticks", "timer", "computeplatform_tick"),
        ("Service gaps", "hourglass_disabled", "computeplatform_servicegap"),
        ("Beat schedule", "schedule", "django_celery_beat_periodictask"),
        ("Intervals", "timelapse", "django_celery_beat_intervalschedule"),
        ("Idempotency keys", "fingerprint", "computeplatform_idempotencykey"),
        ("Event sequences", "tag", "computeplatform_tenantsequence"),
    ],
}
POOLS = 20
STATES = ("pending", "placed", "binding", "active")


def navigation(_request: HttpRequest) -> list[dict[str, Any]]:
    """The sidebar, in unfold's shape."""
    home = {"title": "", "items": [{"title": "Home", "icon": "home", "link": reverse("admin:index")}]}
    groups = [
        {
            "title": title,
            "separator": True,
            "items": [{"title": text, "icon": icon, "link": list_of(page)} for text, icon, page in items],
        }
        for title, items in SIDEBAR.items()
    ]
    return [home, *groups]


def favicon(_request: HttpRequest) -> str:
    """The address of the icon that browsers show."""
    return static("computeplatform/icon.svg")


def dashboard(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """What an operator sees first: what is booked, what waits, which nodes and ticks are not well."""
    now = compute_now()
    by_pool: Counter[tuple[str, str]] = Counter()
    for (pool_id, name), count in reservations_by_state():
        by_pool[pool_id, name] += int(count)
    return context | {
        "title": "Now",
        "as_of": utc(now),
        "pools": _pools(by_pool),
        "reservations": _reservations(by_pool),
        "nodes": _nodes(),
        "ticks": _ticks(now),
        "acting_as": getattr(request.user, "principal", None),
    }


def _pools(by_pool: Counter[tuple[str, str]]) -> dict[str, Any]:
    booked = {pool_id: int(devices) for (pool_id,), devices in devices_booked()}
    rows = []
    for pool in capacity(limit=POOLS):
        held = booked.get(pool.id, 0)
        share = f"{round(100 * held / pool.devices)} %" if pool.devices else "-"
        waiting = by_pool[pool.id, "pending"]
        rows.append(
            [
                link("pool", pool.id, {("pool", pool.id): pool.name}),
                pool.gpu_model,
                pool.region,
                f"{held} of {pool.devices}",
                share,
                f"{pool.open_nodes} of {pool.nodes}",
                _to("reservations_reservation", str(waiting), pool_id=pool.id, state="pending") if waiting else "0",
            ]
        )
    headers = ["pool", "model", "region", "devices booked now", "share", "nodes that take bookings", "pending"]
    return {"headers": headers, "rows": rows}


def _reservations(by_pool: Counter[tuple[str, str]]) -> dict[str, Any]:
    counts: Counter[str] = Counter()
    for (_, name), count in by_pool.items():
        counts[name] += count
    rows = [[state(name), _to("reservations_reservation", str(counts[name]), state=name)] for name in STATES]
    return {"headers": ["state", "reservations"], "rows": rows}


def _nodes() -> dict[str, Any]:
    rows = []
    for name, cordoned, count in nodes_by_state():
        shown = format_html("{} {}", state(name), state("cordoned")) if cordoned else state(name)
        filters = {"state": name, "cordoned__exact": str(int(cordoned))}
        rows.append([shown, _to("fleet_node", str(count), **filters)])
    return {"headers": ["state", "nodes"], "rows": rows}


def _ticks(now: int) -> dict[str, Any]:
    """Each loop with the time since it last ran; late by what turns ``/readyz`` red, or by three long intervals."""
    rows = []
    for tick in Tick.objects.order_by("name"):
        age = max(0, now - tick.last_at)
        _, slowest = settings.COMPUTE_BEAT.get(tick.name, {}).get("bounds", (0, 0))
        late = age > max(TICK_SILENCE, 3 * slowest * SECOND)
        rows.append([tick.name, f"{length(age)} ago", state("late" if late else "ok")])
    return {"headers": ["tick", "last ran", ""], "rows": rows}


def _to(page: str, text: str, **filters: str) -> Any:
    return format_html('<a href="{}" class="text-link">{}</a>', list_of(page, **filters), text)
