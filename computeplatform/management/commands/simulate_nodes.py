"""``manage.py simulate_nodes``: run simulated nodes against a server (NOD-3)."""

import asyncio
import contextlib
import fcntl
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from computeplatform.simulator.orders import HELP
from computeplatform.simulator.runner import Options, read_nodes, run_nodes


class Command(BaseCommand):
    """Runs until it is stopped; stopped or killed, it goes on from its state files when started again."""

    help = f"Run simulated nodes that speak the node protocol over HTTP.\n\n{HELP}"
    requires_system_checks = ()

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        """Keep the lines of the help as they are."""
        return super().create_parser(prog_name, subcommand, formatter_class=RawDescriptionHelpFormatter, **kwargs)

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--url", "--base-url", dest="url", default="http://127.0.0.1:8000", help="address of the server"
        )
        parser.add_argument(
            "--state-dir", type=Path, required=True, help="each node keeps its state in <state-dir>/nodes/<nodeId>.json"
        )
        parser.add_argument(
            "--nodes-file",
            type=Path,
            help="JSON list of {nodeId, token, positions, model, memoryMiB, host, mig, slots}; mig is the list of the "
            "profiles of each GPU's instances, slots how many share a GPU; default <state-dir>/nodes.json",
        )
        parser.add_argument("--nodes", type=int, help="run the first so many of the list; default all")
        parser.add_argument(
            "--poll-ms",
            type=int,
            default=300,
            help="pause between two syncs in milliseconds; 0: what the server asks for (default 300)",
        )
        parser.add_argument("--ca-file", type=Path, help="certificates to trust, for a server with its own")

    def handle(self, *_: Any, **options: Any) -> None:
        try:
            nodes = read_nodes(options["nodes_file"] or options["state_dir"] / "nodes.json")[: options["nodes"]]
        except ValueError as error:
            raise CommandError(str(error)) from None
        state_dir: Path = options["state_dir"] / "nodes"
        state_dir.mkdir(parents=True, exist_ok=True)
        with (state_dir / ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise CommandError(f"Other simulated nodes work on {state_dir}.") from None
            run = Options(
                url=options["url"],
                state_dir=state_dir,
                poll_seconds=options["poll_ms"] / 1000 if options["poll_ms"] > 0 else None,
                ca_file=options["ca_file"],
            )
            with contextlib.suppress(KeyboardInterrupt):
                asyncio.run(run_nodes(nodes, run))
