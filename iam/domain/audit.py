"""The audit chain's arithmetic: the text of an entry, its digest, the hash of a batch (IAM-7, docs/adr/0018)."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

# Every column of an entry but the digest itself, in the order of its export.
CONTENT = (
    "id",
    "tenant_id",
    "at",
    "principal_id",
    "principal_kind",
    "agent_id",
    "delegation_id",
    "key_id",
    "subject",
    "action",
    "resource_type",
    "resource_id",
    "attributes",
    "context",
    "outcome",
    "reason",
    "policies",
    "errors",
    "request_id",
)

# The most entries in one batch: an export file of about 1 MiB, and what one look of the verifier reads.
BATCH = 1_000

# An entry as a batch holds it: its id and its digest.
Sealed = tuple[str, str]


def canonical(value: Any) -> str:
    """JSON in the one form that does not change when PostgreSQL's ``jsonb`` has kept it.

    ``jsonb`` forgets the order of keys and how a number was written; 1.0, 1 and 1e0 are one number here. ASCII alone.
    Raises TypeError for what is no JSON (a Decimal, say: decimals are stored as text).
    """
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(Decimal(repr(value)))  # not int(value): 1e300 is stored as 1 and 300 zeros
    if isinstance(value, Mapping):
        return {_key(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise TypeError(f"{key!r} is no key of a JSON object")
    return key


def text_of(entry: Any) -> str:
    """The canonical text of an entry, from whatever has its columns as attributes."""
    return canonical({name: getattr(entry, name) for name in CONTENT})


def sha256(text: str) -> str:
    """In hexadecimal, of the text's bytes."""
    return hashlib.sha256(text.encode()).hexdigest()


def digest_of(entry: Any) -> str:
    """The digest of an entry: the same when it is written and whenever it is read."""
    return sha256(text_of(entry))


@dataclass(frozen=True)
class Batch:
    """A sealed batch; ``previous`` is the hash of the batch before it, ``""`` for a tenant's first."""

    tenant_id: str
    number: int
    previous: str
    first_at: int
    last_at: int
    sealed_at: int
    entries: tuple[Sealed, ...]

    @property
    def hash(self) -> str:
        """Over everything that the batch is: it names its place, its predecessor and its entries in their order."""
        return sha256(self.head)

    @property
    def head(self) -> str:
        """The text under the hash, and the first line of the batch's export."""
        return canonical(
            {
                "tenantId": self.tenant_id,
                "number": self.number,
                "previous": self.previous,
                "firstAt": self.first_at,
                "lastAt": self.last_at,
                "sealedAt": self.sealed_at,
                "entries": self.entries,
            }
        )


@dataclass(frozen=True, order=True)
class Waiting:
    """An entry that waits to be sealed, in the order in which entries stand in a batch."""

    at: int
    id: str
    digest: str


def next_batches(
    tenant_id: str, number: int, previous: str, waiting: Sequence[Waiting], *, sealed_at: int
) -> Iterator[Batch]:
    """The batches that follow batch ``number`` with hash ``previous`` (0 and ``""`` where there is none yet)."""
    ordered = sorted(waiting)
    for start in range(0, len(ordered), BATCH):
        part = ordered[start : start + BATCH]
        number += 1
        batch = Batch(
            tenant_id=tenant_id,
            number=number,
            previous=previous,
            first_at=part[0].at,
            last_at=part[-1].at,
            sealed_at=sealed_at,
            entries=tuple((one.id, one.digest) for one in part),
        )
        previous = batch.hash
        yield batch


@dataclass(frozen=True)
class Head:
    """A sealed batch as the log outside the database names it."""

    tenant_id: str
    number: int
    hash: str


def read_head(line: str) -> Head | None:
    """The head that a line of the log names; None for every other line, whatever it is.

    What stands before the JSON object (a time, a container's name) is passed over.
    """
    try:
        read = json.loads(line[max(line.find("{"), 0) :])
    except ValueError:
        return None
    if not isinstance(read, dict) or read.get("event") != "audit_sealed":
        return None
    named = (read.get("tenant"), read.get("number"), read.get("hash"))
    match named:
        case (str(tenant_id), int(number), str(hash_)):
            return Head(tenant_id, number, hash_)
    return None


class Chain:
    """Follows the batches of all tenants, given in order of tenant and number, and says where they do not follow."""

    def __init__(self) -> None:
        self._tenant_id = ""
        self._number = 0
        self._hash = ""

    def follow(self, batch: Batch, stored_hash: str) -> Iterator[str]:
        """What is wrong with this batch and its place."""
        if batch.tenant_id != self._tenant_id:
            self._tenant_id, self._number, self._hash = batch.tenant_id, 0, ""
        expected = self._number + 1
        if batch.number < expected:
            yield "fork: there are several batches with this number"
        elif batch.number > expected:
            absent = str(expected) if batch.number == expected + 1 else f"{expected} to {batch.number - 1}"
            yield f"batch {absent} before it is missing"
        elif batch.previous != self._hash:
            yield "does not continue the batch before it"
        if batch.hash != stored_hash:
            yield "was changed: its hash does not fit what it holds"
        self._number, self._hash = batch.number, stored_hash
