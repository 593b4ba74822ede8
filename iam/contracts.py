"""What identity and access hands to other apps and to its own edges: values, never rows."""

from dataclasses import dataclass, field
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
    """One version of a policy; ``statements`` are ``{id, effect, line}``."""

    tenant_id: str
    name: str
    version: int
    text: str
    statements: tuple[dict[str, Any], ...]
    created_at: int
    created_by: str
    updated_at: int
    updated_by: str


@dataclass(frozen=True)
class Subject:
    """Who asks, with everything that a decision needs of them: read with the credential, carried in the Caller.

    ``policy_revision`` names the state of the tenant's policies at that moment. ``key_expires_at`` and the two names
    are for ``session/whoami``.
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
    policy_revision: int = 0
    name: str = ""
    tenant_name: str = ""
    key_expires_at: int = 0

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
        }
