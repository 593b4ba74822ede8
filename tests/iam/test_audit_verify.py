"""verify_audit names whatever was changed, removed, reordered or added (IAM-7)."""

import json
from typing import Any

import pytest
from django.core.management import call_command

from iam.domain.audit import BATCH, Head, read_head
from iam.models import Confirmation, Decision, DecisionBatch, UnsealedDecision
from iam.queries.audit import batch_of
from tests.iam.auditing import chain, entry, problems, sealed, tamper, undone, written
from tests.support.confirming import Asking
from tests.support.world import World, request

pytestmark = pytest.mark.django_db


@pytest.fixture
def log() -> dict[str, Any]:
    """Three batches of ash and one of elm, and one entry of ash that is not sealed: ids by name."""
    named: dict[str, Any] = {}
    for name in ("first", "second", "third"):
        rows = written(3, resource_id=name)
        named |= {f"{name}{n}": row.id for n, row in enumerate(rows)}
        if name == "first":
            written(1, "elm")
        sealed()
    named["tail"] = written(1, resource_id="tail")[0].id
    assert problems() == []
    return named


def heads() -> list[Head]:
    """What was logged so far."""
    return [Head(row.tenant_id, row.number, row.hash) for row in DecisionBatch.objects.all()]


CHANGED = "UPDATE iam_decision SET {} WHERE id = %(second1)s"
BATCH_2 = "tenant_id = 'ash' AND number = 2"
SWAPPED = """
UPDATE iam_decisionbatch AS b SET entries = o.entries, hash = o.hash FROM iam_decisionbatch AS o
WHERE b.tenant_id = 'ash' AND o.tenant_id = 'ash' AND (b.number, o.number) IN ((1, 2), (2, 1))
"""
FORK = """
ALTER TABLE iam_decisionbatch DROP CONSTRAINT decision_batch_number_unique;
INSERT INTO iam_decisionbatch (tenant_id, number, entries, first_at, last_at, previous, hash, sealed_at, exported_to,
    export_hash) SELECT tenant_id, number, '[]', first_at, last_at, previous, hash, sealed_at, '', ''
FROM iam_decisionbatch WHERE tenant_id = 'ash' AND number = 2
"""
COPIED = """
INSERT INTO iam_decision SELECT (d).* FROM (
    SELECT jsonb_populate_record(e, '{"id": "dec_new"}') AS d FROM iam_decision AS e WHERE id = %(second1)s
) AS copied
"""


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        *[
            pytest.param(CHANGED.format(values), ["ash batch 2: entry {second1} was changed"], id=values)
            for values in (
                "outcome = 'deny'",
                "at = at + 1",
                "principal_id = 'usr_2'",
                "tenant_id = 'elm'",
                "attributes = '{}'",
                "attributes = jsonb_set(attributes, '{gpuCount}', '9')",
                "attributes = jsonb_set(attributes, '{estimatedCost}', '\"17.60\"')",
                'context = context || \'{"agentId": "agt_1"}\'',
                "policies = policies || policies",
                "request_id = ''",
                "digest = repeat('0', 64)",
            )
        ],
        ("DELETE FROM iam_decision WHERE id = %(second1)s", ["ash batch 2: entry {second1} is missing"]),
        (COPIED, ["ash entry dec_new: was added: no batch holds it, and it does not wait for one"]),
        (
            "UPDATE iam_decision SET id = 'dec_new' WHERE id = %(second1)s",
            [
                "ash batch 2: entry {second1} is missing",
                "ash entry dec_new: was added: no batch holds it, and it does not wait for one",
            ],
        ),
        (
            f"UPDATE iam_decisionbatch SET sealed_at = 1 WHERE {BATCH_2}",
            ["ash batch 2: was changed: its hash does not fit what it holds"],
        ),
        (
            f"UPDATE iam_decisionbatch SET hash = repeat('0', 64) WHERE {BATCH_2}",
            [
                "ash batch 2: was changed: its hash does not fit what it holds",
                "ash batch 3: does not continue the batch before it",
            ],
        ),
        (
            # Reordered: the same entries in another order.
            f"UPDATE iam_decisionbatch SET entries = entries - 0 || jsonb_build_array(entries -> 0) WHERE {BATCH_2}",
            ["ash batch 2: was changed: its hash does not fit what it holds"],
        ),
        *[
            pytest.param(
                f"UPDATE iam_decisionbatch SET entries = {{}} WHERE {BATCH_2}".format(values),
                ["ash batch 2: was changed: its hash does not fit what it holds", *found],
                id=values,
            )
            for values, found in (
                ("entries || '[[\"x\"]]'::jsonb", ['ash batch 2: entry ["x"] is missing']),
                ("entries || '[null]'::jsonb", ["ash batch 2: entry null is missing"]),
            )
        ],
        (
            SWAPPED,
            [
                "ash batch 1: was changed: its hash does not fit what it holds",
                "ash batch 2: does not continue the batch before it",
                "ash batch 2: was changed: its hash does not fit what it holds",
                "ash batch 3: does not continue the batch before it",
            ],
        ),
        (
            FORK,
            [
                "ash batch 2: fork: there are several batches with this number",
                "ash batch 2: was changed: its hash does not fit what it holds",
            ],
        ),
        (
            "DELETE FROM iam_unsealeddecision WHERE decision_id = %(tail)s",
            ["ash entry {tail}: was added: no batch holds it, and it does not wait for one"],
        ),
        (
            "DELETE FROM iam_decision WHERE id = %(tail)s",
            ["ash entry {tail}: is missing, before it was sealed"],
        ),
        (
            "UPDATE iam_decision SET outcome = 'deny' WHERE id = %(tail)s",
            ["ash entry {tail}: was changed, before it was sealed"],
        ),
        (
            "UPDATE iam_decision SET digest = '' WHERE id = %(tail)s",
            ["ash entry {tail}: was changed, before it was sealed"],
        ),
        (
            "UPDATE iam_unsealeddecision SET digest = '' WHERE decision_id = %(tail)s",
            ["ash entry {tail}: was changed, before it was sealed"],
        ),
        (
            "UPDATE iam_unsealeddecision SET at = at + 1 WHERE decision_id = %(tail)s",
            ["ash entry {tail}: was changed, before it was sealed"],
        ),
        (
            "INSERT INTO iam_unsealeddecision SELECT id, tenant_id, at, digest FROM iam_decision WHERE id = %(first0)s",
            ["ash entry {first0}: is sealed in batch 1 and waits to be sealed all the same"],
        ),
    ],
)
@pytest.mark.clause("IAM-7", "verify_audit finds a changed, missing, reordered or added entry")
@pytest.mark.clause("IAM-7", "verify_audit: the unsealed tail")
def test_whatever_was_done_is_named(log: dict[str, Any], statement: str, found: list[str]) -> None:
    expected = [one.format(**log) for one in found]
    with undone():
        tamper(statement, **log)
        assert problems() == expected
        assert problems(tenant_id="ash") == expected
        assert ("elm" in statement) == bool(problems(tenant_id="elm"))
    assert problems() == []


