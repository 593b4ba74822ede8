"""What identity and access hands to other apps and to its own edges: values, never rows."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

PLATFORM = "platform"

TENANT_ADMIN = "tenant-admin"
FLEET_ADMIN = "fleet-admin"
RESERVER = "reserver"
VIEWER = "viewer"
ROLES = (TENANT_ADMIN, RESERVER, VIEWER)
PLATFORM_ROLES = (*ROLES, FLEET_ADMIN)

UNSCOPED = ("*",)


@dataclass(frozen=True)
class TenantInfo:
    """A tenant; ``status`` is active or suspended."""

    id: str
    name: str
    status: str
    created_at: int
    version: int


@dataclass(frozen=True)
class PrincipalInfo:
    """A principal; ``sponsor_id`` is ``""`` for all but agents, ``node_id`` for all but a node's service."""

    id: str
    tenant_id: str
    kind: str
    name: str
    roles: tuple[str, ...]
    groups: tuple[str, ...]
    status: str
    node_id: str
    sponsor_id: str
    boundary: tuple[str, ...]
    suspended_by: str
    created_at: int
    version: int


@dataclass(frozen=True)
class KeyInfo:
    """An API key without its secret; ``status`` is active, revoked or expired, as of the moment it was read."""

    id: str
    tenant_id: str
    principal_id: str
    sponsor_id: str
    name: str
    prefix: str
    scopes: tuple[str, ...]
    requests_per_minute: int | None
    status: str
    created_at: int
    created_by: str
    expires_at: int
    last_used_at: int | None
    replaced_by: str


@dataclass(frozen=True)
class MintedKey:
    """A new key with its token, which nothing stores."""

    key: KeyInfo
    token: str = field(repr=False)


@dataclass(frozen=True)
class PolicyInfo:
    """One version of a policy; ``statements`` are ``{id, effect, line}``, ``words`` says how big it is."""

    tenant_id: str
    name: str
    version: int
    text: str
    statements: tuple[dict[str, Any], ...]
    created_at: int
    created_by: str
    updated_at: int
    updated_by: str
    words: int = 0


@dataclass(frozen=True)
class DelegationInfo:
    """A delegation; ``status`` is active, revoked or expired, as of the moment it was read."""

    id: str
    tenant_id: str
    user_id: str
    agent_id: str
    name: str
    scopes: tuple[str, ...]
    confirm: tuple[str, ...]
    status: str
    created_at: int
    expires_at: int
    revoked_at: int | None


@dataclass(frozen=True)
class SessionInfo:
    """A delegated session without its secret."""

    id: str
    tenant_id: str
    delegation_id: str
    user_id: str
    agent_id: str
    scopes: tuple[str, ...]
    created_at: int
    expires_at: int


@dataclass(frozen=True)
class AssumedSession:
    """A new session with its token, which nothing stores."""

    session: SessionInfo
    token: str = field(repr=False)


@dataclass(frozen=True)
class ConfirmationInfo:
    """A confirmation; ``state`` is what it is at the moment of reading, time and its delegation's end included."""

    id: str
    tenant_id: str
    user_id: str
    agent_id: str
    delegation_id: str
    action: str
    resource_type: str
    resource_id: str
    asked: Mapping[str, Any]
    estimated_cost: Decimal
    currency: str
    state: str
    created_at: int
    expires_at: int
    decided_at: int | None
    used_at: int | None


@dataclass(frozen=True)
class DecisionInfo:
    """An entry of the audit log, or what it would be; ``id`` is ``""`` for what was not recorded.

    ``attributes`` and ``context`` are as JSON has them; ``session_scopes`` are those of the session that it came in.
    """

    id: str
    tenant_id: str
    at: int
    principal_id: str
    principal_kind: str
    agent_id: str
    delegation_id: str
    key_id: str
    session_scopes: tuple[str, ...]
    action: str
    resource_type: str
    resource_id: str
    attributes: Mapping[str, Any]
    context: Mapping[str, Any]
    outcome: str
    reason: str
    policies: tuple[Mapping[str, Any], ...]
    errors: tuple[str, ...]
    request_id: str


@dataclass(frozen=True)
class Gate:
    """What a person is asked to confirm about a call, where their delegation wants that (IAM-6).

    ``asked`` is what they are shown, ``digest`` what their approval is bound to, ``cost`` in ``currency`` what it may
    not exceed. ``confirmation_id`` is the one that the request waited for before, if the request remembers it;
    ``opens`` False asks nobody (a dry run).
    """

    asked: Mapping[str, Any]
    digest: str
    cost: Decimal
    currency: str
    confirmation_id: str = ""
    opens: bool = True


@dataclass(frozen=True)
class Subject:
    """Who asks, with everything that a decision needs of them: read with the credential, carried in the Caller.

    In a delegated session the principal is the user; ``agent_id`` is the agent, ``boundary`` its boundary, ``scopes``
    those of the key that assumed the session, ``session_scopes`` the session's own, and ``confirm`` what the delegation
    wants confirmed. ``policy_revision`` names the state of the tenant's policies at that moment. ``expires_at`` (when
    the credential ends by itself) and the names are for ``session/whoami``.
    """

    principal_id: str
    kind: str
    tenant_id: str
    roles: tuple[str, ...]
    groups: tuple[str, ...]
    node_id: str = ""
    sponsor_id: str = ""
    boundary: tuple[str, ...] = ()
    key_id: str = ""
    scopes: tuple[str, ...] = UNSCOPED
    agent_id: str = ""
    agent_name: str = ""
    delegation_id: str = ""
    session_id: str = ""
    session_scopes: tuple[str, ...] = ()
    confirm: tuple[str, ...] = ()
    policy_revision: int = 0
    name: str = ""
    tenant_name: str = ""
    expires_at: int = 0

    @property
    def delegated(self) -> bool:
        """Whether an agent acts for the principal, in a delegated session."""
        return bool(self.agent_id)

    @property
    def is_scoped(self) -> bool:
        """Whether the credential bounds what the principal may do."""
        return self.scopes != UNSCOPED

    def as_json(self) -> dict[str, Any]:
        """What the audit log keeps, so that the decision can be made again."""
        return {
            "tenantId": self.tenant_id,
            "roles": list(self.roles),
            "groups": list(self.groups),
            "nodeId": self.node_id,
            "sponsorId": self.sponsor_id,
            "boundary": list(self.boundary),
            "scopes": list(self.scopes),
            "sessionScopes": list(self.session_scopes),
        }
