"""``nodes/sync``: a node's report is compared with what is stored, and only what differs is written (NOD-2).

Messages may be lost, repeated or reordered. The node's row is locked, so its messages are judged one after the other;
what a message says is a level, so the newest one says everything.
"""

from collections.abc import Sequence
from typing import Any

from django.db.models.functions import Greatest

from computeplatform.api.calls import Actor
from computeplatform.db.retry import in_transaction
from computeplatform.errors import InvalidInput, Issue
from computeplatform.events.outbox import NewEvent, emit
from computeplatform.wakes import wake
from fleet import events
from fleet.contracts import AllocatedDevice, SyncAnswer, Told
from fleet.domain.nodes import ADOPTING, HEARTBEAT_SECONDS, LOST, NODE
from fleet.domain.sync import (
    BOUND,
    MISSING,
    WITHDRAWN,
    AllocationChanges,
    DeviceChanges,
    Held,
    Known,
    Report,
    ReportedDevice,
    Standing,
    Wanted,
    allocation_changes,
    device_changes,
    faults,
    standing,
)
from fleet.locks import lock_allocations_of_node, lock_node
from fleet.models import Allocation, Device, Node, Taint
from fleet.operations.taints import BIND_TIMED_OUT, RELEASE_STUCK
from fleet.projections import host_json, taint_view

_HOST_COLUMNS = {"vcpu": "host_vcpu", "memoryMiB": "host_memory_mib", "hugepages1Gi": "host_hugepages_1gi"}


@in_transaction
def sync_node(*, node_id: str, report: Report, by: Actor, now: int) -> SyncAnswer:
    """Judge one message, apply it if it is the newest of the node's current session, and say what is wanted.

    A message without a session opens one and is not applied (NOD-9); a stale or overtaken one changes nothing.
    Raises NodeNotFound, and InvalidInput for a report that contradicts itself or the node's registration.
    """
    node = lock_node(node_id)
    wrong = faults(report, positions=node.positions)
    if wrong:
        raise InvalidInput(Issue(path, words) for path, words in wrong)
    known = Known(node.session, node.boot_id, node.sequence)
    stands = standing(known, session=report.session, boot_id=report.boot_id, sequence=report.sequence)
    if stands is Standing.STALE:
        return SyncAnswer(node.session, True, (), (), HEARTBEAT_SECONDS)
    taints = list(Taint.objects.filter(node=node).order_by("key"))
    if stands is Standing.OPENING:
        _open_session(node, report, now=now)
    elif stands in (Standing.CURRENT, Standing.AHEAD):
        return _apply(node, report, taints, ahead=stands is Standing.AHEAD, by=by, now=now)
    return _answer(node, _tell(node, now=now), (), taints, now=now)


def _open_session(node: Node, report: Report, *, now: int) -> None:
    node.session += 1
    Node.objects.filter(pk=node.pk).update(
        session=node.session,
        boot_id=report.boot_id,
        sequence=report.sequence,
        last_heartbeat_at=Greatest("last_heartbeat_at", now),
    )


def _apply(node: Node, report: Report, taints: list[Taint], *, ahead: bool, by: Actor, now: int) -> SyncAnswer:
    devices = _sync_devices(node, report, now=now)
    columns = _sync_host(node, report, now=now)
    pending = [(events.NODE_HOST_CHANGED, "")] if any(name.startswith("host_") for name in columns) else []
    if devices:
        pending.append((events.NODE_DEVICES_CHANGED, ""))
    state = NODE.next(node.state, "ahead" if ahead else "synced")
    if state != node.state:
        pending.append((_entered(node.state, state), ""))
        node.state = columns["state"] = state
    if node.lost_at is not None:
        # Heard of again: what ran there goes on, and what has left it meanwhile it is told to withdraw (REC-4).
        node.lost_at = columns["lost_at"] = None
    if ahead:
        columns |= {"session": report.session, "boot_id": report.boot_id}
        node.session = report.session or node.session
    taints, cleared = _settle_taints(taints, report)
    pending += [(events.NODE_UNTAINTED, key) for key in cleared]
    if pending:
        node.version = columns["version"] = node.version + 1
    # The one statement of an ordinary heartbeat; a message that waited for its turn does not set the clock back.
    heartbeat = {"sequence": report.sequence, "last_heartbeat_at": Greatest("last_heartbeat_at", now)}
    Node.objects.filter(pk=node.pk).update(**heartbeat, **columns)
    if pending:
        emit(_events(node, pending, devices, by=by, now=now))
    rows, unknown = _sync_allocations(node, report, now=now)
    if node.state == ADOPTING:
        _list_unknown(node, report, unknown)
    _wake(node, gained=devices.gained or bool(pending), lost=devices.lost or "state" in columns)
    return _answer(node, rows, unknown, taints, now=now)


