"""Running simulated machines: one asyncio task per node, one HTTP client for all."""

import asyncio
import json
import random
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import structlog

from computeplatform.simulator.machine import Hardware, Machine, State
from computeplatform.simulator.orders import path_of, read_orders

log = structlog.get_logger(__name__)

_TIMEOUT_SECONDS = 15.0
_PAUSE_AFTER_FAILURE = (0.5, 5.0)  # first and longest, in seconds


@dataclass(frozen=True)
class Options:
    """``poll_seconds`` is the pause between two exchanges; None: the one that the server asks for."""

    url: str
    state_dir: Path
    poll_seconds: float | None
    ca_file: Path | None = None


def read_nodes(path: Path) -> list[Hardware]:
    """The machines that a nodes file lists; raises ValueError with words for a person."""
    try:
        entries = json.loads(path.read_text())
        nodes = [Hardware.from_json(entry) for entry in entries]
    except (OSError, json.JSONDecodeError) as error:
        raise ValueError(f"{path}: {error}") from None
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: every entry is {{nodeId, token, positions, …}}: {error!r}") from None
    if len({node.node_id for node in nodes}) != len(nodes):
        raise ValueError(f"{path}: a node is listed twice")
    return nodes


async def run_nodes(nodes: Sequence[Hardware], options: Options) -> None:
    """Run the machines until the task is cancelled.

    Each keeps its state in ``<state_dir>/<nodeId>.json``, and reads what faults are ordered of it beside that.
    """
    options.state_dir.mkdir(parents=True, exist_ok=True)
    verify: ssl.SSLContext | bool = ssl.create_default_context(cafile=options.ca_file) if options.ca_file else True
    limits = httpx.Limits(max_connections=100, max_keepalive_connections=100)
    async with (
        httpx.AsyncClient(
            base_url=options.url, timeout=_TIMEOUT_SECONDS, verify=verify, limits=limits, trust_env=False
        ) as client,
        asyncio.TaskGroup() as group,
    ):
        for node in nodes:
            group.create_task(_run_node(node, client, options), name=node.node_id)


async def _run_node(hardware: Hardware, client: httpx.AsyncClient, options: Options) -> None:
    path = options.state_dir / f"{hardware.node_id}.json"
    machine = Machine(hardware, State.load(path))
    failures = 0
    last: dict[str, Any] | None = None
    # Machines that start together do not speak at the same instant for ever.
    await asyncio.sleep(random.uniform(0, options.poll_seconds or 1.0))  # noqa: S311 - jitter, no secret
    while True:
        done = _obey(machine, options)
        if machine.orders.late:
            await asyncio.sleep(machine.orders.late)
        if machine.orders.lost:
            reached, last = False, None
        else:
            if machine.orders.repeat and last is not None:
                await _send(machine, last, client)  # out of its order, as a message that was held up on its way
            reached, last, did = await _exchange(machine, client, path)
            done += did
        failures = 0 if reached else failures + 1
        if not reached:
            done += machine.enforce_ends(now=_now())
        machine.state.save(path)
        for words in done:
            log.info("node", node=hardware.node_id, does=words)
        await asyncio.sleep(_pause(machine, options, failures=failures, busy=bool(done)))


def _obey(machine: Machine, options: Options) -> list[str]:
    """The faults in force; an order that nobody can read leaves those before as they are."""
    try:
        return machine.obey(read_orders(path_of(options.state_dir, machine.hardware.node_id)))
    except ValueError as error:
        log.warning("orders_not_understood", node=machine.hardware.node_id, error=str(error))
        return []


async def _exchange(machine: Machine, client: httpx.AsyncClient, path: Path) -> tuple[bool, dict[str, Any], list[str]]:
    """One message and its answer; returns whether the server was reached, the message, and what was done."""
    message = machine.report()
    machine.state.save(path)  # a sequence number is never used for two different messages
    answer = await _send(machine, message, client)
    if answer is not None and machine.orders.repeat:
        answer = await _send(machine, message, client) or answer
    return answer is not None, message, [] if answer is None else machine.follow(answer, now=_now())


async def _send(machine: Machine, message: dict[str, Any], client: httpx.AsyncClient) -> dict[str, Any] | None:
    """The answer to a message, None if there was none."""
    try:
        response = await client.post(
            "/api/compute/nodes/sync",
            json=message,
            headers={"Authorization": f"Bearer {machine.hardware.token}"},
        )
        body = response.json()
    except (httpx.HTTPError, json.JSONDecodeError) as error:
        log.warning("node_cannot_reach_server", node=machine.hardware.node_id, error=repr(error))
        return None
    if response.status_code != httpx.codes.OK:
        log.warning("node_refused", node=machine.hardware.node_id, answer=body.get("error"))
        return None
    return dict(body["data"])


def _pause(machine: Machine, options: Options, *, failures: int, busy: bool) -> float:
    """Seconds until the next message: at once after doing something, longer and longer after failing."""
    if failures:
        first, longest = _PAUSE_AFTER_FAILURE
        return random.uniform(0.5, 1.0) * min(longest, first * 2.0 ** min(failures - 1, 10))  # noqa: S311
    if busy:
        return 0.0
    wanted = float(machine.state.heartbeat_seconds)
    pause = wanted if options.poll_seconds is None else min(wanted, options.poll_seconds)
    return pause * random.uniform(0.9, 1.0)  # noqa: S311


def _now() -> int:
    return time.time_ns() // 1_000_000
