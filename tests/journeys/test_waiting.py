"""Calls that wait, on real processes (CRE-15, GET-2), and a pool with a placer of its own (CRE-14)."""

import json
import socket
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.journeys.installation import Installation

pytestmark = pytest.mark.slow

WAITING = 200


def hold(installation: Installation, gpus: int, **changed: Any) -> dict[str, Any]:
    devices = {"class": "gpu", "count": gpus}
    asked = {"poolId": installation.pool_id, "devices": devices, "durationSeconds": 3600}
    return asked | {"idempotencyKey": uuid.uuid4().hex} | changed


def send(installation: Installation, method: str, fields: dict[str, Any]) -> socket.socket:
    """Make the call of acme's user on a connection of its own; its answer is not read yet."""
    body = json.dumps({"tenantId": "acme", **fields})
    connection = socket.create_connection(("127.0.0.1", installation.port), timeout=30)
    connection.sendall(
        f"POST /api/compute/{method} HTTP/1.1\r\nHost: 127.0.0.1:{installation.port}\r\n"
        f"Authorization: Bearer {installation.credentials['tenants']['acme']['user']}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode()
    )
    return connection


def answer(connection: socket.socket) -> dict[str, Any]:
    """The data of a good answer."""
    with connection:
        received = b"".join(iter(lambda: connection.recv(65_536), b""))
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), received
    return dict(json.loads(body)["data"])


@pytest.mark.clause("CRE-15", "200 waiting calls do not slow a get")
@pytest.mark.clause("GET-2", "parked like a create: all are answered as soon as it holds")
def test_many_wait_and_nobody_is_held_up(installation: Installation):
    ann = installation.caller("acme")
    made = ann("reservations/create", **hold(installation, 1))["reservation"]
    ann.follow(made["id"], "active")
    wait = {"until": "terminal", "timeoutMs": 30_000}
    waiting = [
        send(installation, "reservations/get", {"reservationId": made["id"], "wait": wait}) for _ in range(WAITING)
    ]
    took = []
    for _ in range(50):
        begun = time.monotonic()
        assert ann.state_of(made["id"]) == "active"
        took.append(time.monotonic() - begun)
    # If each held a thread, the 200 would have to time out first.
    assert max(took) < 5
    begun = time.monotonic()
    ann("reservations/release", reservationId=made["id"])
    assert {answer(one)["reservation"]["state"] for one in waiting} == {"released"}
    assert time.monotonic() - begun < 15


@pytest.fixture
def leased(installation: Installation) -> Iterator[Installation]:
    """The pool has a placer of its own meanwhile."""
    owner = installation.platform()
    owner("pools/update", poolId=installation.pool_id, policy={"placer": "pool-lease"})
    yield installation
    owner("pools/update", poolId=installation.pool_id, policy={"placer": None})


@pytest.mark.clause("CRE-14", "pool-lease: the placer is woken by create")
@pytest.mark.clause("CRE-15", "wait holds the answer while it is Queued")
def test_the_queue_is_placed_at_once(leased: Installation):
    ann = leased.caller("acme")
    queued = ann("reservations/create", **hold(leased, 1))["reservation"]
    assert (queued["state"], queued["conditions"][0]["type"]) == ("pending", "Queued")
    begun = time.monotonic()
    made = ann("reservations/create", **hold(leased, 1, wait={"timeoutMs": 30_000}))["reservation"]
    assert made["state"] in ("placed", "binding", "active")
    assert time.monotonic() - begun < 15, "the 30 s tick found it, not the wake"
    ann.follow(queued["id"], "active")


@pytest.mark.clause("CRE-14", "pool-lease: a killed worker's queue is taken over")
def test_a_killed_worker_leaves_the_queue_to_the_next(leased: Installation):
    ann = leased.caller("acme")
    made = [ann("reservations/create", **hold(leased, 1))["reservation"] for _ in range(5)]
    leased.kill("worker1")
    leased.start("worker1")
    for one in made:
        ann.follow(one["id"], "active", seconds=60)
