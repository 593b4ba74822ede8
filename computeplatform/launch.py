"""`manage.py up`: everything on one machine, in one foreground process tree.

This process only supervises: it starts the private servers, then runs every other part as a child whose environment
names them. It knows nothing of Django, whose settings read the environment once, at import, before there are servers.
"""

import argparse
import contextlib
import http.client
import json
import os
import shlex
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import honcho.manager

from computeplatform.server_plans import MARK, ServersError
from computeplatform.servers import leave_on_signals, owned, private_servers, secret_file

HOST = "127.0.0.1"
READY_SECONDS = 120.0
# Between SIGTERM and SIGKILL: a parked call may last 30 s, but workers and calls are safe to cut at any line.
STOP_SECONDS = 15
# Parked calls are released at once; what still runs after this long is cut. The server's own default has no limit.
WEB_STOP = ("--workers-kill-timeout", "12")
# A killed server process is replaced, as Celery does it with its own; one that cannot live ends the whole.
WEB_RESPAWN = ("--respawn-failed-workers", "--respawn-interval", "1")
QUEUES = "admission,placement,reconcile,delivery,maintenance"
WORKER_CHILDREN = 4  # so that slow deliveries and reconciliations leave a child for admissions
BASE_DIR = Path(__file__).resolve().parent.parent


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `manage.py up`, for its help and for ours."""
    parser.add_argument("--port", type=int, default=8000, help="of the web process; 0 takes any free one")
    parser.add_argument("--state-dir", type=Path, default=Path(".local"), help="data, logs, credentials")
    parser.add_argument("--workers", type=int, default=1, help="Celery worker processes")
    parser.add_argument("--nodes", type=int, default=4, help="simulated nodes")
    parser.add_argument("--seed", choices=["demo", "none"], default="demo", help="what the database starts with")


def become(options: argparse.Namespace) -> NoReturn:
    """Turn this process into the supervisor.

    It starts afresh with the mark in its environment: were it killed, the forks that honcho makes of it could not be
    found otherwise.
    """
    folder = options.state_dir.resolve()
    words = {"--port": options.port, "--state-dir": folder, "--workers": options.workers}
    words |= {"--nodes": options.nodes, "--seed": options.seed}
    command = [sys.executable, "-m", "computeplatform.launch", *(str(word) for pair in words.items() for word in pair)]
    os.chdir(BASE_DIR)
    os.execve(sys.executable, command, os.environ | {MARK: str(folder)})


def up(options: argparse.Namespace) -> int:
    """Run everything until told to stop; the exit code."""
    leave_on_signals()
    try:
        with owned(options.state_dir) as folder, private_servers(folder) as servers:
            port = free_port(options.port)
            environment = child_environment(folder, servers)
            prepare(options, folder, port, environment)
            return supervise(processes(options, folder, port), environment, port, folder)
    except ServersError as error:
        print(error, file=sys.stderr)
        return 1


def free_port(wanted: int) -> int:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, wanted))
        except OSError as error:
            raise ServersError(f"Port {wanted} is in use; choose another with --port.") from error
        return int(probe.getsockname()[1])


def child_environment(folder: Path, servers: dict[str, str]) -> dict[str, str]:
    """Ours, with the servers and, where it names none, a secret key of this state directory and plain http."""
    environment = os.environ | servers | {"PYTHONUNBUFFERED": "1", "DJANGO_SETTINGS_MODULE": "computeplatform.settings"}
    if not (environment.get("SECRET_KEY") or environment.get("SECRET_KEY_FILE")):
        environment["SECRET_KEY_FILE"] = str(secret_file(folder / "secret-key"))
    environment.setdefault("HTTPS_ONLY", "off")
    # Celery's soft shutdown: finish what takes a moment, give the rest back to the queue.
    environment.setdefault("REMAP_SIGTERM", "SIGQUIT")
    return environment


def base_url(port: int) -> str:
    return f"http://{HOST}:{port}"


def manage(*words: object) -> list[str]:
    return [sys.executable, str(BASE_DIR / "manage.py"), *map(str, words)]


def prepare(options: argparse.Namespace, folder: Path, port: int, environment: dict[str, str]) -> None:
    """Migrate and seed, as a child that has the environment."""
    seed = ["--seed", options.seed, "--nodes", options.nodes]
    command = manage("prepare", *seed, "--state-dir", folder, "--base-url", base_url(port))
    if subprocess.run(command, env=environment, cwd=BASE_DIR, check=False).returncode != 0:
        raise ServersError("The database could not be prepared; the reason is above.")


def processes(options: argparse.Namespace, folder: Path, port: int) -> dict[str, list[str]]:
    """The command line of every part, by name."""
    binaries = Path(sys.executable).parent
    celery = [str(binaries / "celery"), "--quiet", "-A", "computeplatform.celery:app"]
    web = [
        str(binaries / "granian"),
        "--interface",
        "asgi",
        "--loop",
        "uvloop",
        "--no-ws",
        "--log-level",
        "warning",
        *WEB_STOP,
        *WEB_RESPAWN,
    ]
    parts = {
        "web": [*web, "--host", HOST, "--port", str(port), "computeplatform.asgi:application"],
        "beat": [*celery, "beat", "--pidfile="],
    }
    for number in range(1, options.workers + 1):
        queues = ["-Q", QUEUES, "--concurrency", str(WORKER_CHILDREN)]
        quiet = ["--without-gossip", "--without-mingle", "-n", f"worker{number}@%h"]
        parts[f"worker{number}"] = [*celery, "worker", *queues, *quiet]
    if options.nodes:
        nodes = ["--nodes", options.nodes, "--state-dir", folder, "--base-url", base_url(port)]
        parts["nodes"] = manage("simulate_nodes", *nodes)
    return parts


def supervise(parts: dict[str, list[str]], environment: dict[str, str], port: int, folder: Path) -> int:
    """Run the parts until a signal comes or one of them ends; then end them all."""
    honcho.manager.KILL_WAIT = STOP_SECONDS
    manager = honcho.manager.Manager()
    for name, words in parts.items():
        # exec: signals reach the program itself and not a shell in between.
        manager.add_process(name, f"exec {shlex.join(words)}", env=environment, cwd=str(BASE_DIR))
    with announced(manager, port, folder) as outcome:
        manager.loop()
    return 1 if outcome else int(manager.returncode or 0)


@contextlib.contextmanager
def announced(manager: honcho.manager.Manager, port: int, folder: Path) -> Iterator[list[str]]:
    """Say "ready" once the web process is; end everything if that takes too long. Yields a list of what went wrong."""
    ended = threading.Event()
    problems: list[str] = []

    def announce() -> None:
        reason = wait_until_ready(port, ended)
        if ended.is_set():
            return
        if reason:
            problems.append(reason)
            print(f"Not ready after {READY_SECONDS:.0f} s: {reason}", file=sys.stderr, flush=True)
            manager.terminate()
            return
        print(ready_text(port, folder), flush=True)

    thread = threading.Thread(target=announce, daemon=True)
    thread.start()
    try:
        yield problems
    finally:
        ended.set()
        thread.join()


def wait_until_ready(port: int, ended: threading.Event) -> str:
    """Ask /readyz until the answer is 200; empty when it is, else the last reason why not."""
    late = time.monotonic() + READY_SECONDS
    reason = "it was never asked"
    while time.monotonic() < late and not ended.wait(0.2):
        # Not urllib: it would ask a proxy that the environment names for our own loopback address.
        with contextlib.closing(http.client.HTTPConnection(HOST, port, timeout=5)) as connection:
            try:
                connection.request("GET", "/readyz")
                answer = connection.getresponse()
                reason = f"{answer.status} {answer.read(2000).decode(errors='replace')}"
            except (OSError, http.client.HTTPException) as error:
                reason = str(error) or type(error).__name__
            else:
                if answer.status == http.HTTPStatus.OK:
                    return ""
    return reason


def ready_text(port: int, folder: Path) -> str:
    lines = [f"ready    {base_url(port)}/", f"docs     {base_url(port)}/api/docs", f"admin    {base_url(port)}/admin/"]
    credentials = folder / "credentials.json"
    if credentials.exists():
        operator = json.loads(credentials.read_text()).get("operator", {})
        lines[-1] += f"  as {operator.get('username')}"
        lines.append(f"tokens   {credentials}")
    return "\n".join([*lines, "stop     Ctrl-C"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="manage.py up")
    add_arguments(parser)
    sys.exit(up(parser.parse_args()))
