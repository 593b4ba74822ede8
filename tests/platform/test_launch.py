"""`manage.py up`: it becomes ready without any environment, stops without a trace, and keeps its data."""

import argparse
import contextlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import psutil
import psycopg
import pytest
from django.conf import settings

from computeplatform import launch
from computeplatform.server_plans import MARK

BASE_DIR = Path(__file__).resolve().parents[2]


def options(**changed) -> argparse.Namespace:
    chosen = {"port": 8000, "state_dir": Path("/state"), "workers": 1, "nodes": 4, "seed": "demo"}
    return argparse.Namespace(**chosen | changed)


def test_the_parts_are_web_beat_workers_and_nodes():
    parts = launch.processes(options(workers=2), Path("/state"), 8000)
    assert list(parts) == ["web", "beat", "worker1", "worker2", "nodes"]
    assert list(launch.processes(options(nodes=0), Path("/state"), 8000)) == ["web", "beat", "worker1"]


def test_the_workers_read_every_queue():
    assert tuple(launch.QUEUES.split(",")) == settings.QUEUES


def test_the_parts_get_a_lasting_secret_key_unless_one_is_given(tmp_path, monkeypatch):
    monkeypatch.delenv("SECRET_KEY")
    key = Path(launch.child_environment(tmp_path, {})["SECRET_KEY_FILE"])
    first = key.read_text()
    assert len(first) >= 50
    assert key.stat().st_mode & 0o077 == 0
    launch.child_environment(tmp_path, {})
    assert key.read_text() == first
    monkeypatch.setenv("SECRET_KEY", "given")
    assert "SECRET_KEY_FILE" not in launch.child_environment(tmp_path, {})


@pytest.fixture
def up(tmp_path):
    """Start `manage.py up` with an empty environment; the process, and its output up to "ready"."""
    started = []

    def start() -> tuple[subprocess.Popen[str], str]:
        command = [sys.executable, "manage.py", "up", "--port", "0", "--state-dir", str(tmp_path), "--nodes", "2"]
        environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
        with (tmp_path / "log").open("w") as log:
            process = subprocess.Popen(command, cwd=BASE_DIR, env=environment, stdout=log, stderr=log, text=True)
        started.append(process)
        late = time.monotonic() + 90
        while "\nready " not in (tmp_path / "log").read_text():
            said = (tmp_path / "log").read_text()
            assert process.poll() is None, said
            assert time.monotonic() < late, said
            time.sleep(0.1)
        return process, (tmp_path / "log").read_text()

    yield start
    for process in started:
        if process.poll() is None:
            process.terminate()
            process.wait(60)


def left_over(state_dir: Path) -> list[str]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == str(state_dir.resolve()):
                found.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return found


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("computeplatform.seed") is None, reason="there is no seed yet")
def test_up_becomes_ready_stops_without_a_trace_and_keeps_its_data(up, tmp_path):
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(folder.stat().st_mode | 0o011)
    process, said = up()
    assert re.search(r"^ready +http://127\.0\.0\.1:\d+/$", said, flags=re.MULTILINE)
    credentials = tmp_path / "credentials.json"
    assert credentials.stat().st_mode & 0o077 == 0
    first = json.loads(credentials.read_text())
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 128 + signal.SIGINT
    assert left_over(tmp_path) == []

    process, _ = up()
    assert json.loads(credentials.read_text())["tenants"] == first["tenants"]
    postgres = json.loads((tmp_path / "ports.json").read_text())["postgres"]
    password = (tmp_path / "server-password").read_text()
    with psycopg.connect(f"postgresql://compute:{password}@127.0.0.1:{postgres}/compute") as connection:
        pools = connection.execute("SELECT count(*) FROM fleet_pool").fetchone()
    assert pools is not None
    assert pools[0] >= 1
    process.terminate()
    assert process.wait(60) == 128 + signal.SIGTERM
    assert left_over(tmp_path) == []


def web_children(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """The processes in which the web server answers calls; their parent only watches them."""
    every = psutil.Process(process.pid).children(recursive=True)
    granian = {one.pid: one for one in every if one.name() == "granian"}
    return [one for one in granian.values() if one.ppid() in granian]


@pytest.mark.slow
def test_a_killed_web_process_is_replaced_and_nothing_else_ends(up):
    process, said = up()
    url = re.search(r"^ready +(\S+)/$", said, flags=re.MULTILINE)
    assert url is not None
    (child,) = web_children(process)
    child.kill()
    late = time.monotonic() + 60
    status = 0
    while status != 200:
        assert process.poll() is None
        assert time.monotonic() < late
        time.sleep(0.1)
        with contextlib.suppress(httpx.TransportError):
            status = httpx.get(f"{url[1]}/readyz", trust_env=False).status_code
    (replaced,) = web_children(process)
    assert replaced.pid != child.pid