@pytest.mark.clause("IAM-7", "verify_audit: the unsealed tail")
def test_an_entry_that_waits_as_another_tenants_is_found_in_both(log: dict[str, Any]) -> None:
    here = f"ash entry {log['tail']}: was added: no batch holds it, and it does not wait for one"
    there = f"elm entry {log['tail']}: was changed, before it was sealed"
    with undone():
        tamper("UPDATE iam_unsealeddecision SET tenant_id = 'elm' WHERE decision_id = %(tail)s", **log)
        assert problems() == [there, here]
        assert problems(tenant_id="ash") == [here]
        assert problems(tenant_id="elm") == [there]
    assert problems() == []


@pytest.mark.clause("IAM-7", "sealed batches are chained")
def test_a_batch_that_is_gone_is_named_with_its_entries(log: dict[str, Any]) -> None:
    added = "was added: no batch holds it, and it does not wait for one"
    with undone():
        tamper(f"DELETE FROM iam_decisionbatch WHERE {BATCH_2}")
        named = problems()
        assert named[0] == "ash batch 3: batch 2 before it is missing"
        assert sorted(named[1:]) == sorted(f"ash entry {log[f'second{n}']}: {added}" for n in range(3))
        tamper("DELETE FROM iam_decisionbatch WHERE tenant_id = 'ash' AND number = 1")
        assert problems()[0] == "ash batch 3: batch 1 to 2 before it is missing"


@pytest.mark.clause("IAM-7", "sealed batches are chained")
def test_an_entry_is_sealed_once(log: dict[str, Any]) -> None:
    with undone():
        tamper(
            "UPDATE iam_decisionbatch SET entries = entries || jsonb_build_array(jsonb_build_array(%(first0)s, 'x'))"
            " WHERE tenant_id = 'elm'",
            **log,
        )
        assert f"ash entry {log['first0']}: is sealed 2 times, in batches 1, 1" in problems()


def rewrite(number: int, **changed: Any) -> None:
    """Change a batch of ash and make the chain fit again, as somebody would who has read this code."""
    previous = ""
    for row in chain():
        if row.number == number:
            for name, value in changed.items():
                setattr(row, name, value)
        row.previous = previous
        row.hash = previous = batch_of(row).hash
        tamper(
            "UPDATE iam_decisionbatch SET entries = %(entries)s::jsonb, previous = %(previous)s, hash = %(hash)s"
            " WHERE id = %(id)s",
            entries=json.dumps(row.entries),
            previous=row.previous,
            hash=row.hash,
            id=row.pk,
        )


@pytest.mark.clause("IAM-7", "the heads are logged outside the database")
def test_a_history_that_was_rewritten_as_a_whole_is_found_by_the_heads(log: dict[str, Any]) -> None:
    logged = heads()
    assert problems(heads=logged) == []
    lie = entry(at=1_001, id=log["second1"], outcome="deny")
    tamper("UPDATE iam_decision SET outcome = 'deny', resource_id = 'res_1', digest = %(digest)s WHERE id = %(id)s",
           digest=lie.digest, id=lie.id)  # fmt: skip
    entries = [[id_, lie.digest if id_ == lie.id else digest] for id_, digest in chain()[1].entries]
    rewrite(2, entries=entries)
    assert problems() == []
    hashes = {(one.tenant_id, one.number): one.hash for one in logged}
    assert problems(heads=logged) == [
        f"ash batch {number}: is not the one whose head {hashes['ash', number]} was logged" for number in (2, 3)
    ]
    assert problems(heads=logged, tenant_id="elm") == []


