"""Every refusal the platform can answer: codes, statuses and what to do next (API-3).

A refusal is an exception. Its class says the code, its message says the reason in words, its details are typed
by the class. Apps derive one class per refusal from the classes here; the wire mappers know only this module.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True)
class Code:
    """One entry of the registry: its HTTP status, what it means, and what a caller can do about it."""

    name: str
    status: int
    meaning: str
    fix: str


CODES: dict[str, Code] = {
    code.name: code
    for code in (
        Code(
            "INVALID_INPUT",
            400,
            "A field is missing, unknown, of the wrong type or out of range.",
            "Correct the fields named in details.issues and send the request again.",
        ),
        Code(
            "UNSUPPORTED",
            400,
            "The request is well formed, but asks for something this platform does not offer.",
            "Ask for one of the values that the method's page lists.",
        ),
        Code(
            "UNAUTHENTICATED",
            401,
            "The credential is missing, unknown, expired, revoked, or its owner is suspended.",
            "Send 'Authorization: Bearer <token>' with a valid token; ask your administrator for a new key.",
        ),
        Code(
            "SPEND_LIMIT_REACHED",
            402,
            "A budget that counts this tenant is spent, or the estimated cost is above maxCost.",
            "Ask whoever set the budget to raise it, or ask for less.",
        ),
        Code(
            "ACCESS_DENIED",
            403,
            "IAM did not allow this call.",
            "Give the request id to your tenant's administrator, who can see the reasons.",
        ),
        Code(
            "CONFIRMATION_REQUIRED",
            403,
            "The person in whose name the agent acts must confirm this request first.",
            "Ask the person to decide the confirmation named in details, then send the same request again.",
        ),
        Code(
            "NOT_FOUND",
            404,
            "Nothing with this id is visible to the tenant, or no such method exists.",
            "Check the id and the tenantId; GET /api/methods lists the methods.",
        ),
        Code(
            "METHOD_NOT_ALLOWED",
            405,
            "The address exists, but not for this HTTP method.",
            "Use POST for API methods, GET for the documents.",
        ),
        Code(
            "CONFLICT",
            409,
            "The request contradicts what is stored.",
            "Read the object again; use a new idempotency key for a new request.",
        ),
        Code(
            "INVALID_STATE",
            409,
            "The object is in a state in which this cannot be done.",
            "Read the object and act on its present state.",
        ),
        Code(
            "PAYLOAD_TOO_LARGE",
            413,
            "The body is larger than this method takes.",
            "Send a smaller body.",
        ),
        Code(
            "UNSUPPORTED_MEDIA_TYPE",
            415,
            "The body is not JSON.",
            "Send the body as UTF-8 JSON with 'Content-Type: application/json'.",
        ),
        Code(
            "RATE_LIMITED",
            429,
            "Too many calls.",
            "Wait retryAfterSeconds, then send the request again.",
        ),
        Code(
            "QUOTA_EXCEEDED",
            429,
            "The charge does not fit into the tenant's quota in this pool.",
            "Release something, ask for less, or ask the pool's owner for more quota; then retry with the same key.",
        ),
        Code(
            "INTERNAL_ERROR",
            500,
            "The platform failed.",
            "Retry with the same idempotency key; give the request id to the operator if it happens again.",
        ),
        Code(
            "UNAVAILABLE",
            503,
            "A part of the platform is away or too slow just now.",
            "Wait retryAfterSeconds, then send the same request with the same idempotency key.",
        ),
    )
}


class Refusal(Exception):
    """Base of all refusals. A subclass names its code; its docstring's first line is the default message."""

    code: ClassVar[str] = "INTERNAL_ERROR"
    fix: ClassVar[str | None] = None

    def __init__(
        self,
        message: str | None = None,
        *,
        details: Mapping[str, Any] | None = None,
        retry_after_seconds: int | None = None,
    ) -> None:
        self.message = message or (type(self).__doc__ or "").strip().splitlines()[0]
        self.details: dict[str, Any] | None = dict(details) if details else None
        self.retry_after_seconds = retry_after_seconds
        super().__init__(self.message)

    @property
    def status(self) -> int:
        """The HTTP status of the RPC wire."""
        return CODES[self.code].status

    @property
    def advice(self) -> str:
        """What the caller can do next: the class's own advice, else that of its code."""
        return self.fix or CODES[self.code].fix


