"""A whole installation for tests: the product's own processes, each of which can be stopped, killed and started."""

import argparse
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

import httpx
import psutil
import psycopg
import redis

from computeplatform import launch

T = TypeVar("T")

STARTING_SECONDS = 60.0  # several Python processes at once, on a machine that has other things to do


def until(look: Callable[[], T], good: Callable[[T], object] = bool, *, seconds: float = 20.0) -> T:
    """Look again and again until it is good, and return what was seen; fails after so many seconds."""
    late = time.monotonic() + seconds
    while True:
        seen = look()
        if good(seen):
            return seen
        assert time.monotonic() < late, f"after {seconds} s: {seen}"
        time.sleep(0.02)


def client(base_url: str) -> httpx.Client:
    """What all callers of a server speak through."""
    return httpx.Client(base_url=base_url, timeout=45, trust_env=False)


class Caller:
    """Somebody with a token."""

    def __init__(self, http: httpx.Client, tenant_id: str, token: str) -> None:
        self.tenant_id = tenant_id
        self._http, self._headers = http, {"Authorization": f"Bearer {token}"}

    def post(self, method: str, *, service: str = "compute", **fields: Any) -> httpx.Response:
        """The answer as it came."""
        fields = {"tenantId": self.tenant_id, **fields}
        return self._http.post(f"/api/{service}/{method}", json=fields, headers=self._headers)

    def __call__(self, method: str, **fields: Any) -> Any:
        """The data of an answer that is good."""
        answer = self.post(method, **fields)
        assert answer.status_code == 200, answer.text
        return answer.json()["data"]

    def get(self, reservation_id: str) -> Any:
        return self("reservations/get", reservationId=reservation_id)

    def state_of(self, reservation_id: str) -> str:
        return str(self.get(reservation_id)["reservation"]["state"])

    def follow(self, reservation_id: str, goal: str, *, seconds: float = 20.0) -> Any:
        """What `get` answers once the reservation is in this state."""
        return until(lambda: self.get(reservation_id), lambda a: a["reservation"]["state"] == goal, seconds=seconds)

    def events(self) -> list[Any]:
        """All stamped events of the tenant."""
        found: list[Any] = []
        while page := self("events/list", after=found[-1]["sequence"] if found else 0, limit=1000)["events"]:
            found += page
        return found

    def types_of(self, reservation_id: str) -> list[str]:
        """What has happened to a reservation, in order."""
        mine = [event for event in self.events() if event["subject"]["id"] == reservation_id]
        return [event["type"].removeprefix("reservation.") for event in mine]


class Installation:
    """Web, beat, workers and simulated nodes on a database of their own, with the command lines of `manage.py up`."""

    def __init__(self, state_dir: Path) -> None:
        worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
        self.database_url = self._fresh_database(f"journeys_{worker}")
        # Not one of those that every test empties.
        redis_url = urlunsplit(urlsplit(os.environ["REDIS_URL"])._replace(path=f"/{14 - worker}"))
        redis.Redis.from_url(redis_url).flushdb()
        self.state_dir = state_dir
        self.port = launch.free_port(0)
        self.base_url = launch.base_url(self.port)
        servers = {"DATABASE_URL": self.database_url, "REDIS_URL": redis_url}
        self.environment = launch.child_environment(state_dir, servers) | {"LOG_LEVEL": "INFO"}  # workers log "ready"
        self.options = argparse.Namespace(port=self.port, state_dir=state_dir, workers=2, nodes=4, seed="demo")
        launch.prepare(self.options, state_dir, self.port, self.environment)
        self.credentials_file = state_dir / "credentials.json"
        self.credentials: Any = json.loads(self.credentials_file.read_text())
        self.pool_id = self.credentials["pool"]["id"]
        self._commands = launch.processes(self.options, state_dir, self.port)
        self._commands["beat2"] = self._commands["beat"]
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._http = client(self.base_url)

    @staticmethod
    def _fresh_database(name: str) -> str:
        url = os.environ["DATABASE_URL"]
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
            connection.execute(f"CREATE DATABASE {name}")
        return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))

    def caller(self, tenant_id: str, name: str = "user") -> Caller:
        """One of the people in the credentials."""
        return Caller(self._http, tenant_id, self.credentials["tenants"][tenant_id][name])

    def signed_in(self, tenant_id: str, token: str) -> Caller:
        """Somebody with a token that was made meanwhile."""
        return Caller(self._http, tenant_id, token)

    def platform(self) -> Caller:
        """The platform's administrator."""
        return Caller(self._http, "platform", self.credentials["platform"]["admin"])

    def start(self, *names: str) -> None:
        """Start parts that do not run, and wait until workers listen and the web process is ready."""
        started = [name for name in names if name not in self._running]
        for name in started:
            with (self.state_dir / f"{name}.log").open("wb") as log:
                self._running[name] = subprocess.Popen(
                    self._commands[name], cwd=launch.BASE_DIR, env=self.environment,
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                )  # fmt: skip
        for name in started:
            if name.startswith("worker"):
                until(lambda: " ready." in self.log(name), seconds=STARTING_SECONDS)  # noqa: B023 - used at once
        if "web" in started:
            until(self._answers, seconds=STARTING_SECONDS)

    def ready(self) -> None:
        """Run one of everything, until `/readyz` says so."""
        for surplus in {"worker2", "beat2"} & self._running.keys():
            self.kill(surplus)
        self.start("web", "beat", "worker1", "nodes")
        until(
            lambda: self._get("/readyz"), lambda answer: answer and answer.status_code == 200, seconds=STARTING_SECONDS
        )

    def _answers(self) -> bool:
        return self._get("/healthz") is not None

    def _get(self, path: str) -> httpx.Response | None:
        try:
            return self._http.get(path)
        except httpx.TransportError:
            return None

    def log(self, name: str) -> str:
        return (self.state_dir / f"{name}.log").read_text(errors="replace")

    def signal(self, name: str, signum: signal.Signals) -> None:
        """Send a signal to a part and all its children."""
        os.killpg(self._running[name].pid, signum)

    def stop(self, *names: str) -> None:
        """Ask parts to end, as an operator would, and wait for it."""
        running = [self._running.pop(name) for name in names if name in self._running]
        for process in running:
            process.send_signal(signal.SIGTERM)
        for process in running:
            process.wait(30)

    def kill(self, name: str) -> None:
        """kill -9, the children too."""
        process = self._running.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)

    def end(self) -> None:
        """End everything at once: the tests are over."""
        self._http.close()
        for process in self._running.values():
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
            process.kill()
            process.wait(30)
        self._running.clear()

    def rows(self, statement: str, *values: object) -> list[Any]:
        """What the database holds."""
        with psycopg.connect(self.database_url) as connection:
            return connection.execute(statement, values).fetchall()

    def manage(self, *words: object) -> subprocess.CompletedProcess[str]:
        """Run a management command with the installation's environment."""
        command = launch.manage(*words)
        return subprocess.run(
            command, cwd=launch.BASE_DIR, env=self.environment, capture_output=True, text=True, check=False
        )

    def verify(self) -> None:
        """Every invariant holds."""
        done = self.manage("verify_invariants")
        assert done.returncode == 0, done.stdout + done.stderr
