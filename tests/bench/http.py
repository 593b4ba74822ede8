"""Creates and gets over HTTP against a whole installation of its own: web, worker, beat, PostgreSQL, Valkey."""

import itertools
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

from computeplatform.demo.stage import Stage, own_stage
from computeplatform.launch import BASE_DIR
from tests.bench.samples import Samples

HOUR = 3_600_000
ROUNDS = 3
SECONDS = 4.0

_keys = itertools.count()


def measure() -> Iterator[Samples]:
    """With one client and with sixteen."""
    with own_stage(BASE_DIR / ".local" / "bench") as stage:
        for clients in (1, 16):
            yield _rounds(f"create, {clients} clients", stage, clients, _create)
        for clients in (1, 16):
            yield _rounds(f"get, {clients} clients", stage, clients, _get)


def _rounds(name: str, stage: Stage, clients: int, call: "Call") -> Samples:
    samples = Samples(name)
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        with ThreadPoolExecutor(clients) as pool:
            parts = [pool.submit(_client, stage, call, begun + SECONDS) for _ in range(clients)]
            durations = [value for part in parts for value in part.result()]
        samples.rounds.append(durations)
        samples.rates.append(len(durations) / (time.perf_counter() - begun))
    return samples


Call = Callable[[Stage, "Client"], None]


class Client:
    """One kept connection of the platform's administrator, on plain sockets: it must cost less than it measures."""

    def __init__(self, stage: Stage) -> None:
        self._connection = HTTPConnection(urlsplit(stage.base_url).netloc, timeout=60)
        token = stage.platform.token
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self.reservation_id = ""

    def post(self, method: str, fields: dict[str, Any]) -> dict[str, Any]:
        """Call a method; raises AssertionError for anything but success."""
        body = json.dumps({"tenantId": "platform"} | fields)
        self._connection.request("POST", f"/api/compute/{method}", body, self._headers)
        answer = self._connection.getresponse()
        text = answer.read()
        assert answer.status == 200, text
        return dict(json.loads(text)["data"])


def _client(stage: Stage, call: Call, until: float) -> list[float]:
    client = Client(stage)
    durations = []
    while (begun := time.perf_counter()) < until:
        call(stage, client)
        durations.append((time.perf_counter() - begun) * 1000)
    return durations


def _create(stage: Stage, client: Client) -> None:
    """One GPU for an hour, each at another time, so that most find a place."""
    number = next(_keys)
    starts_at = int(time.time() * 1000) + (1 + number % 2_000) * HOUR
    client.post(
        "reservations/create",
        {
            "poolId": stage.platform.pool_id,
            "devices": {"class": "gpu", "count": 1},
            "startsAt": starts_at,
            "durationSeconds": 3600,
            "idempotencyKey": f"bench-{number}",
        },
    )


def _get(stage: Stage, client: Client) -> None:
    """The same reservation again and again."""
    if not client.reservation_id:
        client.reservation_id = client.post("reservations/list", {"limit": 1})["reservations"][0]["id"]
    client.post("reservations/get", {"reservationId": client.reservation_id})
