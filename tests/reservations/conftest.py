"""What tests of reservations look at beside the answers."""

from collections.abc import Callable
from typing import Any

import pytest

from computeplatform.models import Event
from fleet.models import Allocation
from iam.models import Confirmation, Decision
from quotas.models import Charge
from reservations.models import Booking, Reservation
from tests.support.world import World


@pytest.fixture
def pool(world: World) -> str:
    """One node of eight GPUs, offered to acme and globex."""
    return world.offered_pool()


DRAFTS = ["draft", "denied", "awaiting-confirmation"]


def traces() -> dict[str, Any]:
    """Everything that a create can leave behind, counted."""
    return {
        "drafts": Reservation.objects.filter(state__in=DRAFTS).count(),
        "reservations": Reservation.objects.exclude(state__in=DRAFTS).count(),
        "decisions": Decision.objects.filter(action="compute:reservations:create").count(),
        "confirmations": Confirmation.objects.count(),
        "charges": Charge.objects.filter(refunded_at=None).count(),
        "bookings": Booking.objects.count(),
        "allocations": Allocation.objects.count(),
        "events": Event.objects.filter(type__startswith="reservation.").count(),
    }


@pytest.fixture
def left(world: World) -> Callable[..., dict[str, int]]:
    """What has appeared since the test began, without what is zero."""
    before = traces()

    def since() -> dict[str, int]:
        return {name: found - before[name] for name, found in traces().items() if found != before[name]}

    return since


def event_types(reservation_id: str) -> list[str]:
    """The types of a reservation's events, in order."""
    rows = Event.objects.filter(subject_id=reservation_id).order_by("position")
    return [row.type.removeprefix("reservation.") for row in rows]
