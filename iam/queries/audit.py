"""Reading the audit log's batches, and what is exported of them (IAM-7)."""

from collections.abc import Iterator
from typing import Any

from iam.domain.audit import Batch, Sealed, canonical, sha256, text_of
from iam.errors import BatchNotWhole
from iam.models import Decision, DecisionBatch


def batch_of(row: DecisionBatch) -> Batch:
    """The batch that a row holds; what is no entry there is kept as one, so that the hash shows it."""
    entries = row.entries if isinstance(row.entries, list) else [row.entries]
    return Batch(
        tenant_id=row.tenant_id,
        number=row.number,
        previous=row.previous,
        first_at=row.first_at,
        last_at=row.last_at,
        sealed_at=row.sealed_at,
        entries=tuple(_entry(one) for one in entries),
    )


def _entry(stored: Any) -> Sealed:
    match stored:
        case [str(id_), str(digest)]:
            return id_, digest
    return canonical(stored), ""


def whole_batches(*, before: int) -> Iterator[DecisionBatch]:
    """The batches that still have their entries, all of them older than ``before``; in order."""
    rows = DecisionBatch.objects.filter(pruned_at=None, last_at__lt=before).order_by("tenant_id", "number")
    for pk in list(rows.values_list("pk", flat=True)):
        yield from DecisionBatch.objects.filter(pk=pk, pruned_at=None)


def export_of(row: DecisionBatch) -> tuple[str, bytes]:
    """Name and content of a batch's file: its head, then each entry in order, one line of canonical JSON each.

    So the SHA-256 of a line is the entry's digest, and that of the first line the batch's hash. Raises BatchNotWhole.
    """
    batch = batch_of(row)
    if batch.hash != row.hash:
        raise BatchNotWhole("its hash does not fit what it holds")
    found = Decision.objects.in_bulk([id_ for id_, _ in batch.entries])
    lines = [batch.head]
    for id_, digest in batch.entries:
        if id_ not in found:
            raise BatchNotWhole(f"entry {id_} is missing")
        lines.append(text_of(found[id_]))
        if sha256(lines[-1]) != digest:
            raise BatchNotWhole(f"entry {id_} was changed")
    return file_of(batch), "".join(f"{line}\n" for line in lines).encode()


def file_of(batch: Batch) -> str:
    """The name of the file that a batch is exported to."""
    return f"{batch.tenant_id}.{batch.number:08}.jsonl"
