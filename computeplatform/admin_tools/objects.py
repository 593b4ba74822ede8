"""What the ids on operators' pages stand for. Each app says of its objects where their page is and how they are named;
the kernel knows none of them."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.contrib.admin.utils import quote
from django.db.models import QuerySet
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

# Names by id: of these ids, or of the first ones where None is asked for (the choices of a filter).
NamesOf = Callable[[Collection[str] | None], Mapping[str, str]]
Names = Mapping[tuple[str, str], str]

CHOICES = 200


@dataclass(frozen=True)
class Kind:
    """A kind of object: the URL name of its page without ``_change``, and its names where they differ from the ids."""

    page: str
    names: NamesOf | None


_kinds: dict[str, Kind] = {}


def register_kind(kind: str, page: str, names: NamesOf | None = None) -> None:
    """Say where objects of this kind are shown (``fleet_pool``); called where an app's pages are registered."""
    _kinds[kind] = Kind(page, names)


def some(rows: QuerySet[Any], ids: Collection[str] | None, field: str) -> Mapping[str, str]:
    """The names of these rows, or of the first ones: what most ``names`` of ``register_kind`` do."""
    chosen = rows[:CHOICES] if ids is None else rows.filter(pk__in=ids)
    return dict(chosen.values_list("pk", field))


def names_of(wanted: Iterable[tuple[str, str]]) -> Names:
    """The names of ``(kind, id)``: one query for each kind that has names."""
    by_kind: dict[str, set[str]] = defaultdict(set)
    for kind, identifier in wanted:
        if identifier:
            by_kind[kind].add(identifier)
    found: dict[tuple[str, str], str] = {}
    for kind, ids in by_kind.items():
        names = _kinds[kind].names if kind in _kinds else None
        if names is not None:
            found |= {(kind, identifier): name for identifier, name in names(ids).items()}
    return found


def choices_of(kind: str) -> list[tuple[str, str]]:
    """Ids and names to choose from, by name."""
    names = _kinds[kind].names
    return sorted(names(None).items(), key=lambda item: item[1]) if names else []


def link(kind: str, identifier: str, names: Names, *, with_id: bool = False) -> SafeString | str:
    """The object's name, linked to its page; its id where it has no name.

    An id that names nothing known (``system:…``, or an object that is gone) is shown as it is. ``with_id``: the id
    beside the name, for pages about one object.
    """
    if not identifier:
        return "-"
    if kind not in _kinds or (_kinds[kind].names is not None and (kind, identifier) not in names):
        return identifier
    name = names.get((kind, identifier), identifier)
    anchor = format_html(
        '<a href="{}" class="text-link whitespace-nowrap" title="{}">{}</a>',
        page_of(kind, identifier),
        identifier,
        name,
    )
    if with_id and name != identifier:
        return format_html('{} <span class="text-xs">{}</span>', anchor, identifier)
    return anchor


def page_of(kind: str, identifier: str) -> str:
    """The address of an object's page."""
    return reverse(f"admin:{_kinds[kind].page}_change", args=[quote(identifier)])


def lists(pages: Mapping[str, str], **filters: str) -> SafeString:
    """Several such addresses as links, by what they are called."""
    anchors = [(list_of(page, **filters), text) for text, page in pages.items()]
    return format_html_join(" · ", '<a href="{}" class="text-link">{}</a>', anchors)


def list_of(page: str, **filters: str) -> str:
    """The address of a list, filtered: ``list_of("fleet_node", pool_id=…)``."""
    return reverse(f"admin:{page}_changelist", query=filters)
