"""What one message of a node's software changes (NOD-2, NOD-8, NOD-9): pure rules over what is stored and what came."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from fleet.domain.units import MIG_PLACES, SLOTS

OK = "ok"
MISSING = "missing"

PLANNED = "planned"
BOUND = "bound"
WITHDRAWING = "withdrawing"
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
    if not (new or changed or missing):
        return DeviceChanges((), (), (), gained=False, lost=False)
    offered_before, offered_after = _offered(by_position.values()), _offered(after.values())
    return DeviceChanges(
        new=new,
        changed=changed,
        missing=missing,
        gained=bool(offered_after - offered_before),
        lost=bool(offered_before - offered_after),
    )


def _offered(devices: Iterable[ReportedDevice]) -> set[tuple[int, str, int]]:
    """What can be booked of these: a GPU as a whole unless it has MIG instances, these by their place, its slots."""
    offered: set[tuple[int, str, int]] = set()
    for device in devices:
        if device.health != OK:
            continue
        if not device.mig:
            offered.add((device.position, "", 0))
        offered.update((device.position, instance["profile"], instance["index"]) for instance in device.mig)
        offered.update((device.position, "slot", slot) for slot in range(device.slots or 0))
    return offered


@dataclass(frozen=True)
class Held:
    """What the node says of one allocation; ``generation`` that of the plan it holds, where its software knows it."""

    state: str  # bound | withdrawing | withdrawn; empty: it does not list it, so it holds nothing of it
    holders: int = 0
    generation: int | None = None

    @property
    def released(self) -> bool:
        """``AllocationReleased`` (REL-4): it is withdrawn, or unknown there, and no pod holds the devices."""
        return self.state in ("", WITHDRAWN) and not self.holders


_NOT_THERE = Held("")


def holds_still(said: Held, *, told: bool, until: int, now: int) -> bool:
    """Whether a node holds something, or may hold it by now, that it is no longer to hold (REL-4).

    What it said last decides, with what it was told since: every answer repeats ``bound``, so a node that was told may
    have bound after its last report, whatever that said. At ``until`` it withdraws by itself and binds no more, so what
    it then reported withdrawn stays withdrawn.
    """
    if said.state == WITHDRAWN and not said.holders:
        return told and until > now
    return told or said.state != ""


@dataclass(frozen=True)
class Wanted:
    """What is stored of one allocation.

    ``older`` is what was last said of an earlier plan of the same reservation that its node may still hold;
    ``observed`` and ``holders`` are of the present plan, number ``generation``.
    """

    reservation_id: str
    desired: str
    observed: str
    holders: int
    generation: int = 1
    older: Held | None = None


@dataclass(frozen=True)
class AllocationChanges:
    """``observed`` gives the rows that the report changes, by reservation; ``older`` those of whose earlier plan it
    says something new, None once that is let go of; ``done`` are withdrawn for good and go; ``unknown`` is reported by
    the node and wanted by nobody; ``news`` says that an allocation became bound or free."""

    observed: Mapping[str, Held]
    done: frozenset[str]
    unknown: tuple[str, ...]
    news: bool
    older: Mapping[str, Held | None] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.observed or self.done or self.older)


def allocation_changes(stored: Sequence[Wanted], reported: Mapping[str, Held]) -> AllocationChanges:
    """Compare what should be held with a report, which lists all that the node holds.

    An allocation that is not listed is not held: after a reboot of the node that includes one which was bound before.

    A reservation may come back to a node with other devices before the node has let go of its earlier ones. Both go by
    the reservation's id, so a report says of which plan it is by ``generation``; where it does not, it is of the
    earlier one until that is released, since the node is told of the next only after that (NOD-8). A generation that
    is not the present one is the earlier plan again, whatever was heard meanwhile.
    """
    observed: dict[str, Held] = {}
    older: dict[str, Held | None] = {}
    done = set()
    news = False
    for row in stored:
        said = reported.get(row.reservation_id, _NOT_THERE)
        if _of_an_earlier_plan(row, said):
            if said.released:
                older[row.reservation_id] = None
                news = True
            elif row.older is None or (said.state, said.holders) != (row.older.state, row.older.holders):
                older[row.reservation_id] = said
            if not (said.released and row.desired == WITHDRAWN):
                continue
        elif row.older is not None:
            older[row.reservation_id] = None
        if row.desired == WITHDRAWN and said.released:
            done.add(row.reservation_id)
            news = True
        elif (said.state, said.holders) != (row.observed, row.holders):
            observed[row.reservation_id] = said
            news = news or (said.state != row.observed and BOUND in (said.state, row.observed))
            news = news or said.state == WITHDRAWN != row.observed
    known = {row.reservation_id for row in stored}
    unknown = tuple(name for name, said in reported.items() if name not in known and not said.released)
    return AllocationChanges(observed=observed, done=frozenset(done), unknown=unknown, news=news, older=older)


def _of_an_earlier_plan(row: Wanted, said: Held) -> bool:
    if said.generation is not None and said.state in (BOUND, WITHDRAWING):
        return said.generation < row.generation
    return row.older is not None


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
        found += _part_faults(f"devices.{index}", device, seen_uuids)
        seen_positions.add(device.position)
        seen_uuids.add(device.uuid)
    seen: set[str] = set()
    for index, (reservation_id, _) in enumerate(report.allocations):
        if reservation_id in seen:
            found.append((f"allocations.{index}.reservationId", "is listed twice"))
        seen.add(reservation_id)
    return found


def _part_faults(path: str, device: ReportedDevice, seen_uuids: set[str]) -> list[tuple[str, str]]:
    """What of a GPU's instances and slots has no units to be booked by, or is there twice (NOD-4)."""
    found = []
    places: set[int] = set()
    for number, instance in enumerate(device.mig):
        here, place = f"{path}.mig.{number}", instance["index"]
        if place >= MIG_PLACES:
            found.append((f"{here}.index", f"a GPU has places for {MIG_PLACES} instances, 0 to {MIG_PLACES - 1}"))
        if place in places:
            found.append((f"{here}.index", "is listed twice"))
        if instance["uuid"] in seen_uuids:
            found.append((f"{here}.uuid", "is listed twice"))
        places.add(place)
        seen_uuids.add(instance["uuid"])
    if device.slots is not None and device.slots > SLOTS:
        found.append((f"{path}.slots", f"a GPU has at most {SLOTS} slots"))
    return found
