"""Calls that are parked on ``wait``: what they cost others, and how soon they are answered (CRE-15, GET-2)."""

import json
import socket
import time
from urllib.parse import urlsplit

from computeplatform.demo.client import Caller
from computeplatform.demo.stage import Stage
from tests.bench.samples import Samples

PARKED = 200
WAIT_MS = 30_000


class ParkedCalls:
    """200 calls that wait for the end of one reservation, each on a connection of its own and without a thread."""

    def __init__(self, stage: Stage, reservation_id: str) -> None:
        self._reservation_id = reservation_id
        self._caller = Caller(stage.api, "bench", "platform", stage.platform.token)
        address = urlsplit(stage.base_url)
        wait = {"until": "terminal", "timeoutMs": WAIT_MS}
        body = json.dumps({"tenantId": "platform", "reservationId": reservation_id, "wait": wait})
        call = (
            f"POST /api/compute/reservations/get HTTP/1.1\r\nHost: {address.netloc}\r\n"
            f"Authorization: Bearer {stage.platform.token}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}"
        )
        self._connections = []
        for _ in range(PARKED):
            one = socket.create_connection((address.hostname, address.port or 80), timeout=60)
            one.sendall(call.encode())
            self._connections.append(one)

    def answered(self) -> Samples:
        """End the reservation, and measure how long after that each call is answered; raises where one was not."""
        self._caller("reservations/release", reservationId=self._reservation_id)
        begun = time.perf_counter()
        durations = []
        for one in self._connections:
            with one:
                answer = one.recv(65_536)
            durations.append((time.perf_counter() - begun) * 1000)
            if not answer.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(answer[:200].decode(errors="replace"))
        durations.sort()
        middle, late = durations[PARKED // 2], durations[PARKED * 99 // 100]
        return Samples(f"answers to {PARKED} parked calls after the end", p50=[middle], p99=[late])
