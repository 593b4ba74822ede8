"""manage.py bootstrap: the platform tenant and its first administrator, for a new installation."""

from typing import Any

from django.core.management.base import BaseCommand

from computeplatform.clock import compute_now
from iam.operations.bootstrap import ensure_platform


class Command(BaseCommand):
    help = "Make the platform tenant with its first administrator, and print that administrator's token, once."

    def handle(self, *_: Any, **__: Any) -> None:
        platform = ensure_platform(now=compute_now())
        if platform.token is None:
            self.stderr.write(f"The platform has an administrator already: {platform.admin.id}.")
        else:
            self.stdout.write(platform.token)
