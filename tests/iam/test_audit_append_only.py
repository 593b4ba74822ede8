"""The database itself keeps the audit log append-only, whoever asks (IAM-7)."""

from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from iam.migrations import _append_only
from iam.models import Decision, DecisionBatch, UnsealedDecision
from tests.iam.auditing import chain, problems, sealed, tamper, undone, written

pytestmark = [pytest.mark.django_db, pytest.mark.clause("IAM-7", "append-only by the database itself")]

# What a release that knows no digests writes.
BEFORE = """
INSERT INTO iam_decision (id, tenant_id, at, principal_id, principal_kind, agent_id, delegation_id, key_id, subject,
    action, resource_type, resource_id, attributes, context, outcome, reason, policies, errors, request_id)
SELECT 'dec_old' || n, 'ash', n, 'usr_1', 'user', '', '', 'key_1', '{}', 'iam:keys:create', 'iam-tenant', 'ash',
    '{"b": 1.0, "a": "é"}', '{}', 'allow', 'permitted', '[]', '[]', 'req' FROM generate_series(1, %s) AS n
"""


def run(statement: str, *values: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, values or None)


def refused(statement: str, *values: Any) -> None:
    with pytest.raises(IntegrityError, match="is refused"), transaction.atomic():
        run(statement, *values)


def contents() -> list[Any]:
    models = (Decision, DecisionBatch, UnsealedDecision)
    return [list(model.objects.order_by("pk").values()) for model in models]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE iam_decision SET outcome = 'deny'",
        "UPDATE iam_decision SET digest = ''",
        "INSERT INTO iam_decision SELECT * FROM iam_decision ON CONFLICT (id) DO UPDATE SET reason = 'x'",
        "DELETE FROM iam_decision",
        "DELETE FROM iam_decision WHERE id IN (SELECT decision_id FROM iam_unsealeddecision)",
        "UPDATE iam_decisionbatch SET hash = ''",
        "UPDATE iam_decisionbatch SET entries = '[]'",
        "UPDATE iam_decisionbatch SET previous = 'x', exported_to = 'x'",
        "UPDATE iam_decisionbatch SET exported_to = 'x', pruned_at = 1",
        "DELETE FROM iam_decisionbatch",
        "UPDATE iam_unsealeddecision SET digest = ''",
    ],
)
def test_nothing_is_changed_or_removed(statement: str) -> None:
    written(3)
    sealed()
    written(2)
    before = contents()
    refused(statement)
    assert contents() == before


def test_no_table_is_emptied() -> None:
    """The only test with these triggers: elsewhere the end of a test empties the tables."""
    written(1)
    for table in ("iam_decision", "iam_decisionbatch", "iam_unsealeddecision"):
        run(f"ALTER TABLE {table} ENABLE TRIGGER {table}_truncate")
        refused(f"TRUNCATE {table}")
    refused("TRUNCATE iam_decision, iam_decisionbatch, iam_unsealeddecision CASCADE")
    assert Decision.objects.filter(tenant_id="ash").exists()


