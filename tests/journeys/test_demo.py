"""`manage.py demo` tells its story, says when it goes otherwise, and leaves nothing behind."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from computeplatform.demo.stage import run_dir
from computeplatform.launch import BASE_DIR
from computeplatform.server_plans import MARK
from tests.journeys.installation import Installation, until

pytestmark = pytest.mark.slow

# Something that each of the chapters says; they check themselves.
TOLD = (
    "still 8 of 32 GPUs charged",
    "CONFLICT",
    "allowed, but pending (NoFreeDevices)",
    "Unschedulable, NoFreeDevices",
    "QUOTA_EXCEEDED",
    "ACCESS_DENIED",
    "32 vCPU and 128 GiB are booked",
    "not extended: it ends at",
    "its lease ends at",
    "the promise is kept",
    "reservation.released, reason preempted",
    "later is placed on",
    "all 4 nodes have withdrawn",
    "invariants hold.",
)


def demo(*words: object, home: Path) -> subprocess.Popen[str]:
    """Start it as on a bare machine: no variable names a server."""
    command = [sys.executable, str(BASE_DIR / "manage.py"), "demo", *map(str, words)]
    environment = {"PATH": os.environ["PATH"], "HOME": str(home)}
    return subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def passable(folder: Path) -> Path:
    """PostgreSQL may run as nobody, who has to reach its data."""
    for one in (folder, *folder.parents[:2]):
        one.chmod(one.stat().st_mode | 0o011)
    return folder


def marked(scratch: Path) -> list[psutil.Process]:
    """Processes whose state directory is inside the scratch directory."""
    found = []
    for process in psutil.process_iter():
        try:
            if scratch.resolve() in Path(process.environ().get(MARK, "/")).parents:
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.mark.clause("REC-5", "verify_invariants after the whole story")
def test_the_demo_on_a_machine_with_nothing(tmp_path):
    process = demo("--scratch", passable(tmp_path) / "demo", home=tmp_path)
    said, _ = process.communicate(timeout=150)
    assert process.returncode == 0, said
    for words in TOLD:
        assert words in said
    assert "All of it happened as told" in said.splitlines()[-1]
    assert marked(tmp_path / "demo") == []
    assert [path.name for path in (tmp_path / "demo").iterdir()] == ["lock"]


def test_the_demo_on_a_server_that_is_up(installation: Installation, tmp_path):
    done = installation.manage("demo", "--credentials", installation.credentials_file)
    assert done.returncode == 0, done.stdout + done.stderr
    assert installation.base_url in done.stdout
    assert "invariants hold." in done.stdout


def test_a_story_that_goes_otherwise_ends_with_1_and_says_where(installation: Installation, tmp_path):
    wrong = tmp_path / "credentials.json"
    wrong.write_text(json.dumps(installation.credentials | {"pool": {"id": "pool_nowhere"}}))
    done = installation.manage("demo", "--credentials", wrong)
    assert done.returncode == 1
    assert "Not as the story goes: nodes/list was refused: 404 NOT_FOUND" in done.stdout


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "cannot be read"),
        ('{"baseUrl": "x"}', "cannot be read"),
        ('{"platform": {"tenantId": "platform", "admin": "x"}, "pool": {"id": "x"}}', "was not answered"),
    ],
)
def test_a_server_that_is_not_there(tmp_path, content, words):
    (tmp_path / "credentials.json").write_text(content)
    process = demo("--credentials", tmp_path / "credentials.json", "--url", "http://127.0.0.1:9", home=tmp_path)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "Not as the story goes:" in said
    assert words in said


def test_what_a_killed_demo_leaves_is_cleared_away_by_the_next(tmp_path):
    scratch = passable(tmp_path) / "demo"
    process = demo("--scratch", scratch, home=tmp_path)
    until(lambda: list(scratch.glob("run-*/credentials.json")), seconds=60)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert marked(scratch)
    with run_dir(scratch) as folder:
        assert marked(scratch) == []
        assert [path.name for path in scratch.glob("run-*") if path.is_dir()] == [folder.name]
    assert [path.name for path in scratch.iterdir()] == ["lock"]
