"""API keys: made, replaced, revoked, used (API-2, IAM-8)."""

from collections.abc import Sequence

from django.db import connection

from computeplatform.api.calls import Actor
from computeplatform.clock import MINUTE, SECOND
from computeplatform.db.retry import in_transaction
from computeplatform.ids import new_id
from iam.contracts import KeyInfo, MintedKey
from iam.domain import tokens
from iam.errors import KeyNotActive, PrincipalSuspended
from iam.locks import lock_key, lock_principal
from iam.models import ApiKey, Principal
from iam.queries.keys import key_info
from iam.queries.pages import status_of

DEFAULT_LIFETIME_SECONDS = 7_776_000
DEFAULT_OVERLAP_SECONDS = 3_600

# A note of use must not wait for whoever holds the row, nor be repeated within the minute by another process.
_NOTE_USE = """
UPDATE iam_apikey SET last_used_at = %(minute)s WHERE id = (
    SELECT id FROM iam_apikey WHERE id = %(id)s AND (last_used_at IS NULL OR last_used_at < %(minute)s)
    FOR NO KEY UPDATE SKIP LOCKED
)
"""


@in_transaction
def create_key(
    *,
    tenant_id: str,
    principal_id: str,
    name: str,
    scopes: Sequence[str],
    expires_in_seconds: int = DEFAULT_LIFETIME_SECONDS,
    requests_per_minute: int | None = None,
    by: Actor,
    now: int,
) -> MintedKey:
    """Mint a key for a principal. The scopes are patterns that somebody has checked (IAM-API §1).

    Raises NotFound for an unknown principal, PrincipalSuspended.
    """
    principal = lock_principal(tenant_id, principal_id)
    if principal.status != "active":
        raise PrincipalSuspended
    return _mint(
        principal,
        name=name,
        scopes=scopes,
        expires_at=now + expires_in_seconds * SECOND,
        requests_per_minute=requests_per_minute,
        by=by,
        now=now,
    )


@in_transaction
def rotate_key(
    *,
    tenant_id: str,
    key_id: str,
    overlap_seconds: int = DEFAULT_OVERLAP_SECONDS,
    expires_in_seconds: int = DEFAULT_LIFETIME_SECONDS,
    by: Actor,
    now: int,
) -> tuple[MintedKey, KeyInfo]:
    """A new key with principal, scopes and limit of the old one, which works on for the overlap at most.

    Answers the new key and the old one as it now stands. Raises NotFound, KeyNotActive, PrincipalSuspended.
    """
    old = lock_key(tenant_id, key_id)
    if (status := status_of(old, now=now)) != "active":
        raise KeyNotActive(status)
    if old.principal.status != "active":
        raise PrincipalSuspended
    minted = _mint(
        old.principal,
        name=old.name,
        scopes=old.scopes,
        expires_at=now + expires_in_seconds * SECOND,
        requests_per_minute=old.requests_per_minute,
        by=by,
        now=now,
    )
    old.expires_at = min(old.expires_at, now + overlap_seconds * SECOND)
    old.replaced_by = minted.key.id
    old.save(update_fields=["expires_at", "replaced_by"])
    return minted, key_info(old, now=now)


@in_transaction
def revoke_key(*, tenant_id: str, key_id: str, reason: str = "", by: Actor, now: int) -> KeyInfo:
    """End a key at once; a revoked one is answered unchanged, an expired one is revoked too. Raises NotFound."""
    key = lock_key(tenant_id, key_id)
    if key.status == "active":
        key.status, key.revoked_at, key.revoked_by, key.revoke_reason = "revoked", now, by.principal_id, reason
        key.save(update_fields=["status", "revoked_at", "revoked_by", "revoke_reason"])
    return key_info(key, now=now)


def note_use(*, key_id: str, last_used_at: int | None, now: int) -> None:
    """Store the minute in which a key was used, unless it is stored already (``last_used_at``, as just read)."""
    minute = now - now % MINUTE
    if last_used_at is None or last_used_at < minute:
        with connection.cursor() as cursor:
            cursor.execute(_NOTE_USE, {"id": key_id, "minute": minute})


def _mint(
    principal: Principal,
    *,
    name: str,
    scopes: Sequence[str],
    expires_at: int,
    requests_per_minute: int | None,
    by: Actor,
    now: int,
) -> MintedKey:
    token = tokens.mint()
    key = ApiKey.objects.create(
        id=new_id("key"),
        tenant_id=principal.tenant_id,
        principal=principal,
        name=name,
        prefix=token.prefix,
        token_hash=token.digest,
        scopes=list(scopes),
        requests_per_minute=requests_per_minute,
        created_at=now,
        created_by=by.principal_id,
        expires_at=expires_at,
    )
    return MintedKey(key_info(key, now=now), token.text)
