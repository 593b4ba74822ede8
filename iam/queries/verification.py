"""Whether anybody changed the audit log (IAM-7): read from its rows, the exported files and the heads that were logged.

Read it in one snapshot: what is sealed meanwhile must not look like a difference.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from hashlib import sha256
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar

from django.db import connection

from iam.domain.audit import BATCH, Batch, Chain, Head, digest_of
from iam.models import Confirmation, Decision, DecisionBatch, UnsealedDecision
from iam.queries.audit import batch_of

T = TypeVar("T")

# What is true of the whole log and of no single batch. The sealed entries are compared in the database: there may be
# far more of them than this process can keep.
_SEALED = """
WITH sealed AS (
    SELECT b.tenant_id, b.number, e ->> 0 AS id
    FROM iam_decisionbatch AS b
    CROSS JOIN jsonb_array_elements(CASE jsonb_typeof(b.entries) WHEN 'array' THEN b.entries ELSE '[]' END) AS e
    WHERE %(tenant)s::text IS NULL OR b.tenant_id = %(tenant)s
)
"""
_ADDED = """
SELECT d.tenant_id, d.id, 'was added: no batch holds it, and it does not wait for one'
FROM iam_decision AS d
WHERE (%(tenant)s::text IS NULL OR d.tenant_id = %(tenant)s)
    AND NOT EXISTS (SELECT FROM sealed WHERE sealed.id = d.id)
    AND NOT EXISTS (
        SELECT FROM iam_unsealeddecision AS u WHERE u.decision_id = d.id AND u.tenant_id = d.tenant_id
    )
"""
_TWICE = """
SELECT min(tenant_id), id,
    'is sealed ' || count(*) || ' times, in batches ' || string_agg(number::text, ', ' ORDER BY number)
