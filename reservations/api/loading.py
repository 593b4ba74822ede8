"""Finding the reservation that a call is about, and showing it afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from computeplatform.api.calls import Call, Resource
from computeplatform.api.methods import Answer, Data
from reservations import queries
from reservations.contracts import reservation_json

if TYPE_CHECKING:
    from reservations.models import Reservation


def with_drafts(call: Call, data: Data) -> tuple[Resource, Reservation]:
    """The tenant's reservation, drafts included; one that IAM refused is NOT_FOUND."""
    return _loaded(call, queries.any_state(tenant_id=call.tenant_id, reservation_id=data["reservationId"]))


def without_drafts(call: Call, data: Data) -> tuple[Resource, Reservation]:
    """The tenant's reservation; a draft of any kind is NOT_FOUND."""
    return _loaded(call, queries.visible(tenant_id=call.tenant_id, reservation_id=data["reservationId"]))


def present(call: Call, reservation_id: str) -> Answer:
    """The reservation as it is stored now."""
    return {"reservation": reservation_json(queries.visible(tenant_id=call.tenant_id, reservation_id=reservation_id))}


def _loaded(call: Call, row: Reservation) -> tuple[Resource, Reservation]:
    return queries.decision_resource(row, queries.pools_of([row])[row.pool_id], now=call.now), row