@pytest.mark.clause("IAM-7", "only whole exported batches are removed")
def test_only_entries_of_the_named_and_exported_batch_can_be_removed() -> None:
    mine = written(2)
    sealed()
    later = written(1, resource_id="res_2")
    sealed(now=6_000)
    first, second = chain()
    ids = [row.id for row in mine]

    run("SELECT set_config('compute.pruned_batch', %s, true)", str(first.pk))
    refused("DELETE FROM iam_decision WHERE id = ANY(%s)", ids)  # not exported yet
    DecisionBatch.objects.filter(pk=first.pk).update(exported_to="a", export_hash="b")
    refused("UPDATE iam_decisionbatch SET export_hash = 'c' WHERE id = %s", first.pk)
    refused("UPDATE iam_decisionbatch SET exported_to = '' WHERE id = %s", first.pk)
    refused("DELETE FROM iam_decision WHERE id = ANY(%s)", [*ids, later[0].id])  # one that another batch holds
    refused("UPDATE iam_decisionbatch SET pruned_at = 1 WHERE id = %s", first.pk)  # its entries are there still
    run("SELECT set_config('compute.pruned_batch', %s, true)", str(second.pk))
    refused("DELETE FROM iam_decision WHERE id = ANY(%s)", ids)

    run("SELECT set_config('compute.pruned_batch', %s, true)", str(first.pk))
    run("DELETE FROM iam_decision WHERE id = ANY(%s)", ids)
    DecisionBatch.objects.filter(pk=first.pk).update(pruned_at=7_000)
    for values in ("pruned_at = NULL", "pruned_at = 8", "exported_to = 'z'"):
        refused(f"UPDATE iam_decisionbatch SET {values} WHERE id = %s", first.pk)
    with undone():
        # What somebody writes under an old name cannot be removed as if it were the old entry.
        Decision.objects.bulk_create([mine[0]])
        refused("DELETE FROM iam_decision WHERE id = %s", mine[0].id)
    assert problems() == []


@pytest.mark.clause("IAM-7", "only whole exported batches are removed")
def test_no_batch_of_another_tenant_lets_an_entry_go() -> None:
    (row,) = written(1)
    sealed()
    (batch,) = chain()
    with undone():
        forged = DecisionBatch.objects.create(
            tenant_id="elm",
            number=1,
            entries=batch.entries,
            first_at=batch.first_at,
            last_at=batch.last_at,
            previous="",
            hash="x",
            sealed_at=batch.sealed_at,
            exported_to="a",
            export_hash="b",
        )
        run("SELECT set_config('compute.pruned_batch', %s, true)", str(forged.pk))
        refused("DELETE FROM iam_decision WHERE id = %s", row.id)


def test_what_an_insert_writes_waits_to_be_sealed_in_one_statement() -> None:
    rows = written(3)
    waiting = UnsealedDecision.objects.filter(decision_id__in=[row.id for row in rows]).order_by("at")
    assert list(waiting.values_list("decision_id", "tenant_id", "at", "digest")) == [
        (row.id, "ash", row.at, row.digest) for row in rows
    ]
    with transaction.atomic():
        written(1)
        transaction.set_rollback(True)
    assert UnsealedDecision.objects.filter(at__lt=2_000).count() == 3


@pytest.mark.clause("IAM-7", "entries of the release before are sealed too")
def test_entries_without_a_digest_get_one_when_they_are_sealed() -> None:
    run(BEFORE, 2)
    # Rows that were there before the migration ran.
    tamper("DELETE FROM iam_unsealeddecision WHERE decision_id LIKE 'dec_old%%'")
    assert any("dec_old1: was added" in problem for problem in problems())
    run(_append_only.QUEUE_EXISTING)
    run(_append_only.QUEUE_EXISTING)
    assert problems() == []
    sealed()
    (batch,) = chain()
    digests = dict(batch.entries)
    assert len({digests["dec_old1"], digests["dec_old2"]} - {""}) == 2
    assert Decision.objects.get(id="dec_old1").digest == ""
    # Repeated when they are sealed, it queues none of them again.
    run(_append_only.QUEUE_EXISTING)
    assert problems() == []
    tamper("UPDATE iam_decision SET outcome = 'deny' WHERE id = 'dec_old1'")
    assert problems() == ["ash batch 1: entry dec_old1 was changed"]


def test_the_protection_can_be_taken_back_and_given_again() -> None:
    with transaction.atomic():
        run(_append_only.UNPROTECT)
        run(_append_only.QUEUE_NOTHING)
        written(1)
        assert not UnsealedDecision.objects.filter(tenant_id="ash", at=1_000).exists()
        run("UPDATE iam_decision SET reason = 'x' WHERE at = 1000")
        run(_append_only.QUEUE_INSERTED)
        run(_append_only.PROTECT)
        refused("UPDATE iam_decision SET reason = 'y' WHERE at = 1000")
        transaction.set_rollback(True)
