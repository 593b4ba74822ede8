"""manage.py demo: a story told over the API, on an installation of its own or on one that is up already."""

import contextlib
import sys
import time
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand
from rich.console import Console
from rich.markup import escape

from computeplatform.demo.client import Deviation, Refused
from computeplatform.demo.stage import NODES, Stage, own_stage, running_stage, verify_invariants
from computeplatform.demo.story import FEWEST_NODES, tell
from computeplatform.demo.telling import Teller
from computeplatform.launch import BASE_DIR
from computeplatform.servers import leave_on_signals


class Command(BaseCommand):
    help = "Tell the story of a reservation over the API; exits 1 if anything differs from the story."
    requires_system_checks = []  # this process has no database

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--url", help="of a server that is up already; default: its credentials' baseUrl")
        parser.add_argument("--credentials", type=Path, help="its credentials.json; default .local/credentials.json")
        parser.add_argument(
            "--scratch",
            type=Path,
            default=BASE_DIR / ".local" / "demo",
            help="where its own installation lives meanwhile",
        )

    def handle(self, *_: Any, **options: Any) -> None:
        # A log has no width of its own.
        console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
        leave_on_signals()
        started = time.monotonic()
        try:
            with contextlib.ExitStack() as stack:
                stage, nodes = self._stage(options, stack, console)
                stack.callback(stage.api.close)
                play(stage, nodes, console)
                seconds = time.monotonic() - started
                console.print(f"\n[bold green]All of it happened as told[/], in {seconds:.0f} seconds.")
        except (Deviation, Refused) as error:
            console.print(f"\n[bold red]Not as the story goes:[/] {escape(str(error))}", soft_wrap=True)
            for note in getattr(error, "__notes__", ()):
                console.print(escape(note), soft_wrap=True)
            sys.exit(1)

    @staticmethod
    def _stage(options: dict[str, Any], stack: contextlib.ExitStack, console: Console) -> tuple[Stage, int]:
        """Where the story is told, and how many free nodes it has to find there."""
        if options["url"] or options["credentials"]:
            where = options["credentials"] or BASE_DIR / ".local" / "credentials.json"
            return running_stage(options["url"], where), FEWEST_NODES
        console.print(f"Starting PostgreSQL, Valkey, web, worker, beat and {NODES} simulated nodes …")
        with console.status("This takes some seconds"):
            return stack.enter_context(own_stage(options["scratch"].resolve())), NODES


def play(stage: Stage, nodes: int, console: Console) -> None:
    """Tell the story, then prove that what it left in the database holds together."""
    teller = Teller(console)
    teller.say(f"The server is [bold]{stage.base_url}[/]; everything below is said and answered over its HTTP API.")
    tell(stage.api, stage.platform, teller, nodes=nodes)
    teller.chapter("The books")
    teller.call("operator", "manage.py verify_invariants", "")
    code, said = verify_invariants(stage)
    teller.answer(escape(said))
    if code:
        raise Deviation("the stored state does not hold together")
