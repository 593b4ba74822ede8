"""The three functions through which the kernel reaches identity and access (DESIGN §2)."""

from computeplatform.api.calls import CallContext, Caller, Resource, Verdict
from computeplatform.errors import Unauthenticated
from iam.domain import tokens
from iam.operations import decisions
from iam.operations.keys import note_use
from iam.queries.credentials import credential


def authenticate(token: str, *, now: int, source_ip: str | None) -> Caller:
    """The caller behind a bearer token, read in one query (API-2). Raises Unauthenticated.

    A wrong type or checksum is refused before any look-up. When a key was last used is noted once a minute; what a
    delegated session does is no use of the key that assumed it.
    """
    read = tokens.read(token)
    if read is None:
        raise Unauthenticated
    found = credential(read, now=now)
    if read.is_key:
        note_use(key_id=found.caller.key_id, last_used_at=found.last_used_at, now=now)
    return found.caller


def decide(caller: Caller, action: str, resource: Resource, *, context: CallContext, record: bool) -> Verdict:
    """Decide one action on one resource (IAM-1)."""
    return decisions.decide(caller, action, resource, context=context, record=record)


def screen(caller: Caller, action: str, *, resource_type: str, tenant_id: str, context: CallContext) -> None:
    """Refuse a foreign tenant, and what a delegated session never may, before anything is looked up (API-5, IAM-5)."""
    decisions.screen(caller, action, resource_type=resource_type, tenant_id=tenant_id, context=context)