def _entered(before: str, state: str) -> str:
    if state == ADOPTING:
        return events.NODE_ADOPTING
    return events.NODE_RETURNED if before == LOST else events.NODE_READY


def _list_unknown(node: Node, report: Report, unknown: Sequence[str]) -> None:
    """What an adopting node holds and nobody here knows is kept for the operator, who decides about it (NOD-6)."""
    said = dict(report.allocations)
    listed = [
        {"reservationId": name, "state": said[name].state, "holders": said[name].holders} for name in sorted(unknown)
    ]
    if listed != (node.unknown_allocations or []):
        node.unknown_allocations = listed
        Node.objects.filter(pk=node.pk).update(unknown_allocations=listed)


def _sync_host(node: Node, report: Report, *, now: int) -> dict[str, object]:
    """The columns of the node that the report changes."""
    columns: dict[str, object] = {}
    if dict(report.software) != node.software:
        columns["software"] = dict(report.software)
    if report.host is not None and dict(report.host) != host_json(node):
        reported = {column: report.host.get(name) for name, column in _HOST_COLUMNS.items()}
        columns |= reported
        if any((amount or 0) < (getattr(node, column) or 0) for column, amount in reported.items()):
            columns["host_lowered_at"] = now
    return columns


def _sync_devices(node: Node, report: Report, *, now: int) -> DeviceChanges:
    rows = {row.position: row for row in Device.objects.filter(node=node, retired_at=None)}
    changes = device_changes((_stored(row) for row in rows.values()), report.devices)
    if not changes:
        return changes
    replaced = [rows[d.position].pk for d in changes.new if d.position in rows]
    if replaced:
        Device.objects.filter(pk__in=replaced).update(retired_at=now)
    Device.objects.bulk_create(_device(node, d, now) for d in changes.new)
    for reported in changes.changed:
        row = rows[reported.position]
        if reported.health != row.health:
            row.health_since = now
        row.model, row.memory_mib, row.health = reported.model, reported.memory_mib, reported.health
        row.mig, row.slots = reported.mig, reported.slots
    if changes.changed:
        columns = ["model", "memory_mib", "health", "health_since", "mig", "slots"]
        Device.objects.bulk_update([rows[d.position] for d in changes.changed], columns)
    if changes.missing:
        # It may be back at the next report; what is booked on it keeps its units (NOD-5).
        Device.objects.filter(pk__in=[rows[p].pk for p in changes.missing]).update(health=MISSING, health_since=now)
    return changes


def _stored(row: Device) -> ReportedDevice:
    return ReportedDevice(row.position, row.uuid, row.model, row.memory_mib, row.health, row.mig, row.slots)


def _device(node: Node, reported: ReportedDevice, now: int) -> Device:
    return Device(
        node=node,
        position=reported.position,
        uuid=reported.uuid,
        model=reported.model,
        memory_mib=reported.memory_mib,
        health=reported.health,
        mig=reported.mig,
        slots=reported.slots,
        first_seen_at=now,
    )


def _sync_allocations(node: Node, report: Report, *, now: int) -> tuple[list[Allocation], tuple[str, ...]]:
    """Write what the node says of its allocations; returns the rows that remain and those that nobody wants.

    The rows are read without a lock first: an ordinary heartbeat has nothing to write and takes none.
    """
    rows = list(Allocation.objects.filter(node=node).order_by("id"))
    changes = _compare(rows, report)
    if changes or _untold(rows):
        rows = lock_allocations_of_node(node.pk)
        changes = _compare(rows, report)
    changed = [row for row in rows if row.reservation_id in changes.observed]
    for row in changed:
        said = changes.observed[row.reservation_id]
        if said.state != row.observed:
            row.observed, row.observed_at = said.state, now
        row.holders = said.holders
    changed += _note_older(rows, changes)
    if changed:
        Allocation.objects.bulk_update(changed, ["observed", "observed_at", "holders", "older"])
    if changes.done:
        Allocation.objects.filter(pk__in=[r.pk for r in rows if r.reservation_id in changes.done]).delete()
    if changes.news:
        touched = changes.done | changes.observed.keys() | changes.older.keys()
        for pool_id in sorted({row.pool_id for row in rows if row.reservation_id in touched}):
            wake("reconcile", pool_id)
    remaining = [row for row in rows if row.reservation_id not in changes.done]
    _mark_told(remaining, now=now)
    return remaining, changes.unknown


def _compare(rows: Sequence[Allocation], report: Report) -> AllocationChanges:
    wanted = [
        Wanted(row.reservation_id, row.desired, row.observed, row.holders, row.generation, _older(row)) for row in rows
    ]
    return allocation_changes(wanted, dict(report.allocations))


