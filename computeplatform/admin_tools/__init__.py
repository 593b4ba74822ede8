"""What every app's admin pages share: rows that nobody edits here, and readable times (OPS-1)."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest
from unfold.admin import ModelAdmin


class ReadOnlyAdmin(ModelAdmin):  # type: ignore[misc]
    """Shows rows. Changes go through operations, whose callers are the API and, later, actions on these pages."""

    list_per_page = 50
    show_full_result_count = False  # a count of a large table costs more than the page

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


def utc(milliseconds: int | None) -> str:
    """An instant as people read it; empty for none."""
    if milliseconds is None:
        return ""
    try:
        at = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):  # a time that no calendar has must not take the page down
        return f"{milliseconds} ms"
    return at.strftime("%Y-%m-%d\u00a0%H:%M:%S\u00a0UTC")


def instant(column: str, label: str | None = None) -> Callable[[Any], str]:
    """A display of an epoch-milliseconds column, sortable by it: ``list_display = ["id", instant("created_at")]``."""

    @admin.display(description=label or column.removesuffix("_at").replace("_", " "), ordering=column)
    def show(row: Any) -> str:
        return utc(getattr(row, column))

    show.__name__ = f"{column}_utc"
    return show
