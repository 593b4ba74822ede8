"""What a credential amounts to at this moment: one query, everything that authentication and decisions need."""

import hmac
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from computeplatform.api.calls import Caller
from computeplatform.db.compiled import Compiled
from computeplatform.errors import Unauthenticated
from iam.contracts import Subject
from iam.domain.tokens import Token
from iam.models import ApiKey, DelegatedSession

# Compared with when no row was found, so that an unknown prefix costs what a known one does.
_NOBODY = "0" * 64


def _chain(*, key: str, holder: str) -> dict[str, str]:
    """Where a key, its holder, the holder's sponsor and the tenant stand, seen from a key or from a session."""
    return {
        "key_id": f"{key}id",
        "key_status": f"{key}status",
        "key_expires_at": f"{key}expires_at",
        "last_used_at": f"{key}last_used_at",
        "scopes": f"{key}scopes",
        "requests_per_minute": f"{key}requests_per_minute",
        "holder_id": f"{holder}id",
        "holder_kind": f"{holder}kind",
        "holder_name": f"{holder}name",
        "holder_status": f"{holder}status",
        "boundary": f"{holder}boundary",
        "sponsor_id": f"{holder}sponsor_id",
        "sponsor_kind": f"{holder}sponsor__kind",
        "sponsor_status": f"{holder}sponsor__status",
        "tenant_id": "tenant_id",
        "tenant_name": "tenant__name",
        "tenant_status": "tenant__status",
        "policy_revision": "tenant__policy_revision",
    }


_KEY_FIELDS = _chain(key="", holder="principal__") | {
    "digest": "token_hash",
    "roles": "principal__roles",
    "groups": "principal__groups",
    "node_id": "principal__node_id",
}
# The holder of a session's key is the agent; the session acts for the user.
_SESSION_FIELDS = _chain(key="key__", holder="delegation__agent__") | {
    "digest": "token_hash",
    "session_id": "id",
    "session_scopes": "scopes",
    "session_expires_at": "expires_at",
    "session_ended_at": "ended_at",
    "delegation_id": "delegation_id",
    "delegation_status": "delegation__status",
    "delegation_expires_at": "delegation__expires_at",
    "confirm": "delegation__confirm",
    "user_id": "delegation__user__id",
    "user_kind": "delegation__user__kind",
    "user_name": "delegation__user__name",
    "user_status": "delegation__user__status",
    "roles": "delegation__user__roles",
    "groups": "delegation__user__groups",
}

# One of them is asked at every call.
_KEY_BY_PREFIX = Compiled(
    lambda *, prefix: ApiKey.objects.filter(prefix=prefix).values_list(*_KEY_FIELDS.values()), "prefix"
)
_SESSION_BY_PREFIX = Compiled(
    lambda *, prefix: DelegatedSession.objects.filter(prefix=prefix).values_list(*_SESSION_FIELDS.values()), "prefix"
)

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Credential:
    """A credential as it was read: who it makes the caller, and when the use of its key was last noted."""

    caller: Caller
    last_used_at: int | None


def credential(token: Token, *, now: int) -> Credential:
    """What this token is good for; raises Unauthenticated, always in the same words.

    A token that finds nothing takes the way of one that finds a row: the same query, the same comparison.
    """
    by_prefix, fields = (_KEY_BY_PREFIX, _KEY_FIELDS) if token.is_key else (_SESSION_BY_PREFIX, _SESSION_FIELDS)
    row = next((_named(fields, found) for found in by_prefix.rows(prefix=token.prefix)), None)
    matches = hmac.compare_digest(row["digest"] if row else _NOBODY, token.digest)
    if row is None or not matches or not _usable(row, now):
        raise Unauthenticated
    return Credential(_caller(row), row["last_used_at"])


