"""The audit log's upkeep: sealing entries into batches that chain, and pruning what was exported (IAM-7)."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import structlog
from django.db import connection

from computeplatform.db.locks import in_line, try_advisory_lock
from computeplatform.db.retry import in_transaction
from iam.adapters import archive
from iam.domain.audit import Batch, Waiting, digest_of, next_batches
from iam.errors import BatchNotWhole, PruneRunning
from iam.locks import lock_whole_batch
from iam.models import Decision, DecisionBatch
from iam.queries.audit import batch_of, export_of, whole_batches

log = structlog.get_logger("iam.audit")

_TAKE = """
WITH work AS (SELECT decision_id FROM iam_unsealeddecision ORDER BY at, decision_id LIMIT %s)
DELETE FROM iam_unsealeddecision AS u USING work WHERE u.decision_id = work.decision_id
RETURNING u.tenant_id, u.at, u.decision_id, u.digest
"""

_LAST = """
SELECT t.tenant_id, b.number, b.hash FROM unnest(%s::text[]) AS t (tenant_id)
CROSS JOIN LATERAL (
    SELECT number, hash FROM iam_decisionbatch WHERE tenant_id = t.tenant_id ORDER BY number DESC LIMIT 1
) AS b
"""


def seal(*, now: int, limit: int) -> int:
    """Seal up to ``limit`` entries, the oldest first, and log the new heads; returns how many it was.

    One holder at a time does it; entries that are not committed yet are sealed later. The lines of the log are what
    stands outside the database: whoever rewrites the chain there does not rewrite them.
    """
    batches = _seal(now=now, limit=limit)
    for batch in batches:
        log.info("audit_sealed", tenant=batch.tenant_id, number=batch.number, hash=batch.hash)
    return sum(len(batch.entries) for batch in batches)


@in_transaction
def _seal(*, now: int, limit: int) -> list[Batch]:
    if not try_advisory_lock("audit-sealer"):
        return []
    work = _take(limit)
    if not work:
        return []
    with connection.cursor() as cursor:
        cursor.execute(_LAST, [list(work)])
        last = {tenant_id: (number, hash_) for tenant_id, number, hash_ in cursor.fetchall()}
    batches = [
        batch
        for tenant_id, waiting in sorted(work.items())
        for batch in next_batches(tenant_id, *last.get(tenant_id, (0, "")), waiting, sealed_at=now)
    ]
    DecisionBatch.objects.bulk_create(
        DecisionBatch(
            tenant_id=batch.tenant_id,
            number=batch.number,
            entries=batch.entries,
            first_at=batch.first_at,
            last_at=batch.last_at,
            previous=batch.previous,
            hash=batch.hash,
            sealed_at=batch.sealed_at,
        )
        for batch in batches
    )
    return batches


def _take(limit: int) -> dict[str, list[Waiting]]:
    """The next entries of the queue by tenant, taken out of it."""
    with connection.cursor() as cursor:
        cursor.execute(_TAKE, [limit])
        rows = cursor.fetchall()
    # Entries of the release before: nobody has taken their digest yet.
    bare = [id_ for _, _, id_, digest in rows if not digest]
    digests = {row.id: digest_of(row) for row in Decision.objects.filter(id__in=bare)} if bare else {}
    work: dict[str, list[Waiting]] = defaultdict(list)
    for tenant_id, at, id_, digest in rows:
        work[tenant_id].append(Waiting(at, id_, digest or digests.get(id_, "")))
    return work


@dataclass(frozen=True)
class Pruned:
    """What became of one batch: its file and how many entries it has now instead, or why it was left as it is."""

    tenant_id: str
    number: int
    file: str = ""
    entries: int = 0
    fault: str = ""


def prune(*, before: int, directory: Path, now: int) -> Iterator[Pruned]:
    """Write each sealed batch whose last entry is older than ``before`` to a file, then remove its entries.

    The file is on the disk before anything is removed; what a crash leaves between the two is found and used by the
    next run. A batch that is not whole any more is left: what is there of it is evidence. One at a time, or two would
    write into one file. Raises PruneRunning, OSError.
    """
    with in_line("audit-prune") as line:
        if line is None:
            raise PruneRunning
        yield from _prune(before=before, directory=directory, now=now)


def _prune(*, before: int, directory: Path, now: int) -> Iterator[Pruned]:
    for row in whole_batches(before=before):
        batch = batch_of(row)
        try:
            name, content = export_of(row)
            digest = archive.keep(directory / name, content)
        except (BatchNotWhole, FileExistsError) as fault:
            # Unless it is whole no more because somebody else has pruned it while it was read.
            if DecisionBatch.objects.filter(pk=row.pk, pruned_at=None).exists():
                yield Pruned(batch.tenant_id, batch.number, fault=str(fault))
            continue
        if _remove(batch_id=row.pk, ids=[id_ for id_, _ in batch.entries], file=name, digest=digest, now=now):
            yield Pruned(batch.tenant_id, batch.number, name, len(batch.entries))


@in_transaction
def _remove(*, batch_id: int, ids: list[str], file: str, digest: str, now: int) -> bool:
    """Remove the entries of an exported batch; False if somebody else has done it meanwhile."""
    if not lock_whole_batch(batch_id):
        return False
    batch = DecisionBatch.objects.filter(pk=batch_id)
    batch.update(exported_to=file, export_hash=digest)
    _name_batch(str(batch_id))
    Decision.objects.filter(id__in=ids).delete()
    _name_batch("")
    batch.update(pruned_at=now)
    return True


def _name_batch(batch_id: str) -> None:
    """Tell the database, for this transaction, whose entries are removed; it refuses every other removal."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('compute.pruned_batch', %s, true)", [batch_id])
