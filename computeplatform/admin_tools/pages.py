"""The base of every operators' page: rows that nobody edits, names instead of ids, tables of what belongs together."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.admin import ShowFacets
from django.contrib.admin.utils import flatten_fieldsets, label_for_field, lookup_field, unquote
from django.contrib.admin.views.main import ChangeList
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.admin import ModelAdmin
from unfold.utils import display_for_field

from computeplatform.admin_tools.objects import Names, link, list_of, names_of
from computeplatform.admin_tools.shown import Column, at
from computeplatform.events.models import Event
from computeplatform.events.queries import history

# Rows of a table on a page about one object; the list behind it has all of them.
TABLE_ROWS = 20


@dataclass(frozen=True)
class Table:
    """What belongs to the object of a page. ``more`` is the address of the list in which all of it is found."""

    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[Any]]
    more: str = ""

    @property
    def shown(self) -> dict[str, Any]:
        """The shape that unfold's table takes."""
        return {"headers": self.headers, "rows": self.rows[:TABLE_ROWS]}

    @property
    def is_cut(self) -> bool:
        """Whether there are more rows than are shown."""
        return len(self.rows) > TABLE_ROWS


def table(
    title: str, model: type[Model], columns: Sequence[str | Column], rows: QuerySet[Any], more: str = ""
) -> Table:
    """A table of the first rows, with columns as lists have them: fields, or displays. Their ids are named at once."""
    found = list(rows[: TABLE_ROWS + 1])
    name_rows(found, columns)
    headers = [str(label_for_field(shown, model)) for shown in columns]
    return Table(title, headers, [[cell(row, shown) for shown in columns] for row in found], more)


def cell(row: Model, shown: str | Column) -> Any:
    """One value of a row, as a list would show it."""
    if callable(shown):
        return shown(row)
    field, _, value = lookup_field(shown, row)
    return display_for_field(value, field, "-")


def name_rows(rows: Sequence[Any], columns: Iterable[Any]) -> None:
    """Look up what the linked columns of these rows are called: one query for each kind of object."""
    wanted = [column.linked for column in columns if getattr(column, "linked", None)]
    names = names_of((kind_of(row), str(getattr(row, field) or "")) for field, kind_of in wanted for row in rows)
    for row in rows:
        row.shown_names = names


class ReadOnlyAdmin(ModelAdmin):  # type: ignore[misc]
    """Shows rows. Changes go through operations, whose callers are the API and the acts on these pages.

    ``subject_type`` is how events name these objects; their history is then the events about them.
    """

    list_per_page = 50
    show_full_result_count = False  # a count of a large table costs more than the page
    list_fullwidth = True
    show_facets = ShowFacets.NEVER  # one more count for each choice, over the whole table
    list_disable_select_all = True  # acts are on rows that somebody has seen
    change_form_after_template = "computeplatform/admin/tables.html"
    subject_type = ""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> list[Any]:
        return flatten_fieldsets(self.get_fieldsets(request, obj)) if self.fieldsets else []

    # --- Names ---

    def get_changelist_instance(self, request: HttpRequest) -> ChangeList:
        shown: ChangeList = super().get_changelist_instance(request)
        name_rows(list(shown.result_list), self.list_display)
        return shown

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Model | None:
        row: Model | None = super().get_object(request, object_id, from_field)
        if row is not None:
            name_rows([row], flatten_fieldsets(self.get_fieldsets(request, row)))
        return row

    # --- What belongs to the object ---

    def tables(self, row: Any) -> list[Table]:
        """What is shown below the object's own columns."""
        return []

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, obj: Model | None = None, **kwargs: Any
    ) -> HttpResponse:
        if obj is not None:
            tables = self.tables(obj)
            if self.subject_type:
                tables.append(history_table(self.subject_type, str(obj.pk)))
            context |= {"tables": tables, "show_history": bool(self.subject_type)}
        return super().render_change_form(request, context, *args, obj=obj, **kwargs)  # type: ignore[no-any-return]

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Everything that has happened to the object: its events."""
        row = self.get_object(request, unquote(object_id))
        if row is None or not self.subject_type:
            return self._get_obj_does_not_exist_redirect(request, self.opts, object_id)  # type: ignore[no-any-return]
        return HttpResponseRedirect(_history_of(self.subject_type, str(row.pk)))


# --- Events -----------------------------------------------------------------------------------------------------------


def history_table(subject_type: str, subject_id: str) -> Table:
    """The last events of one subject, newest first."""
    rows = history(subject_type=subject_type, subject_id=subject_id, limit=TABLE_ROWS + 1)
    names = names_of(("principal", row.actor_id) for row in rows)
    shown = [_event_cells(row, names) for row in rows]
    headers = ["at", "event", "version", "reason", "by", "request"]
    return Table("History", headers, shown, _history_of(subject_type, subject_id))


def _event_cells(row: Event, names: Names) -> list[Any]:
    when, what = at(row.at), link("event", row.id, {("event", row.id): row.type})
    by = link("principal", row.actor_id, names)
    return [when, what, row.subject_version, row.reason or "-", by, decisions_of(row.request_id)]


def decisions_of(request_id: str) -> SafeString | str:
    """A request id, linked to what was decided for it."""
    if not request_id:
        return "-"
    return format_html(
        '<a href="{}" class="text-link">{}</a>', list_of("iam_decision", request_id=request_id), request_id
    )


def _history_of(subject_type: str, subject_id: str) -> str:
    return list_of("computeplatform_event", subject_type=subject_type, subject_id=subject_id)
