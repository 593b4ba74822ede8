"""One way of paging: newest first, the cursor is the id of the last item seen (IAM-API §1)."""

from typing import TypeVar

from django.db.models import Model, Q, QuerySet

from computeplatform.errors import InvalidInput

M = TypeVar("M", bound=Model)


def newest_first(
    everything: QuerySet[M], wanted: QuerySet[M], *, limit: int, cursor: str | None
) -> tuple[list[M], str | None]:
    """A page of ``wanted`` after ``cursor``, which is an item of ``everything``; and the next cursor, if more remain.

    The item may have left ``wanted`` since (a key that was revoked meanwhile); the page goes on all the same.
    Raises InvalidInput for a cursor that is none.
    """
    if cursor is not None:
        seen = everything.filter(pk=cursor).values_list("created_at", "pk").first()
        if seen is None:
            raise InvalidInput.at("cursor", "is not the id of an item of this list")
        wanted = wanted.filter(Q(created_at__lt=seen[0]) | Q(created_at=seen[0], pk__lt=seen[1]))
    rows = list(wanted.order_by("-created_at", "-pk")[: limit + 1])
    return rows[:limit], str(rows[limit - 1].pk) if len(rows) > limit else None
