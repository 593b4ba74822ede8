"""How single values are shown on operators' pages: times, periods, states, ids, JSON. Each function makes a column for
``list_display`` and ``fieldsets`` alike."""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from django.contrib import admin
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from unfold.utils import display_for_label

from computeplatform.admin_tools.objects import link

Column = Callable[[Any], Any]

# The states of everything, by what an operator should feel about them.
COLORS = {
    "ok": "success",
    "active": "success",
    "ready": "success",
    "allow": "success",
    "bound": "success",
    "placed": "info",
    "binding": "info",
    "planned": "info",
    "pending": "warning",
    "draft": "warning",
    "awaiting-confirmation": "warning",
    "registered": "warning",
    "adopting": "warning",
    "missing": "warning",
    "cordoned": "warning",
    "withdrawing": "warning",
    "waiting": "warning",
    "running": "info",
    "done": "success",
    "late": "danger",
    "lost": "danger",
    "unhealthy": "danger",
    "deny": "danger",
    "denied": "danger",
    "suspended": "danger",
    "revoked": "danger",
    "failed": "danger",
}


def utc(milliseconds: int | None) -> str:
    """An instant as people read it, to the second (ISO 8601, UTC); a dash for none."""
    if milliseconds is None:
        return "-"
    try:
        at = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):  # a time that no calendar has must not take the page down
        return f"{milliseconds} ms"
    return at.strftime("%Y-%m-%d %H:%M:%SZ")


def length(milliseconds: int | None) -> str:
    """A duration in its two largest units: ``2 d 3 h``."""
    if milliseconds is None:
        return "-"
    seconds = milliseconds // 1000
    if seconds < 1:
        return f"{milliseconds} ms"
    parts = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])


def unbroken(text: str) -> SafeString | str:
    """Text that stays on one line."""
    return format_html('<span class="whitespace-nowrap">{}</span>', text)


def at(milliseconds: int | None) -> SafeString | str:
    """An instant, on one line."""
    return unbroken(utc(milliseconds))


def span(lower: int | None, upper: int | None) -> SafeString | str:
    """A half-open period, with its length where it has both ends."""
    if lower is None and upper is None:
        return "-"
    if lower is None or upper is None:
        return unbroken(f"{utc(lower)} – {utc(upper)}")
    return unbroken(f"{utc(lower)} – {utc(upper)} ({length(upper - lower)})")


def window(lower: int | None, upper: int | None) -> SafeString | str:
    """The same in short, for lists: when it starts, and for how long."""
    if lower is None or upper is None:
        return "-"
    return unbroken(f"{utc(lower)}, {length(upper - lower)}")


def period(value: Any, show: Callable[[int | None, int | None], Any]) -> SafeString | str:
    """A stored range of epoch milliseconds."""
    return "none" if value.isempty else show(value.lower, value.upper)


def state(value: str, text: str | None = None) -> SafeString | str:
    """A state as a coloured label."""
    return display_for_label((value, text or value), "-", COLORS | {value: COLORS.get(value, "")}) if value else "-"


def states(*values: str) -> SafeString:
    """Several labels side by side."""
    return format_html_join(" ", "{}", ((state(value),) for value in values))


def pretty(value: Any) -> SafeString | str:
    """JSON, indented; ``-`` for nothing."""
    if value in (None, {}, [], ""):
        return "-"
    return preformatted(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def preformatted(text: str) -> SafeString:
    """Text in which every space counts."""
    style = "white-space: pre-wrap; overflow-wrap: anywhere; font-family: ui-monospace, monospace; font-size: 12px"
    return format_html('<pre style="{}">{}</pre>', style, text)


# --- Columns ----------------------------------------------------------------------------------------------------------


def column(
    name: str, label: str, show: Column, *, ordering: str | None = None, linked: tuple[Any, Any] | None = None
) -> Column:
    """A column that Django and unfold show under this label. ``linked``: what names it needs (see ``linked``)."""

    @admin.display(description=label, ordering=ordering)
    def display(row: Any) -> Any:
        return show(row)

    display.__name__ = name
    display.linked = linked  # type: ignore[attr-defined]  # read by `pages`, which looks the names of a page up at once
    return display


def instant(field: str, label: str | None = None) -> Column:
    """A column of epoch milliseconds, sortable by it: ``list_display = ["id", instant("created_at")]``."""
    text = label or field.removesuffix("_at").replace("_", " ")
    return column(f"{field}_utc", text, lambda row: at(getattr(row, field)), ordering=field)


def moment(field: str, label: str | None = None) -> Column:
    """A column of datetimes, which the framework's own tables have."""

    def show(row: Any) -> SafeString | str:
        value = getattr(row, field)
        return at(round(value.timestamp() * 1000) if value else None)

    return column(f"{field}_utc", label or field.replace("_", " "), show, ordering=field)


def duration(field: str, label: str | None = None, *, seconds: bool = False) -> Column:
    """A column of milliseconds, or seconds, as a length of time."""

    def show(row: Any) -> str:
        value = getattr(row, field)
        return length(value * 1000 if seconds and value is not None else value)

    return column(f"{field}_length", label or field.replace("_", " "), show, ordering=field)


def ranged(field: str, label: str | None = None, *, short: bool = False) -> Column:
    """A column that holds a range of epoch milliseconds, as ``span`` shows it, or in short as ``window`` does."""
    show = window if short else span
    return column(f"{field}_period", label or field, lambda row: period(getattr(row, field), show), ordering=field)


def labelled(field: str, label: str | None = None) -> Column:
    """A state column as a coloured label."""
    return column(f"{field}_label", label or field, lambda row: state(getattr(row, field)), ordering=field)


def prettied(field: str, label: str | None = None) -> Column:
    """A JSON column, indented."""
    return column(f"{field}_pretty", label or field.replace("_", " "), lambda row: pretty(getattr(row, field)))


def linked(field: str, kind: str | Callable[[Any], str], label: str | None = None, *, with_id: bool = False) -> Column:
    """A column of ids as links, with names that are looked up for the whole page at once.

    ``kind`` may be a function of the row: an event's subject is of many kinds.
    """
    kind_of: Callable[[Any], str] = (lambda _: kind) if isinstance(kind, str) else kind

    def show(row: Any) -> Any:
        return link(kind_of(row), str(getattr(row, field) or ""), names_on(row), with_id=with_id)

    text = label or field.removesuffix("_id").replace("_", " ")
    return column(f"{field}_link", text, show, ordering=field, linked=(field, kind_of))


def own_page(kind: str, field: str, label: str | None = None) -> Column:
    """A column of a table: the field's value, linked to the row's own page."""

    def show(row: Any) -> Any:
        return link(kind, str(row.pk), {(kind, str(row.pk)): str(getattr(row, field))})

    return column(f"{field}_page", label or field, show)


def names_on(row: Any) -> Mapping[tuple[str, str], str]:
    """The names that were looked up for the page that this row is on."""
    return getattr(row, "shown_names", {})
