"""Leaving nodes, and the devices that kubernetes nodes keep for a while after that (REL-2, REL-3, REL-4).

Whatever makes a reservation leave its nodes calls ``leave_nodes``; ``settle_held`` is what the tick does with what is
held then, until the nodes have let go.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from django.db import connection
from django.db.backends.postgresql.psycopg_any import NumericRange

from computeplatform.conditions import Condition, from_json, to_json, with_condition, without_condition
from computeplatform.db.retry import in_transaction
from computeplatform.wakes import wake
from fleet import queries as fleet
from fleet.locks import lock_allocations, lock_nodes
from fleet.operations import allocations, taints
from reservations import events, locks
from reservations.domain import holding
from reservations.domain.conditions import DEVICES_HELD, HELD_BY_PREVIOUS
from reservations.domain.holding import CARRY_ON, FREE, HeldBooking, Part, Taken, Word
from reservations.domain.hosts import Amounts, Host, Use
from reservations.domain.states import BINDING, PLACED
from reservations.models import Booking, Reservation
from reservations.operations.bookings import end_bookings
from reservations.operations.state import RECONCILER, Changes
from reservations.operations.terms import stop_terms

# Which booking (by reservation and node) is on which node.
Pair = tuple[str, str]


# --- Leaving ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Leaving:
    """A reservation that leaves its nodes, and from when that counts. ``billed`` False: none of its time is."""

    row: Reservation
    at: int
    billed: bool = True


def leave_nodes(leaving: Sequence[Leaving], changes: Changes, *, now: int, along: Collection[str] = ()) -> None:
    """The nodes withdraw, and the bookings end: on a lost node at its last contact (QTA-5), else at ``at``.

    Where a kubernetes node holds the devices, or may hold them, its bookings stay as planned, and the reservation
    carries ``DevicesHeld`` (REL-2, REL-4). Takes allocation locks, of ``along`` too: reservations whose allocations
    the caller changes after this; nodes that it taints are locked before. The caller writes ``changes`` after it.
    """
    if not leaving:
        return
    ids = [one.row.id for one in leaving]
    for one in leaving:
        stop_terms(one.row)
    lock_allocations([*ids, *along])
    lost = fleet.lost_nodes({one.row.pool_id for one in leaving})
    kubernetes = [one.row.id for one in leaving if one.row.binding == "kubernetes"]
    kept = {pair for pair in allocations.may_hold(kubernetes, now=now) if pair[1] not in lost} if kubernetes else set()
    unbilled = [one.row.id for one in leaving if not one.billed]
    held = _hold(kept, {one.row.id: one.at for one in leaving}, unbilled, now=now)
    end_bookings({one.row.id: one.at for one in leaving}, unbilled=unbilled, lost=lost)
    allocations.withdraw(ids, now=now)
    for one in leaving:
        if nodes := held.get(one.row.id):
            one.row.held_since = one.row.held_since or now
            _show_held(one.row, len(nodes), now=now)
            changes.tell(one.row, events.DEVICES_HELD, data={"nodes": sorted(nodes)})


def _hold(
    kept: Collection[Pair], ends: Mapping[str, int], unbilled: Collection[str], *, now: int
) -> dict[str, set[str]]:
    """Mark the present bookings on these nodes as held; returns the nodes by reservation."""
    if not kept:
        return {}
    found: dict[str, set[str]] = defaultdict(set)
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE reservations_booking AS b SET held_since = %s,"
            " billed = CASE WHEN b.reservation_id = ANY(%s) THEN 'empty' ELSE b.billed END"
            " FROM unnest(%s::text[], %s::text[], %s::bigint[]) AS k(id, node, at)"
            " WHERE b.reservation_id = k.id AND b.node_id = k.node AND upper(b.during) >= k.at AND b.held_since IS NULL"
            " RETURNING b.reservation_id, b.node_id",
            [now, list(unbilled), *map(list, zip(*((r, n, ends[r]) for r, n in sorted(kept)), strict=True))],
        )
        for reservation_id, node_id in cursor.fetchall():
            found[reservation_id].add(node_id)
    return found


def _show_held(row: Reservation, nodes: int, *, now: int) -> bool:
    """Say it on the reservation; True if that says anything new."""
    words = f"{nodes} of its nodes have not let go of the devices yet" if nodes > 1 else "its node has not let go yet"
    told = Condition(DEVICES_HELD, "True", "NotReleasedYet", words, now)
    return _set_conditions(row, to_json(with_condition(from_json(row.conditions), told)))


def _set_conditions(row: Reservation, conditions: list[dict[str, object]]) -> bool:
    changed = bool(conditions != row.conditions)
    row.conditions = conditions
    return changed


# --- What is held -----------------------------------------------------------------------------------------------------


@dataclass
class _Plan:
    """What is due in one pool: bookings to free (with their node's loss, if that is why) and to carry on."""

    freed: list[tuple[Booking, int | None]]
    carried: list[tuple[Booking, Word]]

    def __bool__(self) -> bool:
        return bool(self.freed or self.carried)


def pools_with_held() -> list[str]:
    """Pools in which nodes keep devices."""
    rows = Booking.objects.filter(held_since__isnull=False)
    return list(rows.order_by("pool_id").values_list("pool_id", flat=True).distinct())


def settle_held(*, pool_id: str, now: int) -> None:
    """Free what the pool's nodes have let go of, and carry on what pods outstay (REL-3).

    Level-triggered. It looks first without any lock: most of the time there is nothing to do.
    """
    if _plan(pool_id, now=now):
        _settle(pool_id=pool_id, now=now)


@in_transaction
def _settle(*, pool_id: str, now: int) -> None:
    _, now = locks.lock_pool(pool_id, now=now)
    rows = {row.id: row for row in locks.claim_held(pool_id)}
    plan = _plan(pool_id, now=now, among=rows)
    if not plan:
        return
    changes = Changes(by=RECONCILER, now=now)
    lock_nodes({booking.node_id for booking, _ in [*plan.freed, *plan.carried]})
    _free({booking.pk: now if lost_at is None else lost_at for booking, lost_at in plan.freed})
    _tidy(plan.freed, rows, changes, now=now)
    for booking, word in plan.carried:
        _carry_on(booking, word, now=now)
    changes.write()
    if plan.freed:
        wake("placement", pool_id)


def _plan(pool_id: str, *, now: int, among: Collection[str] | None = None) -> _Plan:
    bookings = Booking.objects.filter(pool_id=pool_id, held_since__isnull=False).order_by("node_id", "units", "id")
    if among is not None:
        bookings = bookings.filter(reservation_id__in=list(among))
    rows = list(bookings)
    words = {
        (one.reservation_id, one.node_id): Word(one.holders, one.last_heartbeat_at, one.lost_at)
        for one in fleet.letting_go({row.reservation_id for row in rows})
    }
    plan = _Plan([], [])
    for row in rows:
        word = words.get((row.reservation_id, row.node_id))
        due = holding.what_is_due(_held(row), word, now=now)
        if due == FREE:
            plan.freed.append((row, word.lost_at if word else None))
        elif due == CARRY_ON and word is not None and _would_change(row, word, now=now):
            plan.carried.append((row, word))
    return plan


def _held(row: Booking) -> HeldBooking:
    return HeldBooking(
        units=(row.units.lower, row.units.upper),
        devices=row.devices,
        edge=row.during.upper,
        planned_until=row.planned.upper,
        stuck=row.stuck_since is not None,
    )


def _would_change(row: Booking, word: Word, *, now: int) -> bool:
    held = _held(row)
    newly_stuck = not held.stuck and holding.is_stuck(held, word, now=now)
    return newly_stuck or any(part.until > held.edge for part in _parts(row, now=now))


def _parts(row: Booking, *, now: int) -> list[Part]:
    held = _held(row)
    until = holding.step_end(planned_until=held.planned_until, now=now)
    if until <= held.edge:
        return []
    others = Booking.objects.filter(
        node_id=row.node_id, during__overlap=NumericRange(held.edge, until), units__overlap=row.units
    )
    taken = [Taken((one.units.lower, one.units.upper), one.during.lower) for one in others]
    return holding.carried(held, taken, until=until)


def _free(ends: Mapping[int, int]) -> None:
    """End these bookings, by their key, each at its time."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE reservations_booking AS b SET during = b.during * int8range(NULL, e.at),"
            " billed = b.billed * int8range(NULL, e.at), held_since = NULL, stuck_since = NULL"
            " FROM unnest(%s::bigint[], %s::bigint[]) AS e(id, at) WHERE b.id = e.id",
            [list(ends), list(ends.values())],
        )


def _tidy(
    freed: Sequence[tuple[Booking, int | None]], rows: Mapping[str, Reservation], changes: Changes, *, now: int
) -> None:
    """What carries on saying that devices are held: the reservations' conditions and the nodes' taints."""
    touched = {booking.reservation_id for booking, _ in freed}
    still: dict[str, set[str]] = defaultdict(set)
    held = Booking.objects.filter(reservation_id__in=touched, held_since__isnull=False)
    for reservation_id, node_id in held.values_list("reservation_id", "node_id"):
        still[reservation_id].add(node_id)
    settled: dict[str, set[str]] = defaultdict(set)
    for booking, _ in freed:
        if booking.node_id not in still[booking.reservation_id]:
            settled[booking.node_id].add(booking.reservation_id)
    taints.drop_subjects(settled, taints.RELEASE_STUCK, by=RECONCILER, now=now)
    for reservation_id in sorted(touched):
        row = rows[reservation_id]
        if still[reservation_id]:
            changed = _show_held(row, len(still[reservation_id]), now=now)
        else:
            row.held_since = None
            changed = _set_conditions(row, to_json(without_condition(from_json(row.conditions), DEVICES_HELD)))
        (changes.revise if changed else changes.touch)(row)


# --- Who waits for it ------------------------------------------------------------------------------------------------


# The devices that nodes keep, and those of kubernetes reservations whose end nobody has seen to yet.
_FORMER = """
SELECT b.reservation_id, bool_or(former.held_since IS NULL)
FROM reservations_booking b JOIN (
    SELECT id, units, pool_id, held_since FROM reservations_booking
    WHERE held_since IS NOT NULL AND pool_id = ANY(%(pools)s)
    UNION ALL
    SELECT o.id, o.units, o.pool_id, NULL
    FROM reservations_reservation r JOIN reservations_booking o ON o.reservation_id = r.id AND o.held_since IS NULL
        AND upper(o.during) = r.ends_at
    WHERE r.due_at <= %(now)s AND r.ends_at <= %(now)s AND r.binding = 'kubernetes'
        AND r.state IN ('binding', 'active') AND r.pool_id = ANY(%(pools)s)
) AS former ON former.units && b.units AND former.pool_id = b.pool_id AND former.id <> b.id
WHERE b.reservation_id = ANY(%(ids)s) AND b.held_since IS NULL AND upper(b.during) > %(now)s
GROUP BY b.reservation_id
"""


def waiting_for_previous(rows: Sequence[Reservation], *, now: int) -> dict[str, bool]:
    """Those of these reservations whose time has come while nodes keep, or may keep, their devices for a former holder.

    True: the former one has not ended yet, as it should have; what comes after it begins when that is done.
    """
    begun = [row for row in rows if row.state in (PLACED, BINDING) and (row.starts_at or 0) <= now]
    if not begun:
        return {}
    with connection.cursor() as cursor:
        pools = sorted({row.pool_id for row in begun})
        cursor.execute(_FORMER, {"ids": [row.id for row in begun], "pools": pools, "now": now})
        return dict(cursor.fetchall())


def show_waiting(rows: Sequence[Reservation], waiting: Collection[str], changes: Changes, *, now: int) -> None:
    """Say on what is binding whether it waits for a former holder (REL-3): the time to bind begins after that.

    Nothing of the wait is billed (QTA-5); ``bill_from_bound`` is what is called once it is bound.
    """
    newly = []
    for row in rows:
        before = from_json(row.conditions)
        waited = any(condition.type == HELD_BY_PREVIOUS for condition in before)
        if row.state != BINDING or not (waited or row.id in waiting):
            continue
        row.binding_since = now
        if row.id not in waiting:
            row.conditions = to_json(without_condition(before, HELD_BY_PREVIOUS))
            changes.revise(row)
        elif not waited:
            newly.append(row.id)
            told = Condition(HELD_BY_PREVIOUS, "True", "NotReleasedYet", "a former holder's pods keep the devices", now)
            row.conditions = to_json(with_condition(before, told))
            changes.revise(row)
    if newly:
        unbilled = Booking.objects.filter(reservation_id__in=newly, held_since__isnull=True)
        unbilled.update(billed=NumericRange(empty=True))


def bill_from_bound(rows: Sequence[Reservation], *, now: int) -> None:
    """What waited for a former holder is billed from now on (QTA-5); of the others all is billed already."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE reservations_booking SET billed = during * int8range(%s, NULL)"
            " WHERE reservation_id = ANY(%s) AND isempty(billed) AND held_since IS NULL AND upper(during) > %s",
            [now, [row.id for row in rows], now],
        )


