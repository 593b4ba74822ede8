"""Making room for what does not fit: spot work makes way, all that is needed or nothing (PRE-1, PRE-2).

A pass of placement decides claimant by claimant who has to go, in memory, and carries it out once at its end, so that
rows, quota and allocations are locked in the published order however many claimants there are. Callers hold the pool's
lock, so no two passes take the same victim; whoever else holds one of them just now (its own release, the reconciler)
comes first, and the claimant is tried again right after.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from django.db import connection

from computeplatform.conditions import from_json
from computeplatform.wakes import wake
from fleet import queries as fleet
from fleet.contracts import PoolView
from quotas.locks import live_keys, try_lock_quotas
from reservations import locks
from reservations.domain import states
from reservations.domain.conditions import UNSCHEDULABLE
from reservations.domain.demands import Assignment, Demand, Kept, Outcome, Shortfall
from reservations.domain.hosts import FOREVER, Amounts, Busy, Use
from reservations.domain.masks import runs, span
from reservations.domain.placement import Placer
from reservations.domain.preemption import Part, Victim, choose_victims, cut, exchanged
from reservations.domain.shortfalls import AWAITING_PREEMPTION, NEVER_FITS, awaiting_preemption
from reservations.models import Reservation
from reservations.operations.bookings import Snapshot
from reservations.operations.making_way import MakingWay, time_text
from reservations.operations.state import Changes

# How many demands that nobody can make room for are remembered in a pass.
REMEMBERED = 128


@dataclass(frozen=True)
class _Plan:
    """Who makes way for what. ``delayed``: the demand starts only when those who run have had their notice."""

    demand: Demand
    victims: tuple[Victim, ...]
    delayed: bool = False


# How the victims' rows are had, by id; fewer than were asked for: not all of them can be had just now.
HaveVictims = Callable[[Sequence[str]], Sequence[Reservation]]


def wait_for_victims(ids: Sequence[str]) -> Sequence[Reservation]:
    """Their rows, locked, however long that takes. For a pass that has locked nothing after reservations yet."""
    return locks.lock_existing(ids)


def try_victims(ids: Sequence[str]) -> Sequence[Reservation]:
    """Their rows and quota rows, locked, as far as that needs no wait; what is in other hands is left to the next pass.

    For a pass that holds locks which come after those of reservations.
    """
    rows = locks.claim_existing(ids)
    return rows if len(rows) == len(ids) and try_lock_quotas(live_keys(ids)) else []


class Preemption:
    """What one pass preempts: ``make_room`` for each that does not fit, and ``carry_out`` at the end, before anything
    is booked.

    ``victims`` has the rows of those that are to make way; where it cannot, the next pass is woken.
    """

    def __init__(
        self, pool: PoolView, taken: Snapshot, placer: Placer, changes: Changes, *, now: int, victims: HaveVictims
    ) -> None:
        self._pool = pool
        self._taken = taken
        self._placer = placer
        self._changes = changes
        self._now = now
        self._have = victims
        self._known: dict[str, Victim] | None = None
        self._windows: dict[str, tuple[int, int]] = {}
        # What nobody can make room for, and whether the devices of the first in line were to be left alone.
        self._hopeless: deque[tuple[Demand, bool]] = deque(maxlen=REMEMBERED)
        self._way = MakingWay(pool, changes, now=now)
        # Victims were in somebody else's hands, or a claim was dropped; somebody has got no room.
        self._again = self._unmet = False

    def make_room(self, row: Reservation, why: Shortfall, *, behind: Callable[[], bool]) -> Outcome:
        """Have spot work make way for the row, which does not fit; what placement answers then.

        An assignment where the devices are free at once. A shortfall ``AwaitingPreemption`` where its victims still
        run or hold them: they are kept for the row then (its ``claim``). ``why`` where nothing can be done.
        ``behind``: whether it stands behind the first in line; asked only if there is spot work at all.
        """
        never = why.reason == NEVER_FITS
        if row.claim is not None:
            if not never and self._is_coming(row):
                return Shortfall(why.demand, AWAITING_PREEMPTION, _told(row) or why.message)
            self._drop_claim(row)
        if never or row.spot or not self._pool.policy.preempt_spot:
            return why
        found = self._try(row, why.demand, behind=behind()) if self._candidates() else None
        self._unmet = self._unmet or found is None
        return found or why

    def carry_out(self, placed: Sequence[Reservation]) -> None:
        """Write what was decided: victims end or are cut short. ``placed`` is what the pass books after this."""
        self._way.carry_out(along=[row.id for row in placed])
        # Spot work that this pass has placed makes way in the next.
        if self._again or (self._unmet and any(row.spot for row in placed)):
            wake("placement", self._pool.id)

    # --- Deciding ---------------------------------------------------------------------------------------------------

    def _try(self, row: Reservation, demand: Demand, *, behind: bool) -> Outcome | None:
        if any(demand.asks_as_much_as(known) and was == behind for known, was in self._hopeless):
            return None
        plan = self._plan(row, demand, behind=behind)
        if plan is None:
            self._hopeless.append((demand, behind))
            return None
        rows = self._as_chosen(plan.victims)
        if rows is None:
            self._again = True
            return None
        return self._take(row, plan, rows, behind=behind)

    def _plan(self, row: Reservation, demand: Demand, *, behind: bool) -> _Plan | None:
        candidates = self._candidates()
        hosts = self._placer.seen_by(demand, behind=behind)
        victims = choose_victims(demand, hosts, candidates.values())
        soonest = self._now + self._pool.policy.spot_notice_seconds * 1_000
        delayed = demand.starts_at < soonest and any(self._windows[v.id][0] <= self._now for v in victims)
        if delayed:
            # One that runs has its notice first; others may be in the way of the window that begins then.
            if any(last is not None and last <= soonest for last in (row.requested_ends_at, row.start_before)):
                return None
            demand = demand.at(soonest)
            victims = choose_victims(demand, hosts, candidates.values())
        return _Plan(demand, victims, delayed) if victims else None

    def _candidates(self) -> dict[str, Victim]:
        """The pool's spot work, as far as the snapshot has its nodes; read when it is first needed."""
        if self._known is not None:
            return self._known
        parts: dict[str, dict[str, Part]] = {}
        ranks: dict[str, tuple[int, int]] = {}
        for found in _spot_bookings(self._pool.id, now=self._now):
            if (mask := self._taken.mask(found.node_id, *found.units)) is None:
                continue
            on = parts.setdefault(found.id, {})
            part = on.get(found.node_id, Part(()))
            used = (Use(*found.during, found.amounts),) if any(found.amounts) else ()
            on[found.node_id] = Part((*part.busy, Busy(mask, *found.during)), (*part.used, *used))
            ranks[found.id] = (found.priority, found.created_at)
            self._windows[found.id] = found.window
        self._known = {id_: Victim(id_, *ranks[id_], on) for id_, on in parts.items()}
        return self._known

    def _as_chosen(self, victims: Sequence[Victim]) -> Sequence[Reservation] | None:
        """The victims' rows, if all of them can be had and are still what they were when they were chosen."""
        rows = self._have([victim.id for victim in victims])
        same = all(row.state in states.BOOKED and _window(row) == self._windows[row.id] for row in rows)
        return rows if same and len(rows) == len(victims) else None

    # --- Doing, in memory -------------------------------------------------------------------------------------------

    def _take(self, row: Reservation, plan: _Plan, rows: Sequence[Reservation], *, behind: bool) -> Outcome:
        start = plan.demand.starts_at
        gone = [self._candidates().pop(victim.id) for victim in plan.victims]
        ends = {victim.id: self._way.add(victim, cause=row.id, start=start) for victim in rows}
        held = self._may_be_held([victim for victim in rows if ends[victim.id] is None])
        left = [cut(victim, until) for victim in gone if (until := ends[victim.id]) is not None]
        left += [victim for victim in gone if victim.id in held]
        cleared = exchanged(self._placer.seen_by(plan.demand, behind=behind), gone)
        self._placer.replace(exchanged(self._placer.hosts, gone, left))
        if not held and not plan.delayed:
            return self._placer.place(plan.demand, behind=behind)
        found = Placer(cleared).try_place(plan.demand)
        assert isinstance(found, Assignment)  # noqa: S101 - the victims were chosen for that
        self._keep(row, found, since=self._now if held else start)
        when = "as soon as their nodes let go of the devices" if held else f"at {time_text(start)}"
        return awaiting_preemption(plan.demand, victims=len(gone), when=when)

    @staticmethod
    def _may_be_held(rows: Sequence[Reservation]) -> set[str]:
        """Whose nodes may keep the devices for a while (REL-2). More than do: ``end_rows`` says, once it has locks."""
        bound = [row for row in rows if row.binding == "kubernetes"]
        started = {row.id for row in bound if row.state != states.PLACED}
        others = {row.id for row in bound} - started
        return started | {one.reservation_id for one in fleet.letting_go(others)} if bound else set()

    def _keep(self, row: Reservation, found: Assignment, *, since: int) -> None:
        row.claim = [
            {"nodeId": host_id, "first": first, "count": count, "from": since}
            for host_id, mask in found.hosts
            for first, count in runs(mask)
        ]
        self._changes.touch(row)
        for host_id, mask in found.hosts:
            self._placer.keep(host_id, Kept(row.id, mask, since, FOREVER, found.demand.need))

    def _is_coming(self, row: Reservation) -> bool:
        """Whether somebody is still on the devices that are kept for the row."""
        kept = {part["nodeId"]: 0 for part in row.claim or ()}
        for part in row.claim or ():
            kept[part["nodeId"]] |= span(part["first"], part["count"])
        return any(
            busy.mask & kept.get(host.id, 0) and busy.starts_at <= self._now < busy.ends_at
            for host in self._placer.hosts
            for busy in host.busy
        )

    def _drop_claim(self, row: Reservation) -> None:
        """What was kept has become free and is of no use to it: the node has gone, or something has come between.

        Those whose turn was before this find it in the next pass.
        """
        row.claim = None
        self._changes.touch(row)
        self._placer.drop_claims(row.id)
        self._again = True


