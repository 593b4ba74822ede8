"""What a credential amounts to at this moment: one query, everything that authentication and decisions need."""

import hmac
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from django.db.models import QuerySet

from computeplatform.api.calls import Caller
from computeplatform.db.compiled import Compiled
from computeplatform.errors import Unauthenticated
from iam.contracts import Subject
from iam.models import ApiKey

# Compared with when no row was found, so that an unknown prefix costs what a known one does.
_NOBODY = "0" * 64

_FIELDS = {
    "key_id": "id",
    "digest": "token_hash",
    "key_status": "status",
    "key_expires_at": "expires_at",
    "last_used_at": "last_used_at",
    "scopes": "scopes",
    "principal_id": "principal_id",
    "kind": "principal__kind",
    "name": "principal__name",
    "roles": "principal__roles",
    "groups": "principal__groups",
    "principal_status": "principal__status",
    "node_id": "principal__node_id",
    "boundary": "principal__boundary",
    "sponsor_id": "principal__sponsor_id",
    "sponsor_kind": "principal__sponsor__kind",
    "sponsor_status": "principal__sponsor__status",
    "tenant_id": "tenant_id",
    "tenant_name": "tenant__name",
    "tenant_status": "tenant__status",
    "policy_revision": "tenant__policy_revision",
}


# Asked at every call.
_BY_PREFIX = Compiled(lambda *, prefix: ApiKey.objects.filter(prefix=prefix).values_list(*_FIELDS.values()), "prefix")


@dataclass(frozen=True)
class Credential:
    """A key as it was read: who it makes the caller, and when its use was last noted."""

    caller: Caller
    last_used_at: int | None


def credential(prefix: str, digest: str, *, now: int) -> Credential:
    """The credential whose token has this prefix and hash; raises Unauthenticated, always in the same words."""
    row = next((_named(found) for found in _BY_PREFIX.rows(prefix=prefix)), None)
    matches = hmac.compare_digest(row["digest"] if row else _NOBODY, digest)
    if row is None or not matches or not _usable(row, now):
        raise Unauthenticated
    return Credential(_caller(row), row["last_used_at"])


def live_caller(principal_id: str, key_id: str, agent_id: str = "", *, now: int) -> Caller:
    """The caller that a stored request came from, as it stands at ``now``.

    Raises Unauthenticated when key, principal, sponsor or tenant is no longer good.
    """
    wanted = (principal_id, key_id, agent_id)
    found = live_callers([wanted], now=now).get(wanted)
    if found is None:
        raise Unauthenticated
    return found


def live_callers(wanted: Iterable[tuple[str, str, str]], *, now: int) -> dict[tuple[str, str, str], Caller]:
    """The callers behind many ``(principal_id, key_id, agent_id)``, in one query; those no longer good are absent."""
    wanted = set(wanted)
    rows = _rows(ApiKey.objects.filter(id__in={key_id for _, key_id, _ in wanted}))
    good = {(row["principal_id"], row["key_id"], ""): _caller(row) for row in rows if _usable(row, now)}
    return {key: caller for key, caller in good.items() if key in wanted}


def subject_of(caller: Caller) -> Subject:
    """What ``credential`` stored in the caller."""
    return cast(Subject, caller.traits["subject"])


def _rows(keys: QuerySet[ApiKey]) -> list[dict[str, Any]]:
    return [_named(row) for row in keys.values_list(*_FIELDS.values())]


def _named(row: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(_FIELDS, row, strict=True))


def _usable(row: dict[str, Any], now: int) -> bool:
    sponsored = row["kind"] != "agent" or (row["sponsor_kind"] == "user" and row["sponsor_status"] == "active")
    statuses = (row["key_status"], row["principal_status"], row["tenant_status"])
    return sponsored and statuses == ("active", "active", "active") and now < row["key_expires_at"]


def _caller(row: dict[str, Any]) -> Caller:
    subject = Subject(
        principal_id=row["principal_id"],
        kind=row["kind"],
        tenant_id=row["tenant_id"],
        roles=tuple(row["roles"]),
        groups=tuple(row["groups"]),
        node_id=row["node_id"],
        sponsor_id=row["sponsor_id"] or "",
        boundary=tuple(row["boundary"]),
        key_id=row["key_id"],
        scopes=tuple(row["scopes"]),
        policy_revision=row["policy_revision"],
        name=row["name"],
        tenant_name=row["tenant_name"],
        key_expires_at=row["key_expires_at"],
    )
    return Caller(
        principal_id=subject.principal_id,
        kind=subject.kind,
        tenant_id=subject.tenant_id,
        key_id=subject.key_id,
        traits={"subject": subject},
    )
