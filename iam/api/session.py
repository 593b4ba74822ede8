"""``/api/iam/session/whoami``."""

from typing import Any

from computeplatform.api.calls import Call
from computeplatform.api.fields import Instant, Items, OneOf, Shape, Text
from computeplatform.api.methods import Answer, method
from iam.api.shapes import IamId, Label, Slug
from iam.contracts import PLATFORM_ROLES, Subject
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
    `agent`; `scopes` are the session's, and `expiresAt` is the end of session, delegation or key, whichever comes
    first.
    """
    subject = subject_of(call.caller)
    return {**_person(subject), **_credential(subject)}


def _person(subject: Subject) -> Answer:
    agent = {
        "id": subject.agent_id,
        "name": subject.agent_name,
        "sponsorId": subject.sponsor_id,
        "delegationId": subject.delegation_id,
    }
    return {
        "principal": {
            "id": subject.principal_id,
            "kind": subject.kind,
            "name": subject.name,
            "roles": list(subject.roles),
            "groups": list(subject.groups),
        },
        "tenant": {"id": subject.tenant_id, "name": subject.tenant_name},
    } | ({"agent": agent} if subject.delegated else {})


def _credential(subject: Subject) -> Answer:
    if subject.delegated:
        scopes, kind, identifier = subject.session_scopes, "delegated-session", subject.session_id
    else:
        scopes, kind, identifier = subject.scopes, "api-key", subject.key_id
    return {
        "scopes": list(scopes),
        "expiresAt": subject.expires_at,
        "credential": {"kind": kind, "id": identifier},
    }
