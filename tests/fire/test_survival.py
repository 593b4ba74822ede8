"""`manage.py up` without root; everything is killed at once, and nothing that was acknowledged is lost."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import psycopg
import pytest

from computeplatform.launch import BASE_DIR
from computeplatform.server_plans import MARK
from computeplatform.servers import running_urls
from tests.fire.ordinary import OrdinaryUser, ordinary_user
from tests.journeys.installation import STARTING_SECONDS, Caller, client, until
from tests.support.world import request

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def user() -> OrdinaryUser:
    return ordinary_user()


@pytest.fixture
def folder(user: OrdinaryUser) -> Iterator[Path]:
    """A directory of the user's own; pytest's belong to whoever runs the tests."""
    with tempfile.TemporaryDirectory(prefix="compute-", ignore_cleanup_errors=True) as name:
        yield user.owns(Path(name))


def environment(folder: Path) -> dict[str, str]:
    """As on a bare machine: no variable names a server."""
    return {"PATH": os.environ["PATH"], "HOME": str(folder)}


def test_the_private_servers_without_root(user: OrdinaryUser, folder: Path):
    look = (
        "import os, psycopg, redis; print(os.geteuid() > 0, psycopg.connect(os.environ['DATABASE_URL']).execute("
        "'SELECT 7').fetchone(), redis.Redis.from_url(os.environ['REDIS_URL']).ping())"
    )
    words = [sys.executable, "-m", "computeplatform.servers", "run", "--throwaway", "--state-dir", str(folder / "s")]
    done = user.run(*words, "--", sys.executable, "-c", look, env=environment(folder), capture_output=True)
    assert (done.returncode, done.stdout) == (0, "True (7,) True\n"), done.stderr
    assert list((folder / "s").glob("run-*")) == []


class Up:
    """`manage.py up` as an ordinary user, and everything that it has started."""

    def __init__(self, user: OrdinaryUser, folder: Path) -> None:
        self.folder = folder
        self._log = folder / "up.log"
        words = [*user.prefix, sys.executable, "manage.py", "up", "--port", "0", "--state-dir", str(folder)]
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                words, cwd=BASE_DIR, env=environment(folder), stdout=log, stderr=log, **user.popen
            )
        until(
            lambda: "\nready " in self._log.read_text() or self._process.poll() is not None,
            seconds=2 * STARTING_SECONDS,
        )
        assert self._process.poll() is None, self._log.read_text()
        self.credentials: Any = json.loads((folder / "credentials.json").read_text())
        self.http = client(self.credentials["baseUrl"])

    def processes(self) -> list[psutil.Process]:
        """The supervisor first, so that it starts nothing again, then all that it has started, and their children:
        PostgreSQL's write over their environment."""
        found = {self._process.pid: psutil.Process(self._process.pid)}
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get(MARK) == str(self.folder):
                    found |= {one.pid: one for one in (process, *process.children(recursive=True))}
        return list(found.values())

    def kill(self) -> None:
        """kill -9 of every process at once."""
        everything = self.processes()
        names: Counter[str] = Counter()
        for process in everything:
            with suppress(psutil.NoSuchProcess):  # PostgreSQL's workers come and go
                names[process.name()] += 1
                process.kill()
        assert names["postgres"] > 5, names
        assert names["valkey-server"] == 1, names
        psutil.wait_procs(everything, timeout=20)
        self._process.wait(20)
        assert [p for p in everything if p.is_running() and p.status() != psutil.STATUS_ZOMBIE] == []

    def stop(self) -> None:
        self.http.close()
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            assert self._process.wait(60) == 128 + signal.SIGINT

    def caller(self, tenant_id: str, name: str = "user") -> Caller:
        return Caller(self.http, tenant_id, self.credentials["tenants"][tenant_id][name])


@contextmanager
def running(user: OrdinaryUser, folder: Path) -> Iterator[Up]:
    up = Up(user, folder)
    try:
        yield up
    finally:
        up.stop()


@dataclass
class Sent:
    """A create that was sent, and what was acknowledged."""

    tenant_id: str
    asked: dict[str, Any]
    acknowledged: dict[str, Any] | None = None


def create_until_it_dies(caller: Caller, pool_id: str, sent: list[Sent]) -> None:
    """One create after the other, for as long as somebody answers and the quota lasts."""
    while True:
        one = Sent(caller.tenant_id, request(pool_id, binding="node"))
        sent.append(one)
        try:
            answer = caller.post("reservations/create", **one.asked)
        except httpx.TransportError:
            return
        if answer.status_code != 200:
            assert answer.json()["error"]["code"] == "QUOTA_EXCEEDED", answer.text
            return
        one.acknowledged = answer.json()["data"]["reservation"]


@pytest.mark.clause("OPS-3", "every process killed at once: 100 acknowledged creates survive, and go on")
@pytest.mark.clause("CRE-1", "nothing acknowledged is lost, and nothing is charged twice, when everything dies")
@pytest.mark.clause("REC-5", "verify_invariants after everything was killed")
@pytest.mark.clause("CRE-6", "what was sent and not answered goes on under its key, and is there once")
def test_a_hundred_acknowledged_creates_survive_the_death_of_everything(user: OrdinaryUser, folder: Path):
    sent: list[Sent] = []
    with running(user, folder) as up, ThreadPoolExecutor() as threads:
        pool_id = up.credentials["pool"]["id"]
        assert stored(folder, "SHOW fsync") == [("on",)]
        for tenant in ("acme", "globex") * 4:
            threads.submit(create_until_it_dies, up.caller(tenant), pool_id, sent)
        until(lambda: sum(one.acknowledged is not None for one in sent) >= 100, seconds=60)
        up.kill()

    with running(user, folder) as up, ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda one: up.caller(one.tenant_id).post("reservations/create", **one.asked), sent))
        for one, answer in zip(sent, answers, strict=True):
            if before := one.acknowledged:
                assert answer.status_code == 200, answer.text
                now = answer.json()["data"]["reservation"]
                assert {now[name] == before[name] for name in ("id", "createdAt", "poolId", "requested")} == {True}
                # Pending is all that it may still be; what was placed goes its way.
                assert (now["state"] == "pending") == (before["state"] == "pending")
            else:
                assert answer.status_code in (200, 429), answer.text
        known = [(one.tenant_id, one.acknowledged) for one in sent if one.acknowledged]
        placed = [(tenant_id, before["id"]) for tenant_id, before in known if before["state"] == "placed"]
        assert len(placed) >= 24, "all devices of the four nodes, but for what was placed and not answered"
        for tenant_id, reservation_id in placed:
            up.caller(tenant_id).follow(reservation_id, "active")
        verify(user, folder)


def stored(folder: Path, statement: str) -> list[Any]:
    with psycopg.connect(running_urls(folder)["DATABASE_URL"]) as connection:
        return connection.execute(statement).fetchall()


def verify(user: OrdinaryUser, folder: Path) -> None:
    """Nothing is charged or booked twice, and every invariant holds."""
    [(charges, charged)] = stored(folder, "SELECT count(*), count(DISTINCT reservation_id) FROM quotas_charge")
    assert charges == charged
    [(drafts,)] = stored(folder, "SELECT count(*) FROM reservations_reservation WHERE call_open_until IS NOT NULL")
    assert drafts == 0
    words = [sys.executable, "manage.py", "verify_invariants"]
    given = environment(folder) | running_urls(folder) | {"SECRET_KEY_FILE": str(folder / "secret-key")}
    done = user.run(*words, env=given, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