# --- Carrying on ------------------------------------------------------------------------------------------------------


def _carry_on(row: Booking, word: Word, *, now: int) -> None:
    """One step for one booking, as far as its devices are free; the node is tainted once, when the pods outstay it."""
    held = _held(row)
    if not held.stuck and holding.is_stuck(held, word, now=now):
        row.stuck_since = now
        reason = "pods outstay their reservation"
        subject = row.reservation_id
        taints.set_taint([row.node_id], taints.RELEASE_STUCK, by=RECONCILER, now=now, reason=reason, subject=subject)
    first, *rest = _parts(row, now=now) or [Part(held.units, held.devices, held.edge)]
    parted = [_part_of(row, part, since=row.during.lower, planned=True) for part in rest]
    row.units, row.devices = NumericRange(*first.units), first.devices
    if first.until > held.edge and not _host_has_room(row, until=first.until):
        # The host is promised to somebody else: the amounts end here, and only the devices go on.
        parted.append(_part_of(row, first, since=held.edge, planned=False))
        row.held_since = row.stuck_since = None
    else:
        row.during = NumericRange(row.during.lower, first.until)
    row.save(update_fields=["units", "devices", "during", "held_since", "stuck_since"])
    Booking.objects.bulk_create(parted)


def _part_of(row: Booking, part: Part, *, since: int, planned: bool) -> Booking:
    """A run of the booking's devices as a row of its own, without its host amounts."""
    return Booking(
        reservation_id=row.reservation_id,
        tenant_id=row.tenant_id,
        pool_id=row.pool_id,
        node_id=row.node_id,
        units=NumericRange(*part.units),
        devices=part.devices,
        planned=row.planned,
        during=NumericRange(since, part.until),
        billed=row.billed if planned else NumericRange(empty=True),
        held_since=row.held_since,
        stuck_since=row.stuck_since,
    )


def _host_has_room(row: Booking, *, until: int) -> bool:
    """Whether the host's amounts of a booking can go on with its devices: HST-1 holds at every instant."""
    if not any(own := _amounts(row)):
        return True
    span = NumericRange(row.during.upper, until)
    others = Booking.objects.filter(node_id=row.node_id, during__overlap=span).exclude(pk=row.pk)
    used = [Use(one.during.lower, one.during.upper, _amounts(one)) for one in others]
    host = Host(row.node_id, 0, 0, capacity=Amounts(*fleet.node(row.node_id).host_amounts), used=used)
    return host.has_room(span.lower, until, own)


def _amounts(row: Booking) -> Amounts:
    return Amounts(row.vcpu_milli, row.memory_mib, row.hugepages_1gi)