@dataclass(frozen=True)
class _SpotBooking:
    """A booking of spot work, as it is read: ``units`` and ``during`` half-open."""

    id: str
    priority: int
    created_at: int
    window: tuple[int, int]
    node_id: str
    units: tuple[int, int]
    during: tuple[int, int]
    amounts: Amounts


def _spot_bookings(pool_id: str, *, now: int) -> Iterator[_SpotBooking]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT r.id, r.priority, r.created_at, r.starts_at, r.ends_at, b.node_id, lower(b.units), upper(b.units),"
            " lower(b.during), upper(b.during), b.vcpu_milli, b.memory_mib, b.hugepages_1gi"
            " FROM reservations_booking b JOIN reservations_reservation r ON r.id = b.reservation_id"
            " WHERE b.during && int8range(%s, NULL) AND b.pool_id = %s AND r.spot AND r.state = ANY(%s)"
            " AND b.held_since IS NULL AND b.planned = int8range(r.starts_at, r.ends_at)",
            [now, pool_id, sorted(states.BOOKED)],
        )
        for id_, priority, born, start, end, node, low, high, begin, until, *amounts in cursor.fetchall():
            window, units, during = (start, end), (low, high), (begin, until)
            yield _SpotBooking(id_, priority, born, window, node, units, during, Amounts(*amounts))


def _window(row: Reservation) -> tuple[int, int]:
    return row.starts_at or 0, row.ends_at or 0


def _told(row: Reservation) -> str:
    """What the row says already of why it waits: telling it in other words would be no news."""
    found = (c.message for c in from_json(row.conditions) if (c.type, c.reason) == (UNSCHEDULABLE, AWAITING_PREEMPTION))
    return next(found, "")
