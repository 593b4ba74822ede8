"""What identity and access refuses, one class per reason."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from computeplatform.errors import Conflict, InvalidInput, InvalidState, Issue, Refusal


class LastAdmin(InvalidState):
    """The last active tenant administrator of a tenant stays one."""

    fix = "Make another principal tenant-admin first, then repeat the change."

    def __init__(self) -> None:
        super().__init__(details={"reason": "last-admin"})


class UseAgents(InvalidState):
    """An agent is suspended and resumed by agents/suspend and agents/resume."""

    fix = "Call agents/suspend or agents/resume with this id."

    def __init__(self) -> None:
        super().__init__(details={"reason": "use-agents"})


class PrincipalSuspended(InvalidState):
    """The principal is suspended."""

    fix = "Resume the principal first."

    def __init__(self) -> None:
        super().__init__(details={"reason": "principal-suspended"})


class SponsorNotActive(InvalidState):
    """Only an active user of the tenant can be the sponsor of an agent."""

    fix = "Name an active user as the sponsor."

    def __init__(self) -> None:
        super().__init__(details={"reason": "sponsor-not-active"})


class DelegationNotActive(InvalidState):
    """The delegation is revoked or has expired."""

    fix = "Ask the user to grant another delegation with delegations/grant."

    def __init__(self, status: str) -> None:
        super().__init__(f"The delegation is {status}.", details={"reason": f"delegation-{status}"})


class KeyNotActive(InvalidState):
    """The key is revoked or has expired."""

    fix = "Make a new key with keys/create."

    def __init__(self, status: str) -> None:
        super().__init__(f"The key is {status}.", details={"reason": f"key-{status}"})


class ConfirmationClosed(InvalidState):
    """The confirmation takes no answer any more."""

    fix = "Nothing is left to decide here; the agent's next request asks anew where it may."

    def __init__(self, reason: str, state: str) -> None:
        super().__init__(f"The confirmation is {state}.", details={"reason": reason, "state": state})


class TooManyPolicies(InvalidState):
    """The tenant has as many policies as it may have."""

    fix = "Delete a policy, or put several statements into one."

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"A tenant has at most {limit} policies.", details={"reason": "too-many-policies", "max": limit}
        )


class PoliciesTooBig(InvalidState):
    """The tenant's policies are as big, all together, as they may be."""

    fix = "Delete a policy, or shorten one: every decision in the tenant reads them all."

    def __init__(self, unit: str, *, size: int, limit: int) -> None:
        super().__init__(
            f"All policies of a tenant have at most {limit} {unit} together.",
            details={"reason": "policies-too-big", "unit": unit, "size": size, "max": limit},
        )


class PlatformStays(InvalidState):
    """The platform's own tenant cannot be suspended."""

    fix = "Suspend single principals or revoke their keys instead."

    def __init__(self) -> None:
        super().__init__(details={"reason": "platform-tenant"})


class TenantExists(Conflict):
    """There is a tenant with this id already."""

    fix = "Choose another id."

    def __init__(self, tenant_id: str) -> None:
        super().__init__(details={"reason": "tenant-exists", "id": tenant_id})


class BatchNotWhole(Exception):
    """A sealed batch of the audit log is not what it was when it was sealed; no caller of the API sees this."""


class PruneRunning(Exception):
    """Somebody prunes the audit log already; no caller of the API sees this."""


class OperatorMayNotAct(Refusal):
    """This sign-in stands for no active user of the platform: it may look, but not act."""

    # Only the admin's pages show this; a caller of the API is told nothing beyond that it was denied.
    code = "ACCESS_DENIED"
    fix = "Ask the platform's administrator for an operator's account with a principal."


@dataclass(frozen=True)
class TextIssue(Issue):
    """One fault of a policy's text, and the statement it is in, where there is one."""

    statement: str | None = None

    def as_json(self) -> dict[str, Any]:
        return super().as_json() | ({"statement": self.statement} if self.statement else {})


class PolicyRefused(InvalidInput):
    """The policy's text does not fit the schema."""

    fix = "Correct the text at the places named in details.issues; policies/validate checks it without storing it."

    def __init__(self, issues: Iterable[TextIssue]) -> None:
        super().__init__(issues)
