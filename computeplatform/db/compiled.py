"""A query that is asked in every call: written as a queryset, compiled to SQL once, executed with other values.

Compiling a queryset costs several times what PostgreSQL needs to answer it (docs/performance.md). Only for look-ups by
text columns; everything else stays a plain queryset.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any, Generic, TypeVar

from django.db.models import Model, QuerySet

from computeplatform.prepared import prepared_cursor

M = TypeVar("M", bound=Model)


class _Plan:
    """The SQL, which value goes where, and how a row becomes what the queryset would give."""

    def __init__(self, queryset: QuerySet[Any], markers: dict[str, str]) -> None:
        self.compiler = queryset.query.get_compiler("default")
        self.sql, parameters = self.compiler.as_sql()
        self.parameters = [markers.get(value, value) if isinstance(value, str) else value for value in parameters]
        self.names = set(markers.values())
        missing = self.names - {value for value in self.parameters if isinstance(value, str)}
        if missing:
            raise ValueError(f"the query does not use {sorted(missing)} as they are given")
        selected = self.compiler.select
        self.converters = self.compiler.get_converters([expression for expression, _, _ in selected])
        info = self.compiler.klass_info
        self.fields = [selected[i][0].target.attname for i in info["select_fields"]] if info else []
        self.annotations = dict(self.compiler.annotation_col_map or {})

    def execute(self, values: dict[str, str]) -> list[Any]:
        chosen = [values[p] if isinstance(p, str) and p in self.names else p for p in self.parameters]
        with prepared_cursor() as cursor:
            cursor.execute(self.sql, chosen)
            rows = list(cursor.fetchall())
        if self.converters:
            return [tuple(row) for row in self.compiler.apply_converters(rows, self.converters)]
        return rows


class Compiled(Generic[M]):
    """``build`` makes the queryset; it is called once, with a stand-in for each of its keyword arguments.

    ``named = Compiled(lambda *, name: Thing.objects.filter(name=name), "name")``, then ``named.first(name="…")``.
    """

    def __init__(self, build: Callable[..., QuerySet[M, Any]], *names: str) -> None:
        self._build = build
        self._names = names

    @cached_property
    def _plan(self) -> _Plan:
        markers = {f"compiled-query-parameter-{name}": f"\x00{name}" for name in self._names}
        queryset = self._build(**dict(zip(self._names, markers, strict=True)))
        self._model = queryset.model
        return _Plan(queryset, markers)

    def rows(self, **values: str) -> list[Any]:
        """The rows of a ``values_list`` queryset."""
        return self._plan.execute({f"\x00{name}": value for name, value in values.items()})

    def objects(self, **values: str) -> list[M]:
        """The objects of a model's queryset, annotations included."""
        plan = self._plan
        found = []
        for row in self.rows(**values):
            made = self._model.from_db("default", plan.fields, row[: len(plan.fields)])
            for name, place in plan.annotations.items():
                setattr(made, name, row[place])
            found.append(made)
        return found

    def first(self, **values: str) -> M | None:
        """The first object, if there is one."""
        return next(iter(self.objects(**values)), None)