@dataclass(frozen=True)
class Issue:
    """One wrong field: its dotted path, what is wrong, and for texts the place counted from 1 (API-4)."""

    path: str
    message: str
    line: int | None = None
    column: int | None = None

    def as_json(self) -> dict[str, Any]:
        """The shape on the wire; places only where they are known."""
        place = {"line": self.line, "column": self.column}
        return {"path": self.path, "message": self.message} | {k: v for k, v in place.items() if v is not None}


class InvalidInput(Refusal):
    """The request is not valid."""

    code = "INVALID_INPUT"

    def __init__(
        self, issues: Iterable[Issue], message: str | None = None, *, details: Mapping[str, Any] | None = None
    ) -> None:
        self.issues = tuple(issues)
        text = message or "; ".join(f"{i.path}: {i.message}" if i.path else i.message for i in self.issues[:3])
        super().__init__(text, details={"issues": [i.as_json() for i in self.issues], **(details or {})})

    @classmethod
    def at(cls, path: str, message: str) -> "InvalidInput":
        """The common case: one wrong field."""
        return cls([Issue(path, message)])


class Unsupported(Refusal):
    """This is not supported."""

    code = "UNSUPPORTED"


class Unauthenticated(Refusal):
    """The credential is missing or not valid."""

    code = "UNAUTHENTICATED"


class AccessDenied(Refusal):
    """Access denied."""

    code = "ACCESS_DENIED"

    def __init__(self) -> None:
        # The same words for every cause: nothing may tell a missing permit from a forbid or another tenant.
        super().__init__("Access denied.")


class NotFound(Refusal):
    """Nothing with this id is visible to the tenant."""

    code = "NOT_FOUND"


class MethodNotAllowed(Refusal):
    """The address does not take this HTTP method."""

    code = "METHOD_NOT_ALLOWED"


class Conflict(Refusal):
    """The request contradicts what is stored."""

    code = "CONFLICT"


class StaleVersion(Conflict):
    """The object has changed since the version given was read."""

    fix = "Read the object again and repeat the change with its present version."

    def __init__(self, *, given: int, present: int) -> None:
        super().__init__(
            f"The object is at version {present}, not {given}.",
            details={"reason": "stale-version", "version": present},
        )


class KeyReused(Conflict):
    """The idempotency key was used with another request."""

    fix = "Use a new idempotency key for a new request, or repeat the first request exactly."

    def __init__(self, **details: Any) -> None:
        super().__init__(details={"reason": "idempotency-key-reused", **details})


class InvalidState(Refusal):
    """The object is in a state in which this cannot be done."""

    code = "INVALID_STATE"


class PayloadTooLarge(Refusal):
    """The body is too large."""

    code = "PAYLOAD_TOO_LARGE"


class UnsupportedMediaType(Refusal):
    """The body must be JSON."""

    code = "UNSUPPORTED_MEDIA_TYPE"


class RateLimited(Refusal):
    """Too many calls."""

    code = "RATE_LIMITED"

    def __init__(self, message: str | None = None, *, reason: str, retry_after_seconds: int) -> None:
        super().__init__(message, details={"reason": reason}, retry_after_seconds=retry_after_seconds)


class InternalError(Refusal):
    """The platform failed; the request id finds the cause in its log."""

    code = "INTERNAL_ERROR"


class Unavailable(Refusal):
    """A part of the platform is away just now."""

    code = "UNAVAILABLE"

    def __init__(
        self,
        message: str | None = None,
        *,
        details: Mapping[str, Any] | None = None,
        retry_after_seconds: int = 2,
    ) -> None:
        super().__init__(message, details=details, retry_after_seconds=retry_after_seconds)


class TryAgain(Exception):
    """What was read is no longer so: the transaction is to be run afresh (no caller ever sees this)."""
