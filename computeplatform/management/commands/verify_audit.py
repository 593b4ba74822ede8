"""manage.py verify_audit: prove that nobody changed the audit log (IAM-7)."""

import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import connection, transaction

from iam.domain.audit import Head, read_head
from iam.queries.verification import Verification
from reservations.queries import named_decisions


class Command(BaseCommand):
    help = (
        "Read the whole audit log and name every entry and batch that was changed, removed, reordered or added; exits "
        "1 if there is any. Give it the log's audit_sealed lines too: only they show a history that was rewritten as "
        "a whole."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--tenant", help="look at this tenant's log only")
        parser.add_argument("--heads", type=Path, help="file of log lines; others than audit_sealed are passed over")
        parser.add_argument("--exports", type=Path, help="directory with the files that prune_audit wrote")

    def handle(self, *_: Any, **options: Any) -> None:
        found = 0
        # One snapshot: what is sealed meanwhile must not look like a difference. A long log takes its time.
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                cursor.execute("SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0")
            seen = Verification(
                tenant_id=options["tenant"],
                heads=_heads(options["heads"]) if options["heads"] else (),
                exports=options["exports"],
                named=((f"reservation {id_}", named) for id_, named in named_decisions(options["tenant"])),
            )
            for problem in seen.problems():
                found += 1
                self.stdout.write(problem)
        if found:
            self.stderr.write(f"{found} problems")
            sys.exit(1)
        self.stdout.write(
            f"The audit log is as it was written: {seen.batches} batches with {seen.entries} entries,"
            f" {seen.pruned} pruned, {seen.waiting} not sealed yet."
        )


def _heads(path: Path) -> list[Head]:
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            return [head for line in lines if (head := read_head(line))]
    except OSError as error:
        raise CommandError(str(error)) from error
