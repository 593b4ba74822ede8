"""The first rows: the platform's tenant and its administrator, and who signs in to the admin."""

from dataclasses import dataclass

from computeplatform.api.calls import Actor, system_actor
from computeplatform.db.locks import try_advisory_lock
from computeplatform.db.retry import in_transaction
from computeplatform.errors import Unavailable
from iam.contracts import FLEET_ADMIN, PLATFORM, TENANT_ADMIN, UNSCOPED, PrincipalInfo
from iam.models import Operator, Principal, Tenant
from iam.operations.keys import create_key
from iam.operations.principals import create_principal
from iam.operations.tenants import create_tenant
from iam.queries.principals import principal_info

BOOTSTRAP = system_actor("bootstrap")


@dataclass(frozen=True)
class Platform:
    """The platform's first administrator; ``token`` only from the call that made it."""

    admin: PrincipalInfo
    token: str | None


@in_transaction
def ensure_platform(now: int) -> Platform:
    """The platform tenant with an administrator who is also fleet administrator (IAM-API §8). Repeated: what is there.

    Raises Unavailable while another process does the same.
    """
    if not try_advisory_lock("iam-bootstrap"):
        raise Unavailable("Another process is setting up the platform.")
    if not Tenant.objects.filter(id=PLATFORM).exists():
        create_tenant(tenant_id=PLATFORM, name="Platform", by=BOOTSTRAP, now=now)
    roles = [TENANT_ADMIN, FLEET_ADMIN]
    there = Principal.objects.filter(tenant_id=PLATFORM, kind="user", status="active", roles__contains=roles)
    first = there.order_by("created_at", "id").first()
    if first:
        return Platform(principal_info(first), None)
    admin = create_principal(tenant_id=PLATFORM, kind="user", name="admin", roles=roles, by=BOOTSTRAP, now=now)
    minted = create_key(
        tenant_id=PLATFORM, principal_id=admin.id, name="first key", scopes=UNSCOPED, by=BOOTSTRAP, now=now
    )
    return Platform(admin, minted.token)


@in_transaction
def ensure_operator(*, username: str, password: str, principal_id: str, by: Actor, now: int) -> None:
    """Let a platform principal sign in to the admin under this name. There already: its password is set anew.

    A principal has one operator, and an operator one principal: another pairing breaks a constraint.
    """
    principal = Principal.objects.get(id=principal_id, tenant_id=PLATFORM, kind="user")
    operator = Operator.objects.filter(username=username).first() or Operator(username=username)
    operator.principal = principal
    operator.is_staff = operator.is_superuser = True
    operator.set_password(password)
    operator.save()
