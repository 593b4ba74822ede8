"""What the tests of the audit log share: entries, and looking at the chain."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection, transaction

from computeplatform.ids import new_id
from iam.domain.audit import digest_of
from iam.models import Decision, DecisionBatch
from iam.operations.audit import seal
from iam.queries.verification import Verification

# A tenant that nobody else writes entries of.
ASH = "ash"


def entry(tenant_id: str = ASH, *, at: int = 1_000, **changed: Any) -> Decision:
    """An entry, not written yet."""
    shown = {
        "id": new_id("dec"),
        "principal_id": "usr_1",
        "principal_kind": "user",
        "key_id": "key_1",
        "subject": {"roles": ["reserver"], "scopes": ["*"]},
        "action": "compute:reservations:create",
        "resource_type": "compute-reservation",
        "resource_id": "res_1",
        "attributes": {"gpuCount": 8, "estimatedCost": "17.6000", "spot": False},
        "context": {"time": at, "delegated": False, "agentId": ""},
        "outcome": "allow",
        "reason": "permitted",
        "policies": [{"policy": "builtin", "statement": "reserver"}],
        "errors": [],
        "request_id": "req-1",
    }
    row = Decision(tenant_id=tenant_id, at=at, **(shown | changed))
    row.digest = digest_of(row)
    return row


def written(count: int, tenant_id: str = ASH, **of: Any) -> list[Decision]:
    """Entries in the log, a millisecond apart."""
    return Decision.objects.bulk_create(entry(tenant_id, at=1_000 + n, **of) for n in range(count))


def sealed(now: int = 5_000, limit: int = 100_000) -> None:
    """Everything that waits is sealed."""
    while seal(now=now, limit=limit):
        pass


def chain(tenant_id: str = ASH) -> list[DecisionBatch]:
    """A tenant's batches in order."""
    return list(DecisionBatch.objects.filter(tenant_id=tenant_id).order_by("number"))


def problems(**of: Any) -> list[str]:
    """What verify_audit finds."""
    return list(Verification(**of).problems())


@contextmanager
def undone() -> Iterator[None]:
    """What is done in here is undone, so that the world's own checks find everything as it was."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def tamper(*statements: str, **values: Any) -> None:
    """What somebody does who owns the database."""
    with connection.cursor() as cursor:
        for table in ("iam_decision", "iam_decisionbatch", "iam_unsealeddecision"):
            cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
        for statement in statements:
            cursor.execute(statement, values)
            assert cursor.rowcount != 0, statement
        for table in ("iam_decision", "iam_decisionbatch", "iam_unsealeddecision"):
            cursor.execute(f"ALTER TABLE {table} ENABLE TRIGGER USER, DISABLE TRIGGER {table}_truncate")
