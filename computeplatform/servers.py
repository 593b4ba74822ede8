"""Private PostgreSQL and Redis-compatible servers from wheels, for machines that have none: `up`, `demo`, tests.

Only what the environment does not name is started: a given ``DATABASE_URL`` or ``REDIS_URL`` (or its ``_FILE``) is left
alone. Everything lives in one state directory: data, logs, chosen ports, the password of both servers. One process at a
time owns it (a file lock). The servers listen on loopback TCP, never on a socket file, whose path may have 107 bytes.

Every process started here carries the state directory in its environment. Whoever takes the lock next therefore finds
what a killed owner left running, ends it by process id, and starts again on the same data.

    python -m computeplatform.servers run --state-dir DIR [--throwaway] -- command...
"""

import argparse
import contextlib
import fcntl
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import redis

from computeplatform.server_plans import (
    MARK,
    Plan,
    ServersError,
    plan_postgres,
    plan_valkey,
    postgres_url,
    valkey_url,
)

RETRY_SECONDS = 10.0  # after kill -9 the old server's children hold the data folder for up to some seconds
READY_SECONDS = 60.0  # crash recovery of a large log
STOP_SECONDS = 30.0
LEFTOVER_SECONDS = 5.0  # honcho's forks ignore SIGTERM; everything that a killed owner leaves may be killed in turn


class Server:
    """One private server process, started again in place when it dies under us."""

    def __init__(self, plan: Plan, state_dir: Path) -> None:
        self.plan = plan
        self._ports = state_dir / "ports.json"
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0  # once it has answered, it stays: its clients know the URL
        self.url = ""

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    @property
    def died(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def start(self) -> None:
        """Start and wait until it answers; keep trying for `RETRY_SECONDS` when it leaves again at once."""
        give_up = time.monotonic() + RETRY_SECONDS
        while not self._try_start():
            if time.monotonic() > give_up:
                tail = self.plan.log.read_text(errors="replace")[-1500:]
                raise ServersError(f"{self.plan.name} does not start; the end of {self.plan.log}:\n{tail}")
            time.sleep(0.3)

    def _try_start(self) -> bool:
        port = self._port or self._choose_port()
        self.plan.log.touch(mode=0o600)  # it may quote statements
        with self.plan.log.open("ab") as log:
            # Its own session: Ctrl-C in the terminal must not reach it before its clients have finished.
            self._process = subprocess.Popen(
                self.plan.command(port),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, **self.plan.popen,
            )  # fmt: skip
        self.url = self.plan.url(port)
        late = time.monotonic() + READY_SECONDS
        while self._process.poll() is None and time.monotonic() < late:
            try:
                self.plan.probe(self.url)
            except (psycopg.OperationalError, redis.RedisError):
                time.sleep(0.03)
            else:
                self._port = port
                return True
        self.stop()
        return False

    def _choose_port(self) -> int:
        """The port of last time if it is free, else any free one.

        Who takes it meanwhile makes the start fail, and never look successful: the probe needs our password.
        """
        ports: dict[str, int] = json.loads(self._ports.read_text()) if self._ports.exists() else {}
        for wanted in (ports.get(self.plan.name, 0), 0):
            with contextlib.suppress(OSError), socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", wanted))
                ports[self.plan.name] = probe.getsockname()[1]
                break
        self._ports.write_text(json.dumps(ports))
        return ports[self.plan.name]

    def stop(self) -> None:
        if self._process is None:
            return
        end_process(self._process, self.plan.stop_signal)
        self._process = None


def watch(servers: list[Server], leaving: threading.Event) -> None:
    """Start again what dies, so that it only costs its clients a reconnect; end this process when that fails."""
    while not leaving.wait(0.3):
        for server in servers:
            if not server.died:
                continue
            print(f"{server.plan.name} has died; starting it again", file=sys.stderr, flush=True)
            try:
                server.start()
            except ServersError as error:
                print(error, file=sys.stderr, flush=True)
                os.kill(os.getpid(), signal.SIGTERM)
                return


# --- The state directory --------------------------------------------------------------------------


@contextlib.contextmanager
def owned(state_dir: Path) -> Iterator[Path]:
    """Own a state directory: make it, lock it, and end what a killed owner left running."""
    state_dir = state_dir.resolve()
    state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (state_dir / "lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ServersError(f"{state_dir} is in use by another process.") from error
        # A fork without exec would share the lock and keep it after us: honcho has one per part.
        os.register_at_fork(after_in_child=lock.close)
        end_marked(state_dir)
        yield state_dir


def end_marked(state_dir: Path, *, spare: frozenset[int] = frozenset()) -> None:
    """End all processes with this state directory's mark, except us, our parents, `spare` and its children."""
    kept = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())} | spare
    left = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid in kept or process.ppid() in spare:
                continue
            if process.environ().get(MARK) == str(state_dir):
                process.send_signal(signal.SIGINT if process.name() == "postgres" else signal.SIGTERM)
                left.append(process)
    _, stubborn = psutil.wait_procs(left, timeout=LEFTOVER_SECONDS)
    for process in stubborn:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(stubborn, timeout=LEFTOVER_SECONDS)


