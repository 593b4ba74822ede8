"""``reservations/extend`` and ``renew`` (CONTRACT §5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drf_spectacular.utils import extend_schema_field

from computeplatform.api.calls import Call
from computeplatform.api.fields import Flag, Instant, Shape, Whole
from computeplatform.api.methods import Answer, Data, method
from computeplatform.api.strict_json import MAX_INTEGER
from computeplatform.errors import InvalidInput
from reservations.api.loading import present, with_drafts
from reservations.api.shapes import Reservation as ReservationShape
from reservations.api.shapes import ReservationAnswer, ReservationInput
from reservations.domain.extending import milliseconds
from reservations.operations import extending, renewing

if TYPE_CHECKING:
    from reservations.models import Reservation


@extend_schema_field(
    {"oneOf": [{"type": "integer", "minimum": 1, "maximum": MAX_INTEGER}, {"type": "string", "maxLength": 64}]}
)
class Duration(Whole):
    """A length of time: whole milliseconds, or ISO 8601 text without years and months; always above 0."""

    default_error_messages = {
        "not_a_duration": "must be whole milliseconds or an ISO 8601 duration of weeks, or of days, hours, minutes and"
        ' seconds, such as "PT2H30M"; years and months have no fixed length',
    }

    def to_internal_value(self, data: Any) -> int:
        if not isinstance(data, str):
            return super().to_internal_value(data)
        found = milliseconds(data)
        if found is None:
            self.fail("not_a_duration")
        return found


class ExtendInput(ReservationInput):
    """By how much, or until when."""

    until = Instant(required=False, help_text="The new end, epoch ms; give this or by.")
    by = Duration(min_value=1, required=False, help_text='By how much: milliseconds, or a text such as "PT2H30M".')

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Exactly one of the two (EXT-1)."""
        if ("until" in attrs) == ("by" in attrs):
            raise InvalidInput.at("until", "give exactly one of until and by")
        return attrs


class ExtendAnswer(Shape):
    """What became of it."""

    reservation = ReservationShape()
    extended = Flag(help_text="Whether the end has moved.")
    availableUntil = Instant(required=False, help_text="Where it has not: the latest end that it could have.")


@method(
    "reservations/extend",
    kind="mutation",
    action=extending.EXTEND,
    resource="compute-reservation",
    input=ExtendInput,
    output=ExtendAnswer,
    decides=False,
    codes=("CONFIRMATION_REQUIRED", "NOT_FOUND", "CONFLICT", "INVALID_STATE", "SPEND_LIMIT_REACHED"),
    module="capacity",
)
def extend(call: Call, data: Data, _: None) -> Answer:
    """Move the end of a placed, binding or active reservation later, all or nothing, after one IAM decision.

    Give exactly one of ``until``, the new end in epoch milliseconds, and ``by``, a length of time from the present end:
    whole milliseconds as a JSON integer, or ISO 8601 text. Accepted are ``PnW`` (weeks), and ``PnDTnHnMnS`` with any
    of its parts left out, as in ``"PT2H30M"``, ``"P1DT12H"`` or ``"PT0.5S"``: upper case, whole numbers of up to nine
    digits, the seconds alone with up to three decimals after a point or comma. A day has 24 hours. Years and months
    are refused, since their length is not fixed; so are signs, spaces, other spellings, and a length of 0. The
    contract's source gives ``by`` no type; these two spellings are ours.

    - **Decision.** The change is decided as compute:reservations:extend on the reservation as it would be after it:
      ``durationHours`` is the total, ``estimatedCost`` that of the total at the price fixed at admission. A policy that
      caps durations caps extensions too. Refused: ACCESS_DENIED, and nothing is left of the change.
    - **Confirmation.** In a delegated session whose delegation wants to confirm extensions, a change that lacks nothing
      else is CONFIRMATION_REQUIRED with ``details {reservationId, confirmationId, expiresAt}``. The change does not
      wait: once the person has approved it (``confirmations/decide``), extend again to the same end within 30 minutes.
      What is confirmed is the reservation and its absolute new end: an ``until`` and a ``by`` that come to the same end
      are the same question, with the same ``confirmationId`` while it is pending; every other end is another one, so
      an approval for 2 hours never serves for 200. The decision that it allows uses it up, even if nothing moves then.
      Refused: the same end stays ACCESS_DENIED under that delegation. Not answered or not used in time, or the
      estimated cost has risen: it is asked anew.
    - **In the way.** Where another booking, devices kept for another reservation, host resources or maintenance stand
      before the new end, nothing moves: ``extended`` is false and ``availableUntil`` the latest end that all its
      bookings can reach. On a node that is cordoned, draining, lost or gone that is the present end. It never preempts
      others, and charges no quota.
    - **Repeating.** An ``until`` that is reached already answers ``extended`` false without a decision. A repeated
      ``by`` extends again from the new end.
    - **Refusals.** INVALID_STATE: another state, a window that has ended or a lease that has lapsed; with
      ``details.reason`` pool-archived or offer-withdrawn where the pool takes nothing more. INVALID_INPUT: the total is
      over the pool's ``maxDurationHours``. SPEND_LIMIT_REACHED: the estimate of the total is above ``maxCost``.
      CONFLICT with ``details.reason`` extend-in-flight and ``retryAfterSeconds``: another extend of it is being
      decided, for half a minute at most; window-changed: it was moved or preempted meanwhile.

    What was asked stays in ``requested``. A re-placement keeps the extension. Emits reservation.extended with the new
    end. Clauses EXT-1 to EXT-7, IAM-6.
    """
    asked = extending.Asked(until=data.get("until"), by=data.get("by"))
    done = extending.extend(call=call, reservation_id=data["reservationId"], asked=asked)
    answer = present(call, data["reservationId"]) | {"extended": done.extended}
    return answer | ({} if done.available_until is None else {"availableUntil": done.available_until})


@method(
    "reservations/renew",
    kind="mutation",
    action=extending.EXTEND,
    resource="compute-reservation",
    input=ReservationInput,
    output=ReservationAnswer,
    load=with_drafts,
    codes=("INVALID_STATE",),
    module="capacity",
)
def renew(call: Call, data: Data, row: Reservation) -> Answer:
    """Move the lease deadline of a reservation to now plus its ``leaseSeconds``; its window stays as it is.

    The lease runs from placement, anew from a re-placement, and not while the reservation is pending; the deadline is
    ``leaseExpiresAt``. A lease that lapses releases the reservation with reason lease-lapsed within 10 seconds, and
    ``releasedAt`` is the deadline. A renew that arrives before the deadline always wins; one that arrives after it is
    INVALID_STATE even while the reservation is still shown as running. Where the platform itself was away for more than
    30 seconds, the deadline is later by that time; ``leaseExpiresAt`` does not count it.

    INVALID_STATE for a reservation without a lease or in another state than placed, binding and active. Decided as
    compute:reservations:extend, and never asked to be confirmed: it moves no end. No event is emitted and ``version``
    does not rise; half a lease before the deadline reservation.ending tells of it. Clauses REN-1, REN-2, REC-8.
    """
    renewing.renew(tenant_id=call.tenant_id, reservation_id=row.id, now=call.now)
    return present(call, row.id)