def live_callers(wanted: Iterable[tuple[str, str, str]], *, now: int) -> dict[tuple[str, str, str], Caller]:
    """The callers behind many ``(principal_id, credential_id, agent_id)``; those no longer good are absent.

    One query for those who came with a key, one for those who came in a delegated session.
    """
    wanted = set(wanted)
    keys = [credential_id for _, credential_id, agent_id in wanted if not agent_id]
    sessions = [credential_id for _, credential_id, agent_id in wanted if agent_id]
    rows: list[Row] = []
    if keys:
        of_keys = ApiKey.objects.filter(id__in=keys).values_list(*_KEY_FIELDS.values())
        rows += [_named(_KEY_FIELDS, row) for row in of_keys]
    if sessions:
        of_sessions = DelegatedSession.objects.filter(id__in=sessions).values_list(*_SESSION_FIELDS.values())
        rows += [_named(_SESSION_FIELDS, row) for row in of_sessions]
    callers = [_caller(row) for row in rows if _usable(row, now)]
    good = {(caller.principal_id, caller.credential_id, caller.agent_id): caller for caller in callers}
    return {who: good[who] for who in wanted & good.keys()}


def subject_of(caller: Caller) -> Subject:
    """What ``credential`` stored in the caller."""
    return cast(Subject, caller.traits["subject"])


def _named(fields: Mapping[str, str], row: Sequence[Any]) -> Row:
    return dict(zip(fields, row, strict=True))


def _usable(row: Row, now: int) -> bool:
    """Every link of the chain (API-2, IAM-5)."""
    return _key_usable(row, now) and ("session_id" not in row or _session_usable(row, now))


def _key_usable(row: Row, now: int) -> bool:
    sponsored = row["holder_kind"] != "agent" or (row["sponsor_kind"], row["sponsor_status"]) == ("user", "active")
    statuses = (row["key_status"], row["holder_status"], row["tenant_status"])
    return sponsored and statuses == ("active", "active", "active") and now < row["key_expires_at"]


def _session_usable(row: Row, now: int) -> bool:
    statuses = (row["delegation_status"], row["user_status"])
    ends_at = min(row["session_expires_at"], row["delegation_expires_at"])
    return statuses == ("active", "active") and row["session_ended_at"] is None and now < ends_at


def _caller(row: Row) -> Caller:
    subject = _session_subject(row) if "session_id" in row else _key_subject(row)
    return Caller(
        principal_id=subject.principal_id,
        kind=subject.kind,
        tenant_id=subject.tenant_id,
        agent_id=subject.agent_id,
        key_id=subject.key_id,
        session_id=subject.session_id,
        requests_per_minute=row["requests_per_minute"],
        traits={"subject": subject},
    )


def _key_subject(row: Row) -> Subject:
    return Subject(
        principal_id=row["holder_id"],
        kind=row["holder_kind"],
        name=row["holder_name"],
        roles=tuple(row["roles"]),
        groups=tuple(row["groups"]),
        node_id=row["node_id"],
        expires_at=row["key_expires_at"],
        **_shared(row),
    )


def _session_subject(row: Row) -> Subject:
    return Subject(
        principal_id=row["user_id"],
        kind=row["user_kind"],
        name=row["user_name"],
        roles=tuple(row["roles"]),
        groups=tuple(row["groups"]),
        agent_id=row["holder_id"],
        agent_name=row["holder_name"],
        delegation_id=row["delegation_id"],
        session_id=row["session_id"],
        session_scopes=tuple(row["session_scopes"]),
        confirm=tuple(row["confirm"]),
        expires_at=min(row["session_expires_at"], row["delegation_expires_at"], row["key_expires_at"]),
        **_shared(row),
    )


def _shared(row: Row) -> dict[str, Any]:
    return {
        "tenant_id": row["tenant_id"],
        "tenant_name": row["tenant_name"],
        "policy_revision": row["policy_revision"],
        "key_id": row["key_id"],
        "scopes": tuple(row["scopes"]),
        "sponsor_id": row["sponsor_id"] or "",
        "boundary": tuple(row["boundary"]),
    }
