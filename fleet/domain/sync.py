"""What one message of a node's software changes (NOD-2, NOD-8, NOD-9): pure rules over what is stored and what came."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

OK = "ok"
MISSING = "missing"

PLANNED = "planned"
BOUND = "bound"
WITHDRAWN = "withdrawn"


class Standing(Enum):
    """What a message is, compared with what we know of its node."""

    OPENING = "opening"  # it has no session: it gets one, its report is not applied
    STALE = "stale"  # an older session, or another boot: whoever sent it has to open one
    OLD = "old"  # overtaken by a later message of the same boot: answered, not applied
    CURRENT = "current"
    AHEAD = "ahead"  # of a session that we never gave out: we know less than the node (NOD-6)


@dataclass(frozen=True)
class Known:
    """What is stored of a node's newest message."""

    session: int
    boot_id: str
    sequence: int


def standing(known: Known, *, session: int | None, boot_id: str, sequence: int) -> Standing:
    """Where a message stands. Within a session sequences rise; the same one again is the same message again."""
    if session is None:
        return Standing.OPENING
    if session > known.session:
        return Standing.AHEAD
    if session < known.session or boot_id != known.boot_id:
        return Standing.STALE
    return Standing.OLD if sequence < known.sequence else Standing.CURRENT


@dataclass(frozen=True)
class ReportedDevice:
    """A GPU as its node reports it."""

    position: int
    uuid: str
    model: str
    memory_mib: int
    health: str
    mig: list[dict[str, Any]] = field(default_factory=list)
    slots: int | None = None


@dataclass(frozen=True)
class DeviceChanges:
    """``new`` take their position (in place of whatever was there), ``changed`` are the same device otherwise than
    before, ``missing`` are positions that the node no longer reports."""

    new: tuple[ReportedDevice, ...]
    changed: tuple[ReportedDevice, ...]
    missing: tuple[int, ...]
    gained: bool  # something can be booked that could not
    lost: bool  # something can no longer be booked that could

    def __bool__(self) -> bool:
        return bool(self.new or self.changed or self.missing)


def device_changes(stored: Iterable[ReportedDevice], reported: Iterable[ReportedDevice]) -> DeviceChanges:
    """Compare the live devices with a report, which lists all that the node has."""
    by_position = {device.position: device for device in stored}
    after = {device.position: device for device in reported}
    before = {p: by_position.get(p) for p in after}
    new = tuple(d for p, d in sorted(after.items()) if (old := before[p]) is None or old.uuid != d.uuid)
    changed = tuple(d for p, d in sorted(after.items()) if (old := before[p]) and old.uuid == d.uuid and old != d)
    missing = tuple(p for p, d in sorted(by_position.items()) if p not in after and d.health != MISSING)
    healthy_before = {p for p, d in by_position.items() if d.health == OK}
    healthy_after = {p for p, d in after.items() if d.health == OK}
    return DeviceChanges(
        new=new,
        changed=changed,
        missing=missing,
        gained=bool(healthy_after - healthy_before),
        lost=bool(healthy_before - healthy_after),
    )


@dataclass(frozen=True)
class Held:
    """What the node says of one allocation."""

    state: str  # bound | withdrawing | withdrawn
    holders: int = 0


@dataclass(frozen=True)
class Wanted:
    """What is stored of one allocation."""

    reservation_id: str
    desired: str
    observed: str
    holders: int


@dataclass(frozen=True)
class AllocationChanges:
    """``observed`` gives the rows that the report changes, by reservation; ``done`` are withdrawn for good and go;
    ``unknown`` is reported by the node and wanted by nobody; ``news`` says that an allocation became bound or free."""

    observed: Mapping[str, Held]
    done: frozenset[str]
    unknown: tuple[str, ...]
    news: bool


_NOT_THERE = Held("")


def allocation_changes(stored: Sequence[Wanted], reported: Mapping[str, Held]) -> AllocationChanges:
    """Compare what should be held with a report, which lists all that the node holds.

    An allocation that is not listed is not held: after a reboot of the node that includes one which was bound before.
    """
    observed: dict[str, Held] = {}
    done = set()
    news = False
    for row in stored:
        said = reported.get(row.reservation_id, _NOT_THERE)
        if row.desired == WITHDRAWN and said.state in ("", WITHDRAWN):
            done.add(row.reservation_id)
            news = True
        elif (said.state, said.holders) != (row.observed, row.holders):
            observed[row.reservation_id] = said
            news = news or (said.state != row.observed and BOUND in (said.state, row.observed))
            news = news or said.state == WITHDRAWN != row.observed
    known = {row.reservation_id for row in stored}
    unknown = tuple(name for name, said in reported.items() if name not in known and said.state != WITHDRAWN)
    return AllocationChanges(observed=observed, done=frozenset(done), unknown=unknown, news=news)


@dataclass(frozen=True)
class Report:
    """One message of a node's software. ``allocations`` lists all that it holds or has withdrawn, by reservation."""

    boot_id: str
    session: int | None
    sequence: int
    software: Mapping[str, Any]
    devices: tuple[ReportedDevice, ...]
    host: Mapping[str, int] | None
    allocations: tuple[tuple[str, Held], ...]


def faults(report: Report, *, positions: int) -> list[tuple[str, str]]:
    """What contradicts itself or the node's registration: ``(path, words)`` for each wrong field."""
    found = []
    seen_positions: set[int] = set()
    seen_uuids: set[str] = set()
    for index, device in enumerate(report.devices):
        if device.position >= positions:
            found.append((f"devices.{index}.position", f"the node was registered with {positions} positions"))
        if device.position in seen_positions:
            found.append((f"devices.{index}.position", "is listed twice"))
        if device.uuid in seen_uuids:
            found.append((f"devices.{index}.uuid", "is listed twice"))
        seen_positions.add(device.position)
        seen_uuids.add(device.uuid)
    seen: set[str] = set()
    for index, (reservation_id, _) in enumerate(report.allocations):
        if reservation_id in seen:
            found.append((f"allocations.{index}.reservationId", "is listed twice"))
        seen.add(reservation_id)
    return found
