"""Run a command on PostgreSQL 15, the oldest that is supported: ``python -m tests.fire.postgres15 command...``

The wheel brings a newer one; this one comes from the machine (Debian's ``postgresql-15``). The command finds the server
in ``DATABASE_URL``; it is a throwaway one, gone afterwards.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from computeplatform.launch import BASE_DIR
from computeplatform.server_plans import (
    DATABASE,
    THROWAWAY_POSTGRES,
    Plan,
    as_postgres_user,
    postgres_url,
    probe_postgres,
    server_environment,
)
from computeplatform.servers import Server, leave_on_signals, secret_file, throwaway_dir

BINARIES = Path("/usr/lib/postgresql/15/bin")


def plan(folder: Path) -> Plan:
    """A new cluster in the folder, and how its server is run."""
    prefix, popen = as_postgres_user()
    password, environment = secret_file(folder / "server-password"), server_environment(folder)
    data = folder / "postgres"
    data.mkdir(mode=0o700)
    if popen:  # running as nobody
        folder.chmod(0o711)
        for path in (data, password):
            shutil.chown(path, popen["user"], popen["group"])
    options = [
        "-U",
        DATABASE,
        "-A",
        "scram-sha-256",
        f"--pwfile={password}",
        "-E",
        "UTF8",
        "--locale=C.UTF-8",
        "--no-sync",
    ]
    subprocess.run(
        [*prefix, str(BINARIES / "initdb"), "-D", str(data), *options],
        env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True, **popen,
    )  # fmt: skip
    settings = ["listen_addresses=127.0.0.1", "unix_socket_directories=", "max_connections=200", *THROWAWAY_POSTGRES]

    def command(port: int) -> list[str]:
        flags = [flag for setting in [*settings, f"port={port}"] for flag in ("-c", setting)]
        return [*prefix, str(BINARIES / "postgres"), "-D", str(data), *flags]

    return Plan(
        name="postgres",
        variable="DATABASE_URL",
        log=folder / "postgres.log",
        command=command,
        url=lambda port: postgres_url(port, password.read_text()),
        probe=probe_postgres,
        stop_signal=signal.SIGQUIT,
        popen={"env": environment, **popen},
    )


@contextmanager
def postgres15() -> Iterator[str]:
    """A running PostgreSQL 15; its URL."""
    with throwaway_dir(BASE_DIR / ".local" / "test15") as folder:
        server = Server(plan(folder), folder)
        try:
            server.start()
            yield server.url
        finally:
            server.stop()


def main(words: list[str]) -> int:
    if not (BINARIES / "postgres").exists():
        print(f"There is no PostgreSQL 15 in {BINARIES}. On Debian 12: apt-get install postgresql-15", file=sys.stderr)
        return 1
    leave_on_signals()
    with postgres15() as url:
        process = subprocess.Popen(words, env=os.environ | {"DATABASE_URL": url})
        try:
            return process.wait()
        finally:
            process.terminate()
            process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
