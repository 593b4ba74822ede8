"""What time ends without a write is shown as it is at the moment of looking: no row says that it has expired."""

from typing import Any

from django.db.models import BigIntegerField, Func, QuerySet
from django.http import HttpRequest

from computeplatform.admin_tools import ReadOnlyAdmin, column, known, state
from computeplatform.clock import compute_now
from iam.domain.confirming import STATES
from iam.queries.confirmations import in_state, state_of
from iam.queries.pages import in_status, status_of


def with_now(rows: QuerySet[Any]) -> QuerySet[Any]:
    """The rows with the time at which they are read, as ``now``: what ``STATUS`` and ``STATE`` need."""
    found: QuerySet[Any] = rows.annotate(now=Func(function="compute_now", output_field=BigIntegerField()))
    return found


class LastingAdmin(ReadOnlyAdmin):
    """Rows that end by themselves."""

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return with_now(super().get_queryset(request))


# Of a key or a delegation; of a confirmation, which reads its delegation.
STATUS = column("status_now", "status", lambda row: state(status_of(row, now=row.now)), ordering="status")
STATE = column("state_now", "state", lambda row: state(state_of(row, now=row.now)), ordering="state")

BY_STATUS = known(
    "status", ["active", "expired", "revoked"], narrow=lambda rows, value: in_status(rows, value, now=compute_now())
)
BY_STATE = known("state", STATES, narrow=lambda rows, value: in_state(rows, value, now=compute_now()))
