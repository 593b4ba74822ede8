"""Principals: made, changed, suspended, resumed; the services that nodes sign in as (IAM-API §3, NOD-1)."""

from collections.abc import Sequence

from computeplatform.api.calls import Actor
from computeplatform.db.constraints import refusing
from computeplatform.db.retry import in_transaction
from computeplatform.errors import Conflict, InvalidInput, Issue, StaleVersion
from computeplatform.ids import new_id
from iam.contracts import PLATFORM, PLATFORM_ROLES, ROLES, TENANT_ADMIN, PrincipalInfo
from iam.errors import LastAdmin, UseAgents
from iam.locks import lock_principal, lock_tenant
from iam.models import ApiKey, Delegation, Principal
from iam.operations.keys import create_key
from iam.operations.sessions import end_sessions
from iam.queries.principals import other_active_admins, principal_info

NODE_SCOPES = ("compute:nodes:sync",)
# A node's software has nobody at its side who could replace its key before it ends: it is revoked, it does not expire.
_NODE_KEY_SECONDS = 100 * 365 * 86_400


@in_transaction
def create_principal(
    *,
    tenant_id: str,
    kind: str,
    name: str,
    roles: Sequence[str] = (),
    groups: Sequence[str] = (),
    by: Actor,
    now: int,
) -> PrincipalInfo:
    """A new user or service. Raises InvalidInput for a role that the tenant does not have."""
    _check_roles(tenant_id, roles)
    row = Principal.objects.create(
        id=new_id("usr" if kind == "user" else "svc"),
        tenant_id=tenant_id,
        kind=kind,
        name=name,
        roles=list(roles),
        groups=list(groups),
        created_at=now,
        created_by=by.principal_id,
    )
    return principal_info(row)


@in_transaction
def update_principal(
    *,
    tenant_id: str,
    principal_id: str,
    name: str | None = None,
    roles: Sequence[str] | None = None,
    groups: Sequence[str] | None = None,
    boundary: Sequence[str] | None = None,
    version: int | None = None,
    by: Actor,
    now: int,
) -> PrincipalInfo:
    """Change what is not None; lists replace. Nothing changed: the same version.

    Raises NotFound, StaleVersion, LastAdmin, InvalidInput for a role that the tenant does not have and for the
    boundary of one that is no agent.
    """
    if roles is not None:
        _check_roles(tenant_id, roles)
    lock_tenant(tenant_id)
    row = lock_principal(tenant_id, principal_id)
    if boundary is not None and row.kind != "agent":
        raise InvalidInput.at("boundary", "only an agent has a boundary")
    if version is not None and version != row.version:
        raise StaleVersion(given=version, present=row.version)
    if roles is not None and TENANT_ADMIN not in roles:
        _keep_an_admin(row)
    wanted = {
        "name": name,
        "roles": None if roles is None else list(roles),
        "groups": None if groups is None else list(groups),
        "boundary": None if boundary is None else list(boundary),
    }
    changed = [field for field, value in wanted.items() if value is not None and value != getattr(row, field)]
    if changed:
        for field in changed:
            setattr(row, field, wanted[field])
        row.version += 1
        row.save(update_fields=[*changed, "version"])
    return principal_info(row)


@in_transaction
def suspend_principal(*, tenant_id: str, principal_id: str, reason: str = "", by: Actor, now: int) -> PrincipalInfo:
    """Its keys stop at their next use, and sessions in its name for good. Suspended already: unchanged.

    Raises NotFound, UseAgents, LastAdmin.
    """
    lock_tenant(tenant_id)
    row = lock_principal(tenant_id, principal_id)
    if row.kind == "agent":
        raise UseAgents
    if row.status == "active":
        _keep_an_admin(row)
        _set_status(row, "suspended", reason, by, now)
        end_sessions(Delegation.objects.filter(user=row), now=now)
    return principal_info(row)


@in_transaction
def resume_principal(*, tenant_id: str, principal_id: str, reason: str = "", by: Actor, now: int) -> PrincipalInfo:
    """Its keys work again, those revoked excepted. Active already: unchanged. Raises NotFound, UseAgents, Conflict."""
    row = lock_principal(tenant_id, principal_id)
    if row.kind == "agent":
        raise UseAgents
    if row.status == "suspended":
        with refusing({"principal_one_per_node": Conflict("Another service stands for this node by now.")}):
            _set_status(row, "active", reason, by, now)
    return principal_info(row)


@in_transaction
def create_node_service(*, node_id: str, name: str, by: Actor, now: int) -> tuple[PrincipalInfo, str]:
    """The service that a node's software signs in as, and the token of its key, which may do ``nodes/sync`` alone.

    Raises Conflict where the node has one already.
    """
    with refusing({"principal_one_per_node": Conflict("The node has a service already.")}):
        row = Principal.objects.create(
            id=new_id("svc"),
            tenant_id=PLATFORM,
            kind="service",
            name=name,
            node_id=node_id,
            created_at=now,
            created_by=by.principal_id,
        )
    minted = create_key(
        tenant_id=PLATFORM,
        principal_id=row.id,
        name=name,
        scopes=NODE_SCOPES,
        expires_in_seconds=_NODE_KEY_SECONDS,
        by=by,
        now=now,
    )
    return principal_info(row), minted.token


@in_transaction
def end_node_service(*, node_id: str, by: Actor, now: int) -> None:
    """The node is gone: its service is suspended and its keys are revoked. Ended already: nothing happens."""
    for principal_id in Principal.objects.filter(tenant_id=PLATFORM, node_id=node_id, status="active").values_list(
        "id", flat=True
    ):
        row = lock_principal(PLATFORM, principal_id)
        _set_status(row, "suspended", "node removed", by, now)
        ApiKey.objects.filter(principal_id=principal_id, status="active").update(
            status="revoked", revoked_at=now, revoked_by=by.principal_id, revoke_reason="node removed"
        )


def _check_roles(tenant_id: str, roles: Sequence[str]) -> None:
    known = PLATFORM_ROLES if tenant_id == PLATFORM else ROLES
    issues = [
        Issue(f"roles.{place}", f"'{role}' is not a role of this tenant")
        for place, role in enumerate(roles)
        if role not in known
    ]
    if issues:
        raise InvalidInput(issues)


def _keep_an_admin(row: Principal) -> None:
    """Called under the tenant's lock, so that two administrators cannot leave at the same moment."""
    is_admin = row.status == "active" and row.kind != "agent" and TENANT_ADMIN in row.roles
    if is_admin and not other_active_admins(row.tenant_id, row.id):
        raise LastAdmin


def _set_status(row: Principal, status: str, reason: str, by: Actor, now: int) -> None:
    row.status, row.status_reason, row.status_by, row.status_at = status, reason, by.principal_id, now
    row.version += 1
    row.save(update_fields=["status", "status_reason", "status_by", "status_at", "version"])