def _older(row: Allocation) -> Held | None:
    return None if row.older is None else Held(row.older["observed"], row.older["holders"])


def _note_older(rows: Sequence[Allocation], changes: AllocationChanges) -> list[Allocation]:
    """What was said of earlier plans; one that is released is over."""
    touched = [row for row in rows if row.reservation_id in changes.older]
    for row in touched:
        said = changes.older[row.reservation_id]
        devices = [] if row.older is None else row.older["devices"]
        row.older = None if said is None else {"devices": devices, "observed": said.state, "holders": said.holders}
    return touched


def _tell(node: Node, *, now: int) -> list[Allocation]:
    """What the node should hold, where its report is not applied; what it is told by that is noted all the same."""
    rows = list(Allocation.objects.filter(node=node).order_by("id"))
    if _untold(rows):
        rows = lock_allocations_of_node(node.pk)
        _mark_told(rows, now=now)
    return rows


def _untold(rows: Sequence[Allocation]) -> list[Allocation]:
    return [row for row in rows if row.desired == BOUND and row.told_at is None and row.older is None]


def _mark_told(rows: Sequence[Allocation], *, now: int) -> None:
    untold = _untold(rows)
    for row in untold:
        row.told_at = now
    if untold:
        Allocation.objects.filter(pk__in=[row.pk for row in untold]).update(told_at=now)


def _settle_taints(taints: list[Taint], report: Report) -> tuple[list[Taint], list[str]]:
    """Take off what a taint waits for: the node's word on the allocation (REC-7, REL-3).

    ``BindTimedOut`` wants it reported withdrawn, for not listing it is what the node did all along;
    ``KubernetesReleaseStuck`` goes once no pod holds it. Returns the taints that remain, and the keys of those that
    went.
    """
    said = dict(report.allocations)
    settled = {
        BIND_TIMED_OUT: lambda name: name in said and said[name].released,
        RELEASE_STUCK: lambda name: name not in said or said[name].released,
    }
    kept, cleared = [], []
    for taint in taints:
        left = [name for name in taint.subjects if taint.key not in settled or not settled[taint.key](name)]
        if left == taint.subjects:
            kept.append(taint)
        elif left:
            taint.subjects = left
            taint.save(update_fields=["subjects"])
            kept.append(taint)
        else:
            taint.delete()
            cleared.append(taint.key)
    return kept, cleared


def _answer(
    node: Node, rows: Sequence[Allocation], unknown: Sequence[str], taints: Sequence[Taint], *, now: int
) -> SyncAnswer:
    """Level, not news: everything that the node should hold and everything that it should let go of.

    What a taint waits for is asked for again where there is no row left to ask by. An adopting node is told to let go
    of nothing (NOD-6).
    """
    told = [
        Told(
            reservation_id=row.reservation_id,
            # What it may hold by an earlier plan goes first; it hears of the present one once that is released.
            desired=row.desired if row.older is None else WITHDRAWN,
            tenant_id=row.tenant_id,
            binding=row.binding,
            devices=tuple(AllocatedDevice.from_json(d) for d in (row.older or {"devices": row.devices})["devices"]),
            resources=row.resources,
            until=row.until,
            generation=row.generation if row.older is None and row.generation > 1 else None,
        )
        for row in rows
    ]
    listed = {row.reservation_id for row in rows}
    awaited = {name for taint in taints if taint.key == BIND_TIMED_OUT for name in taint.subjects}
    strays = [*unknown, *sorted(awaited - listed - set(unknown))]
    told += [Told(reservation_id=name, desired=WITHDRAWN) for name in strays]
    if node.state == ADOPTING:
        told = [item for item in told if item.desired != WITHDRAWN]
    in_force = tuple(taint_view(taint) for taint in taints if taint.until is None or taint.until > now)
    return SyncAnswer(node.session, False, tuple(told), in_force, HEARTBEAT_SECONDS)


def _events(
    node: Node, pending: Sequence[tuple[str, str]], devices: DeviceChanges, *, by: Actor, now: int
) -> list[NewEvent]:
    found = []
    for type_, taint in pending:
        data: dict[str, Any] = {"taint": taint} if taint else {}
        if type_ == events.NODE_DEVICES_CHANGED:
            data = {
                "new": [{"position": d.position, "uuid": d.uuid} for d in devices.new],
                "changed": [{"position": d.position, "health": d.health} for d in devices.changed],
                "missing": list(devices.missing),
            }
        found.append(events.node_event(type_, node, by=by, now=now, **data))
    return found


def _wake(node: Node, *, gained: bool, lost: bool) -> None:
    if node.pool_id is None:
        return
    if gained:
        wake("placement", node.pool_id)
    if lost:
        wake("reconcile", node.pool_id)