FROM sealed GROUP BY id HAVING count(*) > 1
"""
_SEALED_AND_WAITING = """
SELECT u.tenant_id, u.decision_id, 'is sealed in batch ' || sealed.number || ' and waits to be sealed all the same'
FROM iam_unsealeddecision AS u JOIN sealed ON sealed.id = u.decision_id
"""


class Verification:
    """One look at the log, of one tenant or of all.

    ``heads`` are those that were logged; ``exports`` is where the files of pruned batches are, if they are to be read
    too; ``named`` are decisions that other rows name, ``(what names it, its id)``. ``problems()`` is read once; the
    counts are right afterwards.
    """

    def __init__(
        self,
        *,
        tenant_id: str | None = None,
        heads: Iterable[Head] = (),
        exports: Path | None = None,
        named: Iterable[tuple[str, str]] = (),
    ) -> None:
        self.batches = self.entries = self.pruned = self.waiting = 0
        self._tenant_id = tenant_id
        self._exports = exports
        self._named = named
        self._heads: dict[tuple[str, int], set[str]] = defaultdict(set)
        for head in heads:
            if tenant_id in (None, head.tenant_id):
                self._heads[head.tenant_id, head.number].add(head.hash)

    def problems(self) -> Iterator[str]:
        """Everything that is not as it was written, one line each."""
        yield from self._in_batches()
        for tenant_id, number in sorted(self._heads):
            yield f"{tenant_id} batch {number}: is missing, but its head was logged"
        yield from self._in_the_tail()
        for question in (_ADDED, _TWICE, _SEALED_AND_WAITING):
            for tenant_id, id_, message in self._ask(question):
                yield f"{tenant_id} entry {id_}: {message}"
        yield from self._of_others()

    def _of_tenant(self) -> dict[str, str]:
        return {"tenant_id": self._tenant_id} if self._tenant_id is not None else {}

    def _in_batches(self) -> Iterator[str]:
        followed = Chain()
        for group in self._groups():
            found = Decision.objects.in_bulk([id_ for _, batch in group for id_, _ in batch.entries])
            for row, batch in group:
                self.batches += 1
                for problem in (
                    *followed.follow(batch, row.hash),
                    *self._logged(row),
                    *(self._pruned(row, batch, found) if row.pruned_at is not None else self._whole(batch, found)),
                ):
                    yield f"{batch.tenant_id} batch {batch.number}: {problem}"

    def _groups(self) -> Iterator[list[tuple[DecisionBatch, Batch]]]:
        """The batches in order, so many at a time that their entries are one question."""
        group, size = [], 0
        for row in DecisionBatch.objects.filter(**self._of_tenant()).order_by("tenant_id", "number", "pk").iterator(50):
            batch = batch_of(row)
            group.append((row, batch))
            size += len(batch.entries)
            if size >= BATCH:
                yield group
                group, size = [], 0
        yield group

    def _logged(self, row: DecisionBatch) -> Iterator[str]:
        for logged in sorted(self._heads.pop((row.tenant_id, row.number), set()) - {row.hash}):
            yield f"is not the one whose head {logged} was logged"

    def _whole(self, batch: Batch, found: dict[str, Decision]) -> Iterator[str]:
        self.entries += len(batch.entries)
        for id_, digest in batch.entries:
            if id_ not in found:
                yield f"entry {id_} is missing"
            elif not _as_sealed(found[id_], digest):
                yield f"entry {id_} was changed"

    def _pruned(self, row: DecisionBatch, batch: Batch, found: dict[str, Decision]) -> Iterator[str]:
        self.pruned += len(batch.entries)
        for id_, _ in batch.entries:
            if id_ in found:
                yield f"entry {id_} is back, though the batch was pruned"
        if self._exports is None:
            return
        path = self._exports / row.exported_to
        try:
            content = path.read_bytes()
        except OSError as error:
            yield f"its export cannot be read: {error}"
            return
        digests = [sha256(line).hexdigest() for line in content.splitlines()]
        if sha256(content).hexdigest() != row.export_hash:
            yield f"its export {path} was changed"
        elif digests != [row.hash, *(digest for _, digest in batch.entries)]:
            yield f"its export {path} is not what the batch holds"

    def _in_the_tail(self) -> Iterator[str]:
        rows = UnsealedDecision.objects.filter(**self._of_tenant()).order_by("at", "decision_id")
        for part in _parts(rows.iterator(BATCH)):
            found = Decision.objects.in_bulk([row.decision_id for row in part])
            for row in part:
                self.waiting += 1
                entry = found.get(row.decision_id)
                if entry is None:
                    yield f"{row.tenant_id} entry {row.decision_id}: is missing, before it was sealed"
                elif (entry.tenant_id, entry.at) != (row.tenant_id, row.at) or not _as_queued(entry, row.digest):
                    yield f"{row.tenant_id} entry {row.decision_id}: was changed, before it was sealed"

    def _ask(self, question: str) -> Iterator[tuple[Any, ...]]:
        with connection.chunked_cursor() as cursor:
            cursor.execute(_SEALED + question, {"tenant": self._tenant_id})
            while rows := cursor.fetchmany(BATCH):
                yield from rows

    def _of_others(self) -> Iterator[str]:
        """Decisions that other rows name and that are neither there nor pruned."""
        absent: dict[str, str] = {}
        for part in _parts(chain(self._named, self._confirmations())):
            there = set(Decision.objects.filter(id__in=[id_ for _, id_ in part]).values_list("id", flat=True))
            absent |= {id_: what for what, id_ in part if id_ not in there}
        if absent:
            for row in DecisionBatch.objects.exclude(pruned_at=None).iterator(50):
                for id_, _ in batch_of(row).entries:
                    absent.pop(id_, None)
        for id_, what in absent.items():
            yield f"{what}: names decision {id_}, which has no entry"

    def _confirmations(self) -> Iterator[tuple[str, str]]:
        rows = Confirmation.objects.filter(**self._of_tenant()).exclude(decision_id="")
        for id_, decision_id in rows.values_list("id", "decision_id").iterator(BATCH):
            yield f"confirmation {id_}", decision_id


def _as_sealed(entry: Decision, digest: str) -> bool:
    """Whether the entry is what its batch says; one of the release before has no digest of its own."""
    return digest_of(entry) == digest and entry.digest in ("", digest)


def _as_queued(entry: Decision, digest: str) -> bool:
    """The same for one that waits: the batch's word is the queue's, which has none for the release before."""
    return entry.digest == digest and digest in ("", digest_of(entry))


def _parts(rows: Iterable[T]) -> Iterator[list[T]]:
    left = iter(rows)
    while part := list(islice(left, BATCH)):
        yield part
