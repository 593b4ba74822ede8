"""manage.py verify_invariants: prove that what is stored holds together (REC-5)."""

import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand
from django.db import connection, transaction

from computeplatform.invariants import check_names, violations


class Command(BaseCommand):
    help = "Check every invariant of the stored state; names what differs and exits 1 if anything does."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--pool", action="append", dest="pools", help="look at this pool only (repeatable)")

    def handle(self, *_: Any, **options: Any) -> None:
        # One snapshot for all checks: what changes meanwhile must not look like a difference.
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            found = violations(options["pools"])
        for violation in found:
            self.stdout.write(f"{violation.check}: {violation.subject}: {violation.message}")
        if found:
            self.stderr.write(f"{len(found)} violations")
            sys.exit(1)
        self.stdout.write(f"{len(check_names())} invariants hold.")
