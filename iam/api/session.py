"""``/api/iam/session/whoami``."""

from typing import Any

from computeplatform.api.calls import Call
from computeplatform.api.fields import Instant, Items, OneOf, Shape, Text
from computeplatform.api.methods import Answer, method
from iam.api.shapes import IamId, Label, Slug
from iam.contracts import PLATFORM_ROLES
from iam.queries.credentials import subject_of


class WhoamiInput(Shape):
    """Nothing: not even `tenantId`."""


class WhoamiPrincipal(Shape):
    id = IamId()
    kind = OneOf(choices=["user", "service", "agent"])
    name = Label()
    roles = Items(child=OneOf(choices=PLATFORM_ROLES))
    groups = Items(child=Slug())


class WhoamiAgent(Shape):
    id = IamId()
    name = Label()
    sponsorId = IamId()
    delegationId = IamId()


class WhoamiTenant(Shape):
    id = IamId()
    name = Label()


class WhoamiCredential(Shape):
    kind = OneOf(choices=["api-key", "delegated-session"])
    id = IamId()


class WhoamiOutput(Shape):
    principal = WhoamiPrincipal()
    agent = WhoamiAgent(required=False)
    tenant = WhoamiTenant()
    scopes = Items(child=Text())
    expiresAt = Instant()
    credential = WhoamiCredential()


@method(
    "session/whoami",
    kind="read",
    action=None,
    resource="none",
    input=WhoamiInput,
    output=WhoamiOutput,
    service="iam",
    module="iam",
)
def whoami(call: Call, _data: dict[str, Any], _loaded: None) -> Answer:
    """Who the credential makes the caller: principal, tenant, scopes (`["*"]` for an unscoped key), expiry (IAM-8).

    Any valid credential may ask; nothing is decided. In a delegated session `principal` is the user, beside the
    `agent`.
    """
    subject = subject_of(call.caller)
    return {
        "principal": {
            "id": subject.principal_id,
            "kind": subject.kind,
            "name": subject.name,
            "roles": list(subject.roles),
            "groups": list(subject.groups),
        },
        "tenant": {"id": subject.tenant_id, "name": subject.tenant_name},
        "scopes": list(subject.scopes),
        "expiresAt": subject.key_expires_at,
        "credential": {"kind": "api-key", "id": subject.key_id},
    }
