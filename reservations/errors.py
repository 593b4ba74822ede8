"""Refusals of reservations, one class each."""

from typing import Any

from computeplatform.errors import (
    AccessDenied,
    Conflict,
    InvalidState,
    NotFound,
    Refusal,
    TryAgain,
    Unavailable,
    Unsupported,
)


class ReservationNotFound(NotFound):
    """No such reservation is visible to the tenant."""


class ReservationKeyReused(Conflict):
    """The idempotency key belongs to another request."""

    fix = "Repeat the first request exactly, or use a new idempotency key for a new one."

    def __init__(self, reservation_id: str) -> None:
        super().__init__(details={"reservationId": reservation_id})


class KeyRefused(AccessDenied):
    """IAM refused the request of this key, and that stays (CRE-5)."""


class BindingUnsupported(Unsupported):
    """There is no such binding (CRE-11)."""

    fix = "Use binding hold, node or kubernetes."

    def __init__(self, binding: str) -> None:
        super().__init__(f"There is no binding '{binding[:64]}'.", details={"field": "binding"})


class AdmissionUnfinished(Unavailable):
    """Admission has not finished in time; the same key picks it up (CRE-18)."""

    def __init__(self, reservation_id: str) -> None:
        super().__init__(details={"reservationId": reservation_id})


class WrongState(InvalidState):
    """The reservation is in a state in which this cannot be done."""

    def __init__(self, *, reservation_id: str, state: str, hint: str) -> None:
        super().__init__(
            f"The reservation is {state}; {hint}.", details={"reservationId": reservation_id, "state": state}
        )


class LeaseLapsed(InvalidState):
    """The lease has lapsed; the reservation is being released."""

    fix = "Create a new reservation, and renew it before its leaseExpiresAt."

    def __init__(self, *, reservation_id: str, expired_at: int) -> None:
        super().__init__(
            details={"reservationId": reservation_id, "reason": "lease-lapsed", "leaseExpiredAt": expired_at}
        )


class NoLease(InvalidState):
    """The reservation has no lease to renew: it was created without leaseSeconds."""

    def __init__(self, *, reservation_id: str) -> None:
        super().__init__(details={"reservationId": reservation_id, "reason": "no-lease"})


class ExtendInFlight(Conflict):
    """Another extend of the reservation is being decided."""

    fix = "Wait retryAfterSeconds, read the reservation again, then extend it if it still needs that."

    def __init__(self, *, reservation_id: str, retry_after_seconds: int) -> None:
        super().__init__(
            details={
                "reservationId": reservation_id,
                "reason": "extend-in-flight",
                "retryAfterSeconds": retry_after_seconds,
            },
            retry_after_seconds=retry_after_seconds,
        )


class WindowChanged(Conflict):
    """The reservation's window has changed while its extension was being decided."""

    fix = "Read the reservation again, then extend it if it still needs that."

    def __init__(self, *, reservation_id: str) -> None:
        super().__init__(details={"reservationId": reservation_id, "reason": "window-changed"})


class OfferWithdrawn(InvalidState):
    """The offer of the pool to this tenant was withdrawn: what is booked runs out."""

    def __init__(self) -> None:
        super().__init__(details={"reason": "offer-withdrawn"})


class ConfirmationRequired(Refusal):
    """The person in whose name the agent acts must confirm this request first."""

    code = "CONFIRMATION_REQUIRED"

    def __init__(self, *, reservation_id: str = "", confirmation_id: str = "", expires_at: int = 0) -> None:
        """Without ids where nothing was asked of anybody (a dry run)."""
        asked = {"reservationId": reservation_id, "confirmationId": confirmation_id, "expiresAt": expires_at}
        super().__init__(details=asked if confirmation_id else None)


class MaxCostExceeded(Refusal):
    """The estimated cost is above maxCost (CRE-13)."""

    code = "SPEND_LIMIT_REACHED"
    fix = "Ask for fewer devices or a shorter window, or send a new request with a higher maxCost."

    def __init__(self, *, cost: str, max_cost: str, currency: str) -> None:
        super().__init__(
            f"The estimated cost of {cost} is above maxCost {max_cost}.",
            details={"reason": "max-cost", "estimatedCost": cost, "maxCost": max_cost, "currency": currency},
        )


class StateChanged(TryAgain):
    """Somebody else has changed the reservation since it was read; look again."""


class StoredRefusal(Refusal):
    """A refusal that a worker decided and the waiting call answers."""

    def __init__(self, stored: dict[str, Any]) -> None:
        super().__init__(
            stored["message"], details=stored.get("details"), retry_after_seconds=stored.get("retryAfterSeconds")
        )
        self.code = stored["code"]  # type: ignore[misc]  # this one speaks for the class that was stored
        self.fix = stored.get("fix")  # type: ignore[misc]


def stored(refusal: Refusal) -> dict[str, Any]:
    """A refusal as a row keeps it."""
    kept = {
        "code": refusal.code,
        "message": refusal.message,
        "details": refusal.details,
        "retryAfterSeconds": refusal.retry_after_seconds,
        "fix": refusal.fix,
    }
    return {key: value for key, value in kept.items() if value is not None}
