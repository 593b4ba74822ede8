"""The private servers: data survive stops and kills, state directories do not meet, and nothing is left running."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import psycopg
import pytest
import redis

from computeplatform.server_plans import MARK, ServersError
from computeplatform.servers import owned, private_servers, throwaway_dir

pytestmark = [pytest.mark.slow]

BASE_DIR = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _passable(tmp_path):
    """Where PostgreSQL runs as nobody (root, no user namespaces), it must get through pytest's own directories."""
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(folder.stat().st_mode | 0o011)


@pytest.fixture(autouse=True)
def _no_servers_given(monkeypatch):
    for name in ("DATABASE_URL", "REDIS_URL"):
        monkeypatch.delenv(name)


@contextmanager
def running(folder: Path) -> Iterator[dict[str, str]]:
    with owned(folder) as state_dir, private_servers(state_dir) as variables:
        yield variables


def patiently(action, seconds=15.0):
    """The result of an action that may fail while a server starts again."""
    late = time.monotonic() + seconds
    while True:
        try:
            return action()
        except (psycopg.OperationalError, redis.RedisError, AssertionError):
            if time.monotonic() > late:
                raise
            time.sleep(0.1)


def execute(url: str, statement: str) -> list:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


def marked(folder: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == str(folder.resolve()):
                found.append(process)
        except psutil.Error:
            continue
    return found


def server_pid(folder: Path, name: str) -> int:
    return next(process.pid for process in marked(folder) if process.name() == name)


def wait_for_file(path: Path) -> str:
    def read() -> str:
        assert path.exists()
        assert path.read_text()
        return path.read_text()

    return patiently(read, seconds=30)


def test_a_stop_keeps_the_data_and_the_ports(tmp_path):
    folder = tmp_path / ("a folder whose path is much longer than a socket's may be " * 2)
    with running(folder) as first:
        execute(first["DATABASE_URL"], "CREATE TABLE kept AS SELECT 7 AS number")
        redis.Redis.from_url(first["REDIS_URL"]).set("kept", "7")
    assert marked(folder) == []
    with running(folder) as second:
        assert second == first
        assert execute(second["DATABASE_URL"], "SELECT number FROM kept") == [(7,)]
        assert redis.Redis.from_url(second["REDIS_URL"]).get("kept") == b"7"
    assert (folder / "server-password").stat().st_mode & 0o077 == 0


def test_a_killed_server_comes_back_under_the_same_url_with_what_was_committed(tmp_path):
    with running(tmp_path) as variables:
        url = variables["DATABASE_URL"]
        execute(url, "CREATE TABLE kept AS SELECT 7 AS number")
        os.kill(server_pid(tmp_path, "postgres"), signal.SIGKILL)
        os.kill(server_pid(tmp_path, "valkey-server"), signal.SIGKILL)
        time.sleep(0.2)
        assert patiently(lambda: execute(url, "SELECT number FROM kept")) == [(7,)]
        assert patiently(redis.Redis.from_url(variables["REDIS_URL"]).ping)


def test_two_state_directories_run_side_by_side(tmp_path):
    with running(tmp_path / "one") as one, running(tmp_path / "two") as two:
        assert set(one.values()).isdisjoint(two.values())
        execute(one["DATABASE_URL"], "CREATE TABLE mine ()")
        assert execute(two["DATABASE_URL"], "SELECT to_regclass('mine')") == [(None,)]


def test_a_state_directory_has_one_owner(tmp_path):
    with owned(tmp_path), pytest.raises(ServersError, match="in use"), owned(tmp_path):
        pass


def test_a_port_that_was_taken_meanwhile_is_given_up(tmp_path):
    with running(tmp_path):
        pass
    taken = json.loads((tmp_path / "ports.json").read_text())["postgres"]
    with socket.create_server(("127.0.0.1", taken)), running(tmp_path) as variables:
        assert f":{taken}/" not in variables["DATABASE_URL"]
        assert execute(variables["DATABASE_URL"], "SELECT 1") == [(1,)]


def test_servers_that_the_environment_names_are_left_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("DATABASE_URL", "postgresql://elsewhere/x")
    monkeypatch.setenv("REDIS_URL_FILE", "/run/secrets/redis_url")
    with owned(tmp_path) as state_dir, private_servers(state_dir) as variables:
        assert variables == {MARK: str(state_dir)}


def test_whoever_comes_next_ends_what_a_killed_owner_left(tmp_path):
    with_child = ["bash", "-c", f"echo $DATABASE_URL > {tmp_path}/url; sleep 1000"]
    command = [sys.executable, "-m", "computeplatform.servers", "run", "--state-dir", str(tmp_path / "state"), "--"]
    owner = subprocess.Popen([*command, *with_child], cwd=BASE_DIR)
    url = wait_for_file(tmp_path / "url").strip()
    execute(url, "CREATE TABLE kept AS SELECT 7 AS number")
    owner.kill()
    owner.wait()
    orphans = marked(tmp_path / "state")
    assert {"postgres", "valkey-server", "sleep"} <= {process.name() for process in orphans}
    with running(tmp_path / "state") as variables:
        assert not any(process.is_running() for process in orphans)
        assert execute(variables["DATABASE_URL"], "SELECT number FROM kept") == [(7,)]


def test_run_passes_the_exit_code_on_and_ends_strays(tmp_path):
    leaves_a_stray = "test -n $DATABASE_URL -a -n $REDIS_URL && { sleep 1000 & } ; exit 7"
    command = [
        sys.executable,
        "-m",
        "computeplatform.servers",
        "run",
        "--throwaway",
        "--state-dir",
        str(tmp_path),
        "--",
    ]
    done = subprocess.run([*command, "bash", "-c", leaves_a_stray], cwd=BASE_DIR, check=False)
    assert done.returncode == 7
    assert list(tmp_path.glob("run-*")) == []
    assert not [p.pid for p in psutil.process_iter(["cmdline"]) if str(tmp_path) in " ".join(p.info["cmdline"] or [])]


def test_run_is_stopped_by_a_signal(tmp_path):
    command = [
        sys.executable,
        "-m",
        "computeplatform.servers",
        "run",
        "--throwaway",
        "--state-dir",
        str(tmp_path),
        "--",
    ]
    owner = subprocess.Popen([*command, "bash", "-c", f"echo up > {tmp_path}/up; sleep 1000"], cwd=BASE_DIR)
    wait_for_file(tmp_path / "up")
    folder = next(tmp_path.glob("run-*"))
    owner.terminate()
    assert owner.wait(30) == 128 + signal.SIGTERM
    assert marked(folder) == []
    assert not folder.exists()


def test_throwaway_directories_of_killed_owners_are_removed(tmp_path):
    abandoned = tmp_path / "run-abandoned"
    abandoned.mkdir()
    with throwaway_dir(tmp_path) as mine, throwaway_dir(tmp_path) as another:
        assert not abandoned.exists()
        assert mine.exists()
        assert another.exists()
