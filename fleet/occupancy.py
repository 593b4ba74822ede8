"""What is booked on a node. The app that has the bookings answers, through a port that is named in settings."""

from functools import cache
from typing import Protocol

from django.conf import settings
from django.utils.module_loading import import_string

from fleet.contracts import NodeBooking


class BookingsOnNode(Protocol):
    """The port."""

    def __call__(self, node_id: str, *, starts_at: int, ends_at: int | None) -> list[NodeBooking]:
        """What is booked there at any time of ``[starts_at, ends_at)``, the earliest first; None: for ever."""


@cache
def _port() -> BookingsOnNode:
    return import_string(settings.FLEET_BOOKINGS_ON_NODE)  # type: ignore[no-any-return]


def bookings_on_node(node_id: str, *, starts_at: int, ends_at: int | None) -> list[NodeBooking]:
    """What is booked on the node; for whoever holds its pool's lock nothing can come to it meanwhile."""
    return _port()(node_id, starts_at=starts_at, ends_at=ends_at)
