"""An installation with PostgreSQL and Valkey of its own, so that these can be stopped, killed and emptied as well."""

import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import environ
import httpx
import pytest
from django.db import connections
from pytest_django import DjangoDbBlocker

from computeplatform import launch
from computeplatform.celery import app as celery_app
from computeplatform.invariants import Violation, violations
from computeplatform.server_plans import MARK, plan_postgres, plan_valkey
from computeplatform.servers import Server, secret_file
from tests.journeys.installation import STARTING_SECONDS, Caller, Installation, client, until

_numbers = count(1)
ONE_OF_EACH = ("web", "beat", "worker1", "nodes")
TWO_OF_EACH = ("web", "web2", "beat", "beat2", "worker1", "worker2", "worker3", "nodes")
# Workers that can be told to die, see `tests.crashing`.
CRASHING = ("web", "beat", "worker-crashing1", "worker-crashing2", "nodes")


@contextmanager
def burning_servers(folder: Path) -> Iterator[tuple[Server, Server]]:
    """PostgreSQL and Valkey that keep what they have acknowledged, as in production."""
    password = secret_file(folder / "server-password").read_text()
    servers = [Server(plan(folder, password, throwaway=False), folder) for plan in (plan_postgres, plan_valkey)]
    try:
        for server in servers:
            server.start()
        yield servers[0], servers[1]
    finally:
        for server in servers:
            server.stop()