@pytest.mark.clause("IAM-7", "the heads are logged outside the database")
def test_an_end_that_was_cut_off_is_found_by_the_heads(log: dict[str, Any]) -> None:
    logged = heads()
    with undone():
        tamper(
            "DELETE FROM iam_decision WHERE resource_id = 'third'",
            "DELETE FROM iam_decisionbatch WHERE tenant_id = 'ash' AND number = 3",
        )
        assert problems() == []
        assert problems(heads=logged) == ["ash batch 3: is missing, but its head was logged"]


def test_heads_are_read_out_of_any_log() -> None:
    line = '{"event": "audit_sealed", "tenant": "ash", "number": 3, "hash": "ab", "level": "info"}'
    head = Head("ash", 3, "ab")
    assert read_head(line) == read_head(f"worker.1 | 2026-01-01 {line}\n") == head
    for other in ("", "{", "plain", '{"event": "x"}', "[1]", '{"event": "audit_sealed", "tenant": "ash"}'):
        assert read_head(other) is None


def test_of_many_entries_the_one_that_was_changed_is_named() -> None:
    rows = written(2 * BATCH + 300)
    sealed()
    rows += written(BATCH + 20, resource_id="tail")
    changed = [rows[0], rows[BATCH + 7], rows[-1]]
    for row in changed:
        tamper("UPDATE iam_decision SET reason = 'x' WHERE id = %(id)s", id=row.id)
    assert [one.split(": ")[0] for one in problems(tenant_id="ash")] == [
        "ash batch 1",
        "ash batch 2",
        f"ash entry {changed[2].id}",
    ]


@pytest.mark.clause("IAM-7", "decision ids stored on reservations")
def test_a_decision_that_a_reservation_names_is_looked_for(world: World) -> None:
    pool = world.offered_pool()
    made = world.ann.api("reservations/create", **request(pool)).data["reservation"]["id"]
    decision = Decision.objects.get(resource_id=made)
    named = [(f"reservation {made}", decision.id)]
    assert problems(named=named) == []
    with undone():
        # Not sealed yet, and nobody but the reservation knows of it: entry and queue are gone.
        tamper(
            "DELETE FROM iam_decision WHERE id = %(id)s",
            "DELETE FROM iam_unsealeddecision WHERE decision_id = %(id)s",
            id=decision.id,
        )
        assert problems() == []
        assert problems(named=named) == [f"reservation {made}: names decision {decision.id}, which has no entry"]


@pytest.mark.clause("IAM-7", "decision ids stored on confirmations")
def test_a_decision_that_a_confirmation_names_is_looked_for(world: World, asking: Asking) -> None:
    asking.made(request(world.offered_pool()))
    used = Confirmation.objects.get()
    assert problems() == []
    with undone():
        tamper(
            "DELETE FROM iam_decision WHERE id = %(id)s",
            "DELETE FROM iam_unsealeddecision WHERE decision_id = %(id)s",
            id=used.decision_id,
        )
        assert problems() == [f"confirmation {used.id}: names decision {used.decision_id}, which has no entry"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.clause("IAM-7", "manage.py verify_audit")
def test_the_command_says_what_it_found(world: World, capsys: Any, tmp_path: Any) -> None:
    made = world.ann.api("reservations/create", **request(world.offered_pool())).data["reservation"]["id"]
    sealed()
    log = tmp_path / "log"
    lines = [{"event": "audit_sealed", "tenant": h.tenant_id, "number": h.number, "hash": h.hash} for h in heads()]
    log.write_text("".join(f"{json.dumps(line)}\n" for line in lines) + "no json\n")
    batches, entries = DecisionBatch.objects.count(), Decision.objects.count()

    call_command("verify_audit", heads=log)
    assert capsys.readouterr().out == (
        f"The audit log is as it was written: {batches} batches with {entries} entries, 0 pruned, 0 not sealed yet.\n"
    )
    call_command("verify_audit", tenant="nobody-here")
    assert "0 batches with 0 entries" in capsys.readouterr().out

    decision = Decision.objects.get(resource_id=made)
    tamper("DELETE FROM iam_decision WHERE id = %(id)s", id=decision.id)
    with pytest.raises(SystemExit) as ended:
        call_command("verify_audit", tenant="acme")
    told = capsys.readouterr()
    assert ended.value.code == 1
    assert told.err == "2 problems\n"
    assert told.out.splitlines() == [
        f"acme batch 1: entry {decision.id} is missing",
        f"reservation {made}: names decision {decision.id}, which has no entry",
    ]
    Decision.objects.bulk_create([decision])
    tamper("DELETE FROM iam_unsealeddecision")
    assert UnsealedDecision.objects.count() == 0
