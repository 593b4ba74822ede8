"""Filters whose choices are known beforehand: Django's own reads every row of the table to find them."""

from collections.abc import Callable, Sequence
from typing import Any

from django.contrib.admin import SimpleListFilter
from django.db.models import Model, QuerySet
from django.http import HttpRequest

from computeplatform.admin_tools.objects import choices_of

Choices = list[tuple[str, str]]
# The rows for which a value holds, where that is more than what a column says.
Narrow = Callable[[QuerySet[Any], str], QuerySet[Any]]


def _filter(
    field: str, label: str | None, choices: Callable[[], Choices], narrow: Narrow | None = None
) -> type[SimpleListFilter]:
    class KnownFilter(SimpleListFilter):
        title = label or field.removesuffix("_id").replace("_", " ")
        parameter_name = field

        def lookups(self, request: HttpRequest, model_admin: Any) -> Choices:
            return choices()

        def queryset(self, request: HttpRequest, queryset: QuerySet[Model]) -> QuerySet[Model]:
            value = self.value()
            if narrow is not None:
                return narrow(queryset, value) if value in dict(choices()) else queryset
            return queryset.filter(**{field: value}) if value else queryset

    return KnownFilter


def known(
    field: str,
    values: Sequence[str] | Callable[[], Sequence[str]],
    label: str | None = None,
    narrow: Narrow | None = None,
) -> type[SimpleListFilter]:
    """A filter by one of these values; a function where they are not yet known when the page is declared."""
    choices = lambda: [(value, value) for value in (values() if callable(values) else values)]  # noqa: E731
    return _filter(field, label, choices, narrow)


def named(field: str, kind: str, label: str | None = None) -> type[SimpleListFilter]:
    """A filter by an object, of which the list shows the name (at most 200 of them)."""
    return _filter(field, label, lambda: choices_of(kind))
