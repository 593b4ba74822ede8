"""What a placed, binding or active reservation runs out by: its end and its lease (REN-1, REN-2, EVT-4)."""

from collections.abc import Collection, Sequence

from computeplatform.conditions import from_json, to_json, without_condition
from computeplatform.db.gaps import Gaps, service_gaps
from reservations import events
from reservations.domain import leases, reminders, states
from reservations.domain.conditions import PREEMPTION_SCHEDULED
from reservations.domain.extending import Change
from reservations.domain.reminders import Terms
from reservations.errors import LeaseLapsed, ReservationNotFound, WrongState
from reservations.models import Reservation
from reservations.operations.state import Changes


def refuse_ended(row: Reservation, *, verb: str, now: int) -> None:
    """Refuse what can only be done to a reservation that is placed, binding or active and has not run out.

    Raises ReservationNotFound for one that IAM refused, else WrongState or LeaseLapsed. What has run out and waits for
    the tick has ended: nothing revives it.
    """
    if row.state == states.DENIED:
        raise ReservationNotFound
    if row.state in states.DRAFT_STATES:
        raise WrongState(reservation_id=row.id, state=row.state, hint="it has not been admitted yet")
    if row.state not in states.BOOKED:
        hint = f"only a placed, binding or active one can be {verb}"
        raise WrongState(reservation_id=row.id, state=row.state, hint=hint)
    if row.ends_at is not None and row.ends_at <= now:
        raise WrongState(reservation_id=row.id, state=row.state, hint=f"its window has ended, so it cannot be {verb}")
    deadline = lease_deadline(row, gaps_for([row], now=now))
    if deadline is not None and deadline <= now:
        raise LeaseLapsed(reservation_id=row.id, expired_at=deadline)


def lease_deadline(row: Reservation, gaps: Gaps) -> int | None:
    """When the lease lapses, as moved by gaps in our own service (REC-8); None: it has none, or does not run."""
    if row.lease_seconds is None or row.lease_expires_at is None or row.state not in states.BOOKED:
        return None
    began_at = leases.began_at(expires_at=row.lease_expires_at, seconds=row.lease_seconds)
    return gaps.moved(row.lease_expires_at, since=began_at)


def gaps_for(rows: Collection[Reservation], *, now: int) -> Gaps:
    """The gaps that may move a deadline of these rows, a lease or a bind timeout; no query where none runs."""
    began = [
        leases.began_at(expires_at=row.lease_expires_at, seconds=row.lease_seconds)
        for row in rows
        if row.lease_expires_at is not None and row.lease_seconds is not None
    ]
    began += [row.binding_since for row in rows if row.state == states.BINDING and row.binding_since is not None]
    return service_gaps(since=min(began), now=now) if began else Gaps()


def start_terms(row: Reservation, *, now: int) -> None:
    """The row has just been placed: its lease runs, anew after a re-placement, and it is looked at when it must be."""
    starts_at, ends_at = row.starts_at or now, row.ends_at or now
    lease_ms = (row.lease_seconds or 0) * 1_000
    row.lease_expires_at = now + lease_ms if lease_ms else None
    row.due_at = reminders.first_look(starts_at=starts_at, ends_at=ends_at, lease_ms=lease_ms, now=now)


def stop_terms(row: Reservation) -> None:
    """The row has left its nodes: no lease runs, also while it waits.

    An end that was told of is remembered: placed anew with the same one, it is not told of again (EVT-4). A change that
    is being decided has lost what it was about; whoever decides it finds that out.
    """
    row.lease_expires_at = row.lease_told_for = row.pending_change = None
    if row.state in states.TERMINAL:
        row.ending_told_for = None
    if row.state not in states.TERMINAL and row.preempted_by:
        # Whoever is placed anew has its whole window again (PRE-2).
        row.preempted_by = ""
        row.conditions = to_json(without_condition(from_json(row.conditions), PREEMPTION_SCHEDULED))


def watch(rows: Sequence[Reservation], gaps: Gaps, changes: Changes, *, now: int) -> None:
    """Tell of ends that are near, and have the rows looked at again when the next of their terms comes.

    For rows that the reconciler has just seen to, in whatever state they are then.
    """
    for row in rows:
        change = Change.from_json(row.pending_change)
        if change and change.open_until <= now:
            # Whoever was to carry it on has died (EXT-5).
            row.pending_change = change = None
        if row.state not in states.BOOKED or row.ends_at is None:
            continue
        deadline = lease_deadline(row, gaps)
        looks = [row.due_at, change and change.open_until, deadline and deadline + leases.SLACK]
        for reminder in list(reminders.reminders(_terms(row, row.ends_at, deadline))):
            if reminder.at <= now:
                _tell(row, reminder, changes)
            else:
                looks.append(reminder.at)
        row.due_at = min(look for look in looks if look)


def _terms(row: Reservation, ends_at: int, deadline: int | None) -> Terms:
    return Terms(
        ends_at=ends_at,
        cut_short=bool(row.preempted_by),
        ending_told_for=row.ending_told_for,
        lease_ms=(row.lease_seconds or 0) * 1_000,
        lease_expires_at=row.lease_expires_at,
        lease_deadline=deadline,
        lease_told_for=row.lease_told_for,
    )


def _tell(row: Reservation, reminder: reminders.Reminder, changes: Changes) -> None:
    if reminder.why == reminders.LEASE:
        row.lease_told_for = row.lease_expires_at
        data = {"leaseExpiresAt": reminder.of}
    else:
        row.ending_told_for = row.ends_at
        data = {"endsAt": reminder.of}
    changes.tell(row, events.ENDING, reason=reminder.why, data=data, news=True)
