"""Where the story is told: a whole installation of its own, thrown away afterwards, or one that is up already."""

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from computeplatform.demo.client import Api, Deviation, Refused
from computeplatform.demo.story import Platform
from computeplatform.launch import BASE_DIR, READY_SECONDS, manage
from computeplatform.servers import end_marked, end_process, running_urls

NODES = 4


@dataclass(frozen=True)
class Stage:
    """A server that is ready; ``state_dir`` is where its credentials lie, and its private database if it has one."""

    api: Api
    base_url: str
    platform: Platform
    state_dir: Path


@contextlib.contextmanager
def own_stage(base: Path, *, nodes: int = NODES) -> Iterator[Stage]:
    """Start `manage.py up` in a new directory below `base`, and end it and delete the directory afterwards.

    What an earlier run left is ended and deleted first. Raises Deviation if it does not start.
    """
    base.mkdir(mode=0o711, parents=True, exist_ok=True)  # PostgreSQL may run as nobody, and has to pass through
    with run_dir(base) as state_dir:
        with (state_dir / "up.log").open("w") as log:
            command = manage("up", "--port", 0, "--state-dir", state_dir, "--nodes", nodes, "--seed", "none")
            process = subprocess.Popen(command, cwd=BASE_DIR, stdout=log, stderr=subprocess.STDOUT)
        try:
            yield _when_ready(process, state_dir)
        finally:
            end_process(process)


@contextlib.contextmanager
def run_dir(base: Path) -> Iterator[Path]:
    """A new directory below `base`, deleted at the end; those of earlier runs that are over are cleared away.

    Where the story went otherwise it is kept for a look, until the next run. A file beside it says, by its lock, that
    the run is alive: the directory's own lock belongs to `up`.
    """
    with contextlib.ExitStack() as stack:
        with (base / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # nobody may take our new directory for an abandoned one
            for left in base.glob("run-*.alive"):
                _clear_abandoned(left)
            folder = Path(tempfile.mkdtemp(prefix="run-", dir=base))
            alive = stack.enter_context((base / f"{folder.name}.alive").open("w"))
            fcntl.flock(alive, fcntl.LOCK_EX)
        try:
            yield folder
        except (Deviation, Refused) as error:
            error.add_note(f"What was said by its processes is kept until the next run: {folder / 'up.log'}")
            raise
        except BaseException:
            _delete(folder)
            raise
        _delete(folder)


def _clear_abandoned(alive: Path) -> None:
    folder = alive.with_suffix("")
    with alive.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        end_marked(folder.resolve())
        _delete(folder)


def _delete(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.with_suffix(".alive").unlink(missing_ok=True)


def _when_ready(process: subprocess.Popen[bytes], state_dir: Path) -> Stage:
    late = time.monotonic() + READY_SECONDS
    credentials = state_dir / "credentials.json"
    stage: Stage | None = None
    while time.monotonic() < late and process.poll() is None:
        if stage is None and credentials.exists():
            stage = running_stage(None, credentials)
        if stage is not None and stage.api.ready():
            return stage
        time.sleep(0.1)
    end = "".join((state_dir / "up.log").read_text(errors="replace").splitlines(keepends=True)[-15:])
    raise Deviation(f"`manage.py up` did not become ready. The end of its log:\n{end}")


def running_stage(url: str | None, credentials: Path) -> Stage:
    """A server that is up already, at ``url`` or where its credentials say. Raises Deviation for unreadable ones."""
    try:
        stored = json.loads(credentials.read_text())
        base_url = url or stored["baseUrl"]
        who = Platform(stored["platform"]["tenantId"], stored["platform"]["admin"], stored["pool"]["id"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Deviation(f"The credentials in {credentials} cannot be read: {error!r}") from error
    return Stage(Api(base_url), base_url, who, credentials.parent)


def verify_invariants(stage: Stage) -> tuple[int, str]:
    """Run `manage.py verify_invariants` on the server's database; its exit code and what it said.

    Raises Deviation where that database is not known here: neither named by the environment nor private.
    """
    environment = running_urls(stage.state_dir) | os.environ
    if not (environment.get("DATABASE_URL") or environment.get("DATABASE_URL_FILE")):
        raise Deviation("The server's database is not known here: set DATABASE_URL to have its invariants verified.")
    if not (environment.get("SECRET_KEY") or environment.get("SECRET_KEY_FILE")):
        environment["SECRET_KEY"] = secrets.token_hex(32)  # a check signs nothing, but Django wants one
    done = subprocess.run(
        manage("verify_invariants"), cwd=BASE_DIR, env=environment, capture_output=True, text=True, check=False
    )
    return done.returncode, (done.stdout + done.stderr).strip()
