"""manage.py prepare: migrate and seed, for `up`. Production runs `migrate` as its own step and seeds nothing."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand
from django.utils.module_loading import import_string


class Command(BaseCommand):
    help = "Migrate the database and fill it with the seed data of `up`."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--seed", choices=["demo", "none"], required=True)
        parser.add_argument("--nodes", type=int, required=True)
        parser.add_argument("--state-dir", type=Path, required=True)
        parser.add_argument("--base-url", required=True)

    def handle(self, *_: Any, **options: Any) -> None:
        call_command("migrate", verbosity=0, interactive=False)
        seed = import_string("computeplatform.seed.seed")
        state_dir, base_url = options["state_dir"], options["base_url"]
        seed(state_dir=state_dir, kind=options["seed"], nodes=options["nodes"], base_url=base_url)
