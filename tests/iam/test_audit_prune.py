"""Pruning removes whole exported batches and leaves a checkpoint; a crash anywhere is harmless (IAM-7)."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from computeplatform.clock import DAY
from computeplatform.invariants import violations
from iam.adapters import archive
from iam.models import Decision, DecisionBatch
from iam.operations import audit
from iam.operations.audit import prune
from reservations.queries import named_decisions
from tests.iam.auditing import chain, entry, problems, sealed, tamper, undone, written
from tests.support.clock import Clock
from tests.support.threads import held_elsewhere
from tests.support.world import HOUR, World, request

pytestmark = [pytest.mark.django_db, pytest.mark.clause("IAM-7", "pruning removes whole exported batches")]


class Crashed(Exception):
    """The command was killed."""


def pruned(to: Path, *, before: int = 3_000) -> list[tuple[str, int, str]]:
    return [(one.tenant_id, one.number, one.fault) for one in prune(before=before, directory=to, now=9_000)]


@pytest.fixture
def log() -> None:
    """Two old batches of ash, one of elm, and a later one of ash."""
    written(3)
    written(2, "elm")
    sealed()
    written(2, resource_id="é \U0001f600", attributes={"cost": "1.50", "n": 1.0, "big": 1e300})
    sealed()
    Decision.objects.bulk_create([entry(at=2_900), entry(at=3_000)])
    sealed()


@pytest.mark.clause("IAM-7", "pruning leaves a checkpoint")
def test_old_batches_become_files_and_the_chain_holds(log: None, tmp_path: Path) -> None:
    (named,) = Decision.objects.filter(attributes__has_key="big", at=1_000).values_list("id", flat=True)
    assert pruned(tmp_path) == [("ash", 1, ""), ("ash", 2, ""), ("elm", 1, "")]
    # Of the third one entry is too young, so all of it stays.
    assert set(Decision.objects.filter(tenant_id="ash", at__lt=4_000).values_list("at", flat=True)) == {2_900, 3_000}
    assert problems(exports=tmp_path, named=[("reservation x", named)]) == []
    assert pruned(tmp_path) == []
    written(1)
    sealed()
    assert [row.number for row in chain()] == [1, 2, 3, 4]
    assert problems(exports=tmp_path) == []

    for row in DecisionBatch.objects.exclude(pruned_at=None):
        path = tmp_path / row.exported_to
        assert (row.pruned_at, row.export_hash) == (9_000, hashlib.sha256(path.read_bytes()).hexdigest())
        assert path.stat().st_mode & 0o077 == 0
        head, *lines = path.read_bytes().splitlines()
        # Whoever has the file alone can follow the chain.
        assert hashlib.sha256(head).hexdigest() == row.hash
        assert json.loads(head)["entries"] == row.entries
        assert [[json.loads(line)["id"], hashlib.sha256(line).hexdigest()] for line in lines] == row.entries
    shown = json.loads((tmp_path / "ash.00000002.jsonl").read_text().splitlines()[1])
    assert (shown["resource_id"], shown["attributes"]) == ("é \U0001f600", {"big": 10**300, "cost": "1.50", "n": 1})


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda path: path.unlink(), "its export cannot be read: "),
        (lambda path: path.write_bytes(path.read_bytes() + b"\n"), "its export {path} was changed"),
        (lambda path: path.write_bytes(b""), "its export {path} was changed"),
    ],
)
@pytest.mark.clause("IAM-7", "verify_audit checks the exported files")
def test_a_file_that_was_changed_is_found(log: None, tmp_path: Path, change: Any, found: str) -> None:
    pruned(tmp_path)
    path = tmp_path / "ash.00000002.jsonl"
    change(path)
    assert problems() == []
    (problem,) = problems(exports=tmp_path)
    assert problem.startswith(f"ash batch 2: {found.format(path=path)}")


@pytest.mark.clause("IAM-7", "verify_audit checks the exported files")
def test_a_file_with_a_hash_to_fit_is_still_not_the_batch(log: None, tmp_path: Path) -> None:
    pruned(tmp_path)
    path = tmp_path / "ash.00000002.jsonl"
    whole = path.read_bytes()
    for content in (
        whole.replace(b'"permitted"', b'"forbidden"'),
        whole.replace(b'"number":2', b'"number":3', 1),
        b"",
    ):
        path.write_bytes(content)
        with undone():
            forged = hashlib.sha256(content).hexdigest()
            tamper(
                "UPDATE iam_decisionbatch SET export_hash = %(hash)s WHERE tenant_id = 'ash' AND number = 2",
                hash=forged,
            )
            assert problems(exports=tmp_path) == [f"ash batch 2: its export {path} is not what the batch holds"]


def test_an_entry_that_comes_back_is_found(log: None, tmp_path: Path) -> None:
    (row,) = Decision.objects.filter(tenant_id="ash", at=1_002)
    pruned(tmp_path)
    with undone():
        Decision.objects.bulk_create([row])
        assert problems()[0] == f"ash batch 1: entry {row.id} is back, though the batch was pruned"


@pytest.mark.clause("IAM-7", "a crash between export and pruning is harmless")
def test_a_crash_after_the_file_is_repeated(log: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = Decision.objects.count()

    def die(**_: Any) -> bool:
        raise Crashed

    with monkeypatch.context() as patched:
        patched.setattr(audit, "_remove", die)
        with pytest.raises(Crashed):
            pruned(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["ash.00000001.jsonl"]
    assert Decision.objects.count() == entries
    assert problems(exports=tmp_path) == []
    # And one that was cut off while it was written.
    (tmp_path / "ash.00000002.jsonl.part").write_bytes(b"half")
    assert pruned(tmp_path) == [("ash", 1, ""), ("ash", 2, ""), ("elm", 1, "")]
    assert len(list(tmp_path.iterdir())) == 3
    assert problems(exports=tmp_path) == []


def test_one_at_a_time_prunes(log: None, tmp_path: Path) -> None:
    with held_elsewhere("audit-prune"), pytest.raises(CommandError, match="already"):
        call_command("prune_audit", older_than_days=1, to=tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert len(pruned(tmp_path)) == 3


def test_what_somebody_else_has_pruned_meanwhile_is_left(log: None, tmp_path: Path) -> None:
    first = prune(before=3_000, directory=tmp_path, now=9_000)
    assert next(first).number == 1
    assert len(pruned(tmp_path)) == 2
    assert list(first) == []
    assert problems(exports=tmp_path) == []


def test_what_is_pruned_while_its_file_is_written_is_left(
    log: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep = archive.keep

    def meanwhile(path: Path, content: bytes) -> str:
        monkeypatch.setattr(archive, "keep", keep)
        assert len(pruned(tmp_path)) == 3
        return keep(path, content)

    monkeypatch.setattr(archive, "keep", meanwhile)
    assert pruned(tmp_path) == []
    assert problems(exports=tmp_path) == []


def test_no_file_of_another_batch_is_overwritten(log: None, tmp_path: Path) -> None:
    path = tmp_path / "ash.00000001.jsonl"
    path.write_text("of another installation")
    fault = f"{path} is there already, with something else in it"
    assert pruned(tmp_path) == [("ash", 1, fault), ("ash", 2, ""), ("elm", 1, "")]
    assert path.read_text() == "of another installation"
    assert chain()[0].pruned_at is None
    assert problems() == []


@pytest.mark.parametrize(
    ("statement", "fault"),
    [
        ("UPDATE iam_decision SET outcome = 'deny' WHERE id = %(id)s", "entry {id} was changed"),
        ("DELETE FROM iam_decision WHERE id = %(id)s", "entry {id} is missing"),
        (
            "UPDATE iam_decisionbatch SET last_at = 1 WHERE tenant_id = 'ash' AND number = 1",
            "its hash does not fit what it holds",
        ),
    ],
)
@pytest.mark.clause("IAM-7", "a batch that was changed is not pruned away")
def test_evidence_stays(log: None, tmp_path: Path, statement: str, fault: str) -> None:
    id_ = chain()[0].entries[1][0]
    with undone():
        tamper(statement, id=id_)
        before = problems()
        assert pruned(tmp_path) == [("ash", 1, fault.format(id=id_)), ("ash", 2, ""), ("elm", 1, "")]
        assert before
        assert problems(exports=tmp_path) == before


@pytest.mark.clause("IAM-7", "manage.py prune_audit")
def test_the_command(world: World, clock: Clock, capsys: Any, tmp_path: Path) -> None:
    made = world.ann.api("reservations/create", **request(world.offered_pool())).data["reservation"]["id"]
    sealed(now=clock.now)
    count = Decision.objects.count()
    to = tmp_path / "deep" / "archive"
    clock.advance(hours=47)
    call_command("prune_audit", older_than_days=2, to=to)
    assert capsys.readouterr().out == f"0 batches with 0 entries were exported to {to} and pruned.\n"
    clock.set(clock.now + DAY + HOUR)
    call_command("prune_audit", older_than_days=2, to=to)
    assert capsys.readouterr().out == f"3 batches with {count} entries were exported to {to} and pruned.\n"
    assert Decision.objects.count() == 0
    # The reservation goes on naming its decision, and nothing finds fault with that.
    named = [(f"reservation {id_}", decision_id) for id_, decision_id in named_decisions("acme")]
    assert [what for what, _ in named] == [f"reservation {made}"]
    assert problems(named=named, exports=to) == []
    assert violations() == []


def test_the_command_says_what_it_left(capsys: Any, tmp_path: Path) -> None:
    written(1)
    sealed()
    (tmp_path / "ash.00000001.jsonl").write_text("x")
    with pytest.raises(SystemExit) as ended:
        call_command("prune_audit", older_than_days=1, to=tmp_path)
    assert ended.value.code == 1
    told = capsys.readouterr()
    assert told.err.startswith("ash batch 1 was left: ")
    with pytest.raises(CommandError, match="at least 1"):
        call_command("prune_audit", older_than_days=0, to=tmp_path)
    with pytest.raises(CommandError, match="0 batches were exported"):
        call_command("prune_audit", older_than_days=1, to=tmp_path / "ash.00000001.jsonl")
