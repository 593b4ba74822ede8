"""What a method sees of a call, and the three ports through which the kernel reaches IAM."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Protocol

from django.conf import settings
from django.utils.module_loading import import_string

from computeplatform.errors import AccessDenied
from computeplatform.parking import Resume

Attribute = str | int | bool | Decimal


@dataclass(frozen=True)
class Caller:
    """Who calls: the identity that counts and the credential it came with.

    In a delegated session ``principal_id`` is the person and ``agent_id`` the agent beside it, ``session_id`` the
    session and ``key_id`` the key that assumed it (``""`` otherwise). ``requests_per_minute`` is what the key may at
    most, if it says so (API-12).
    ``traits`` is what IAM read along with the credential (roles, scopes, the tenant's policy revision), so that the
    decision needs no further query; nobody else looks inside.
    """

    principal_id: str
    kind: str
    tenant_id: str
    agent_id: str = ""
    key_id: str = ""
    session_id: str = ""
    requests_per_minute: int | None = None
    traits: Mapping[str, object] = field(default_factory=dict, compare=False)

    @property
    def identity(self) -> str:
        """What an idempotency key belongs to: an agent and its person are two (CRE-2)."""
        return f"{self.principal_id}/{self.agent_id}" if self.agent_id else self.principal_id

    @property
    def credential_id(self) -> str:
        """What the call came with: a key, or a delegated session."""
        return self.session_id or self.key_id


@dataclass(frozen=True)
class Actor:
    """Who an operation acts for, as events and rows store it."""

    principal_id: str
    agent_id: str = ""
    request_id: str = ""


def system_actor(name: str) -> Actor:
    """The platform itself, acting as one of its loops (``capacity.reservations``)."""
    return Actor(principal_id=f"system:{name}")


@dataclass(frozen=True)
class Resource:
    """What a decision is about: the contract's type name, an id, the tenant it is decided in, typed attributes."""

    type: str
    id: str
    tenant_id: str
    attributes: Mapping[str, Attribute] = field(default_factory=dict)


@dataclass(frozen=True)
class CallContext:
    """The circumstances of a call, taken when it arrives; a later worker decides on the same."""

    time: int
    source_ip: str | None = None
    request_id: str = ""


@dataclass(frozen=True)
class ConfirmationAsked:
    """The confirmation that a refused call waits for; without an id where none was to be opened (a dry run)."""

    id: str = ""
    expires_at: int = 0


@dataclass(frozen=True)
class Verdict:
    """IAM's answer. The caller learns ``allowed`` and, where that is all that is missing, the confirmation (CRE-8)."""

    allowed: bool
    decision_id: str = ""
    confirmation: ConfirmationAsked | None = None


class AuthenticatePort(Protocol):
    """Read a bearer token; raises Unauthenticated."""

    def __call__(self, token: str, *, now: int, source_ip: str | None) -> Caller: ...


class DecidePort(Protocol):
    """Decide one action on one resource. ``record`` False is for the rows of a list, which are not audited."""

    def __call__(
        self, caller: Caller, action: str, resource: Resource, *, context: CallContext, record: bool
    ) -> Verdict: ...


class ScreenPort(Protocol):
    """Refuse what needs no look at any object: a foreign tenant, what a delegated session never may (IAM-5).

    Raises AccessDenied, after the denial is recorded.
    """

    def __call__(
        self, caller: Caller, action: str, *, resource_type: str, tenant_id: str, context: CallContext
    ) -> None: ...


def authenticate_port() -> AuthenticatePort:
    """The function that settings name as ``authenticate``."""
    return import_string(settings.COMPUTE_PORTS["authenticate"])  # type: ignore[no-any-return]


def decide_port() -> DecidePort:
    """The function that settings name as ``decide``."""
    return import_string(settings.COMPUTE_PORTS["decide"])  # type: ignore[no-any-return]


def screen_port() -> ScreenPort:
    """The function that settings name as ``screen``."""
    return import_string(settings.COMPUTE_PORTS["screen"])  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Call:
    """One authenticated call of one method. ``now`` is read once here and passed down."""

    caller: Caller
    tenant_id: str
    context: CallContext
    now: int
    resume: Resume | None = None

    @property
    def actor(self) -> Actor:
        """The caller as operations store it."""
        return Actor(self.caller.principal_id, self.caller.agent_id, self.context.request_id)

    def decide(self, action: str, resource: Resource) -> Verdict:
        """Ask IAM and record the decision; raises AccessDenied when it is not allowed."""
        verdict = decide_port()(self.caller, action, resource, context=self.context, record=True)
        if not verdict.allowed:
            raise AccessDenied
        return verdict

    def permits(self, action: str, resource: Resource) -> bool:
        """Ask IAM about one row of a list: no audit entry, no refusal (LST-2)."""
        return decide_port()(self.caller, action, resource, context=self.context, record=False).allowed


def tenant_resource(call: Call) -> Resource:
    """The calling tenant itself, for methods decided ``@ compute-tenant``."""
    return Resource("compute-tenant", call.tenant_id, call.tenant_id, {"tenantId": call.tenant_id})
