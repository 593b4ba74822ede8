"""One way of paging: newest first, the cursor is the id of the last item seen (IAM-API §1)."""

from typing import TypeVar

from django.db.models import Model, Q, QuerySet

from computeplatform.errors import InvalidInput
from iam.models import ApiKey, Delegation

M = TypeVar("M", bound=Model)


def status_of(row: ApiKey | Delegation, *, now: int) -> str:
    """``expired`` is no state of the row but of the clock; what was revoked stays revoked."""
    return "expired" if row.status == "active" and row.expires_at <= now else row.status


def in_status(rows: QuerySet[M], status: str, *, now: int) -> QuerySet[M]:
    """The keys or delegations that are ``active``, ``revoked`` or ``expired`` at ``now``: ``status_of``, in SQL."""
    conditions = {
        "revoked": Q(status="revoked"),
        "active": Q(status="active", expires_at__gt=now),
        "expired": Q(status="active", expires_at__lte=now),
    }
    return rows.filter(conditions[status])


def newest_first(
    everything: QuerySet[M], wanted: QuerySet[M], *, limit: int, cursor: str | None, time: str = "created_at"
) -> tuple[list[M], str | None]:
    """A page of ``wanted`` after ``cursor``, which is an item of ``everything``; and the next cursor, if more remain.

    ``time`` is the column that says how new an item is. The item may have left ``wanted`` since (a key that was revoked
    meanwhile); the page goes on all the same.
    Raises InvalidInput for a cursor that is none.
    """
    if cursor is not None:
        seen = everything.filter(pk=cursor).values_list(time, "pk").first()
        if seen is None:
            raise InvalidInput.at("cursor", "is not the id of an item of this list")
        wanted = wanted.filter(Q(**{f"{time}__lt": seen[0]}) | Q(**{time: seen[0], "pk__lt": seen[1]}))
    rows = list(wanted.order_by(f"-{time}", "-pk")[: limit + 1])
    return rows[:limit], str(rows[limit - 1].pk) if len(rows) > limit else None
