"""manage.py withdraw_policy: take a policy out of force whose tenant can no longer do so itself."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from computeplatform.api.calls import system_actor
from computeplatform.clock import compute_now
from computeplatform.errors import NotFound
from iam.operations.policies import delete_policy


class Command(BaseCommand):
    help = (
        "Take a policy out of force, as policies/delete does: for a tenant that has locked itself out, the platform's "
        "own included. Its versions stay readable, and show who did it as system:shell."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("tenant", help="the tenant's id")
        parser.add_argument("name", help="the policy's name")

    def handle(self, *_: Any, **options: Any) -> None:
        tenant_id, name = options["tenant"], options["name"]
        try:
            gone = delete_policy(tenant_id=tenant_id, name=name, by=system_actor("shell"), now=compute_now())
        except NotFound as refusal:
            raise CommandError(refusal.message) from refusal
        self.stdout.write(f"{tenant_id}/{name}, version {gone.version}, is out of force.")
