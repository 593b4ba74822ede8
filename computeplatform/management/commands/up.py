"""manage.py up: the whole product on this machine, in one foreground process tree."""

from argparse import ArgumentParser, Namespace
from typing import Any

from django.core.management.base import BaseCommand

from computeplatform import launch


class Command(BaseCommand):
    help = "Run servers, web, workers, beat and simulated nodes until Ctrl-C."
    requires_system_checks = []  # the parts check, with their environment; this process has no database

    def add_arguments(self, parser: ArgumentParser) -> None:
        launch.add_arguments(parser)

    def handle(self, *_: Any, **options: Any) -> None:
        launch.become(Namespace(**options))