class BurningInstallation(Installation):
    """Two of what there may be two of, on servers that can be stopped."""

    def __init__(self, folder: Path, postgres: Server, valkey: Server) -> None:
        self.postgres, self.valkey = postgres, valkey
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DATABASE_URL", self.postgres.url)
            patch.setenv("REDIS_URL", self.valkey.url)
            super().__init__(folder)
        self.order_to_crash = folder / "crash"
        self.environment |= {MARK: str(folder), "CRASH_FILE": str(self.order_to_crash)}
        self.redis_url = self.environment["REDIS_URL"]
        self._second_http = self._add_parts()

    def _add_parts(self) -> httpx.Client:
        """A second web process, a third worker, and workers that can be told to die."""
        self.options.workers = 3
        port = launch.free_port(0)
        commands = launch.processes(self.options, self.state_dir, self.port)
        for number in (1, 2):
            words = [word.replace("computeplatform.celery:", "tests.crashing:") for word in commands[f"worker{number}"]]
            assert words != commands[f"worker{number}"]
            commands[f"worker-crashing{number}"] = words
        commands["web2"] = launch.processes(self.options, self.state_dir, port)["web"]
        self._commands = commands | {"beat2": commands["beat"]}
        return client(launch.base_url(port))

    # --- Parts and servers ------------------------------------------------------------------------------------------

    def start_servers(self) -> None:
        for server in (self.postgres, self.valkey):
            if not server.pid or server.died:
                server.start()

    def kill_server(self, server: Server) -> None:
        """kill -9. What it has forked ends by itself."""
        os.kill(server.pid, signal.SIGKILL)
        until(lambda: server.died)

    def run(self, parts: Sequence[str]) -> None:
        """Run these parts and no others, until the installation is ready."""
        for name in self._running.keys() - set(parts):
            self.kill(name)
        self.start(*parts)
        until(lambda: self._get("/readyz"), lambda answer: answer and answer.status_code == 200, seconds=60)

    def start(self, *names: str) -> None:
        """As usual; whatever has died by itself counts as not running."""
        for name in self.dead():
            self.kill(name)
        late = "web2" in names and "web2" not in self._running
        super().start(*names)
        if late:
            until(self._second_answers, seconds=STARTING_SECONDS)

    def kill(self, name: str) -> None:
        """kill -9, also of one that has died by itself."""
        with suppress(ProcessLookupError):
            super().kill(name)

    def launch(self, name: str) -> None:
        """Start a part without waiting for it."""
        with (self.state_dir / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                self._commands[name], cwd=launch.BASE_DIR, env=self.environment,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def dead(self) -> list[str]:
        """Parts that have died by themselves."""
        return [name for name, process in self._running.items() if process.poll() is not None]

    def _second_answers(self) -> bool:
        try:
            return self._second_http.get("/healthz").status_code == 200
        except httpx.TransportError:
            return False

    def end(self) -> None:
        self._second_http.close()
        super().end()

    # --- Callers and what they work on ------------------------------------------------------------------------------

    def callers(self, tenant_id: str, name: str = "user") -> list[Caller]:
        """The same person at both web processes."""
        token = self.credentials["tenants"][tenant_id][name]
        return [Caller(http, tenant_id, token) for http in (self._http, self._second_http)]

    def pool(self, *, gpus: int = 8, quota: int = 1_000) -> str:
        """A new pool with one node, offered to both tenants."""
        admin, number = self.platform(), next(_numbers)
        shape = {"name": f"fire-{number}", "region": "eu-north", "gpuModel": "h100-sxm-80g", "deviceClass": "gpu"}
        pool_id = admin("pools/create", **shape)["pool"]["id"]
        for tenant_id in ("acme", "globex"):
            admin("pools/offer", poolId=pool_id, toTenantId=tenant_id, resources={"gpu": quota})
        made = admin("nodes/register", name=f"fire-{number}", poolId=pool_id, positions=gpus)
        self._report(Caller(self._http, "platform", made["token"]), made["node"]["id"], gpus)
        return str(pool_id)

    @staticmethod
    def _report(software: Caller, node_id: str, gpus: int) -> None:
        """The first message opens a session, the second one counts."""
        devices = [
            {"position": p, "uuid": f"{node_id}-{p}", "model": "h100-sxm-80g", "memoryMiB": 81_920, "health": "ok"}
            for p in range(gpus)
        ]
        message: dict[str, Any] = {"nodeId": node_id, "bootId": "one", "devices": devices, "allocations": []}
        message |= {"software": {"version": "1.0.0"}, "host": {"vcpu": 64, "memoryMiB": 524_288}}
        session = software("nodes/sync", sequence=1, **message)["session"]
        software("nodes/sync", sequence=2, session=session, **message)

    def wake(self, queue: str, task: str, **arguments: str) -> None:
        """Send what a wake or a tick sends."""
        with celery_app.connection_for_write(self.redis_url) as connection:
            celery_app.send_task(task, kwargs=arguments, queue=queue, connection=connection)

    # --- What is stored ---------------------------------------------------------------------------------------------

    def now(self) -> int:
        """The platform's time, epoch milliseconds."""
        return int(self.rows("SELECT compute_now()")[0][0])

    def story_of(self, reservation_id: str) -> dict[str, Any]:
        """How often each thing was done for a reservation, and its events in order."""
        [found] = self.rows(_STORY, reservation_id)
        names = ("state", "decisions", "charges", "charged", "bookings", "events")
        return dict(zip(names, found, strict=True))

    def states_in(self, pool_id: str) -> Counter[str]:
        """How many reservations of the pool are in each state, drafts included."""
        counted = "SELECT state, count(*) FROM reservations_reservation WHERE pool_id = %s GROUP BY 1"
        return Counter(dict(self.rows(counted, pool_id)))

    def open_drafts(self) -> int:
        """Drafts that somebody still has to finish."""
        return int(self.rows("SELECT count(*) FROM reservations_reservation WHERE call_open_until IS NOT NULL")[0][0])

    def violations(self, blocker: DjangoDbBlocker) -> list[Violation]:
        """What does not hold, asked in this process: a command would take seconds."""
        with blocker.unblock(), _default_connection_to(self.database_url):
            return violations()


_STORY = """
SELECT r.state,
    (SELECT count(*) FROM iam_decision WHERE resource_id = r.id AND action = 'compute:reservations:create'),
    (SELECT count(*) FROM quotas_charge WHERE reservation_id = r.id),
    (SELECT count(*) FROM quotas_charge WHERE reservation_id = r.id AND refunded_at IS NULL),
    (SELECT count(*) FROM reservations_booking WHERE reservation_id = r.id),
    (SELECT coalesce(array_agg(replace(type, 'reservation.', '') ORDER BY subject_version, position), '{}')
        FROM computeplatform_event WHERE subject_type = 'reservation' AND subject_id = r.id)
FROM reservations_reservation AS r WHERE r.id = %s
"""


@contextmanager
def _default_connection_to(url: str) -> Iterator[None]:
    mine = connections["default"]
    other = mine.copy()
    other.settings_dict |= environ.Env.db_url_config(url)
    connections["default"] = other
    try:
        yield
    finally:
        other.close()
        connections["default"] = mine
