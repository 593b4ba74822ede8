"""What can be the matter with a node, as other apps are told of it. Times are epoch milliseconds, ranges half-open."""

from dataclasses import dataclass


@dataclass(frozen=True)
class MaintenanceView:
    """A time, half-open, in which a node takes no bookings (NOD-7)."""

    id: str
    starts_at: int
    ends_at: int
    reason: str


@dataclass(frozen=True)
class NodeBooking:
    """What a reservation has booked on a node for ``[starts_at, ends_at)``, for operators."""

    reservation_id: str
    tenant_id: str
    devices: int
    starts_at: int
    ends_at: int


@dataclass(frozen=True)
class SickDevice:
    """A live device that is not ok, with the units of its position and the report since which that is so."""

    position: int
    uuid: str
    health: str
    since: int
    units: tuple[int, int]


@dataclass(frozen=True)
class NodeTrouble:
    """What keeps a node of a pool from bookings that it has (REC-4, NOD-1, NOD-5); ``units`` is its whole span.

    ``lost_at`` is the last contact of a lost node.
    """

    node_id: str
    units: tuple[int, int]
    lost_at: int | None
    draining: bool
    sick: tuple[SickDevice, ...]