def secret_file(path: Path, *, length: int = 32) -> Path:
    """A file with a random secret that only we can read, made once."""
    if not path.exists():
        part = path.with_suffix(".part")
        part.touch(mode=0o600)
        part.write_text(secrets.token_hex(length))
        part.rename(path)
    return path


@contextlib.contextmanager
def private_servers(state_dir: Path, *, throwaway: bool = False) -> Iterator[dict[str, str]]:
    """Run the servers that the environment does not name, in an owned state directory; yield the variables to set."""
    password = secret_file(state_dir / "server-password").read_text()
    planners = {"DATABASE_URL": plan_postgres, "REDIS_URL": plan_valkey}
    missing = [plan for name, plan in planners.items() if not (os.environ.get(name) or os.environ.get(f"{name}_FILE"))]
    servers: list[Server] = []
    leaving = threading.Event()
    watcher = threading.Thread(target=watch, args=(servers, leaving), daemon=True)
    try:
        for planner in missing:
            server = Server(planner(state_dir, password, throwaway=throwaway), state_dir)
            server.start()
            servers.append(server)
        watcher.start()
        yield {MARK: str(state_dir)} | {server.plan.variable: server.url for server in servers}
    finally:
        leaving.set()
        if watcher.ident is not None:
            watcher.join()
        # Strays of the command first (and a server whose start was cut short), while their database still answers.
        end_marked(state_dir, spare=frozenset(server.pid for server in servers))
        for server in reversed(servers):
            server.stop()


def running_urls(state_dir: Path) -> dict[str, str]:
    """The variables that name the private servers which somebody else runs in a state directory, for a look at them."""
    chosen = state_dir / "ports.json"
    if not chosen.exists():
        return {}
    password, ports = (state_dir / "server-password").read_text(), json.loads(chosen.read_text())
    makers = {"DATABASE_URL": ("postgres", postgres_url), "REDIS_URL": ("valkey", valkey_url)}
    return {name: make(ports[server], password) for name, (server, make) in makers.items() if server in ports}


@contextlib.contextmanager
def throwaway_dir(base: Path) -> Iterator[Path]:
    """An owned directory below `base` that is deleted at the end, like those that killed owners left there."""
    base.mkdir(mode=0o711, parents=True, exist_ok=True)  # PostgreSQL may run as nobody, and has to pass through
    with contextlib.ExitStack() as stack:
        with (base / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # nobody may take our new directory for an abandoned one
            for old in base.glob("run-*"):
                with contextlib.suppress(ServersError), owned(old):
                    shutil.rmtree(old, ignore_errors=True)
            folder = stack.enter_context(owned(Path(tempfile.mkdtemp(prefix="run-", dir=base))))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        yield folder


def leave_on_signals() -> None:
    """Turn a stop signal into a normal exit, so that `with` blocks stop what they have started."""

    stops = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

    def leave(signum: int, _frame: object) -> None:
        for stop in stops:  # a second Ctrl-C must not cut the clean-up short
            signal.signal(stop, signal.SIG_IGN)
        raise SystemExit(128 + signum)

    for stop in stops:
        signal.signal(stop, leave)


def run(state_dir: Path, command: list[str], *, throwaway: bool) -> int:
    """Run a command with servers around it; its exit code. Nothing that it started outlives it."""
    leave_on_signals()
    directory = throwaway_dir if throwaway else owned
    with directory(state_dir) as folder, private_servers(folder, throwaway=throwaway) as variables:
        process = subprocess.Popen(command, env=os.environ | variables)
        try:
            return process.wait()
        except SystemExit as leaving:
            if leaving.code == 128 + signal.SIGINT:  # the terminal has told the command too: let it finish its own way
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(STOP_SECONDS)
            raise
        finally:
            end_process(process)


def end_process(process: subprocess.Popen[bytes], stop: signal.Signals = signal.SIGTERM) -> None:
    """Ask a child to end, and kill it if it has not done so after `STOP_SECONDS`."""
    if process.poll() is None:
        process.send_signal(stop)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m computeplatform.servers", description=__doc__)
    commands = parser.add_subparsers(required=True)
    runner = commands.add_parser("run", help="run a command with DATABASE_URL and REDIS_URL set")
    runner.add_argument("--state-dir", type=Path, default=Path(".local"))
    runner.add_argument("--throwaway", action="store_true", help="fast, without durability, deleted at the end")
    runner.add_argument("command", nargs="+")
    options = parser.parse_args()
    try:
        return run(options.state_dir, options.command, throwaway=options.throwaway)
    except ServersError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
