"""manage.py prune_audit: move old parts of the audit log into files (IAM-7)."""

import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from computeplatform.clock import DAY, compute_now
from iam.errors import PruneRunning
from iam.operations.audit import prune


class Command(BaseCommand):
    help = (
        "Export sealed batches whose entries are all older than so many days, one file each, and remove the entries. "
        "The batches stay as checkpoints, so verify_audit goes on. Exits 1 if a batch was left because it, or a file "
        "of its name, is not what it should be. May be stopped and repeated at any time."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--older-than-days", type=int, required=True, help="at least 1")
        parser.add_argument("--to", type=Path, required=True, help="directory of the files; made if it is not there")

    def handle(self, *_: Any, **options: Any) -> None:
        days, directory = options["older_than_days"], options["to"]
        if days < 1:
            raise CommandError("--older-than-days is at least 1.")
        now = compute_now()
        batches = entries = left = 0
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            for one in prune(before=now - days * DAY, directory=directory, now=now):
                if one.fault:
                    left += 1
                    self.stderr.write(f"{one.tenant_id} batch {one.number} was left: {one.fault}")
                else:
                    batches += 1
                    entries += one.entries
        except PruneRunning as error:
            raise CommandError("The audit log is being pruned already.") from error
        except OSError as error:
            raise CommandError(f"{error}. {batches} batches were exported and pruned before that.") from error
        self.stdout.write(f"{batches} batches with {entries} entries were exported to {directory} and pruned.")
        if left:
            sys.exit(1)
