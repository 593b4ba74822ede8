"""The simulated node: its rules, and one that is killed while it talks to a real server."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from computeplatform.simulator.machine import Hardware, Machine, State
from computeplatform.simulator.runner import read_nodes
from tests.fleet.conftest import Desire
from tests.support.world import World

NOW = 1_000_000


def machine(**changed: Any) -> Machine:
    entry = {"nodeId": "n1", "token": "t", "gpus": 4, "host": {"vcpu": 8, "memoryMiB": 1_000}} | changed
    return Machine(Hardware.from_json(entry), State(boot_id="b1", session=1))


def told(name: str, desired: str, *positions: int, until: int = NOW + 1_000, **resources: int) -> dict[str, Any]:
    devices = [{"position": position, "uuid": "u", "class": "gpu"} for position in positions]
    return {"reservationId": name, "desired": desired, "devices": devices, "resources": resources, "until": until}


def follow(node: Machine, *items: dict[str, Any], now: int = NOW) -> dict[str, str]:
    """One answer; returns what the next report will say."""
    node.follow({"session": 1, "heartbeatSeconds": 10, "allocations": list(items)}, now=now)
    return {a["reservationId"]: a["state"] for a in node.report()["allocations"]}


@pytest.mark.clause("NOD-8", "binds only after the allocation before is withdrawn")
def test_it_binds_a_held_device_only_after_it_has_withdrawn_it():
    node = machine()
    assert follow(node, told("r1", "bound", 0, 1)) == {"r1": "bound"}
    assert follow(node, told("r1", "bound", 0, 1), told("r2", "bound", 1, 2)) == {"r1": "bound"}
    assert follow(node, told("r1", "withdrawn", 0, 1), told("r2", "bound", 1, 2)) == {"r1": "withdrawing"}
    assert follow(node, told("r1", "withdrawn", 0, 1), told("r2", "bound", 1, 2)) == {"r1": "withdrawn", "r2": "bound"}
    assert follow(node, told("r2", "bound", 1, 2)) == {"r2": "bound"}, "forgotten once nobody asks"


@pytest.mark.clause("NOD-8", "acts on until by itself")
def test_it_ends_by_itself_what_has_reached_its_end():
    node = machine()
    follow(node, told("r1", "bound", 0, until=NOW + 5), told("r2", "bound", 1, until=NOW + 500))
    node.enforce_ends(now=NOW + 4)
    assert {name: held.state for name, held in node.state.holdings.items()} == {"r1": "bound", "r2": "bound"}
    node.enforce_ends(now=NOW + 5)
    assert {name: held.state for name, held in node.state.holdings.items()} == {"r1": "withdrawn", "r2": "bound"}
    # The server, reached again, still wants it: its time is over all the same.
    assert follow(node, told("r1", "bound", 0, until=NOW + 5), now=NOW + 6)["r1"] == "withdrawn"
    assert follow(node, told("r1", "bound", 0, until=NOW + 500), now=NOW + 7)["r1"] == "bound", "unless it was extended"


def test_it_reports_withdrawn_what_it_never_had_and_keeps_what_nobody_mentions():
    node = machine()
    assert follow(node, told("r1", "planned", 0)) == {}
    assert follow(node, {"reservationId": "r9", "desired": "withdrawn"}) == {"r9": "withdrawn"}
    follow(node, told("r1", "bound", 0))
    assert follow(node) == {"r1": "bound"}


def test_it_lets_go_before_it_binds_other_devices_for_the_same_reservation():
    node = machine()
    follow(node, told("r1", "bound", 0))
    assert follow(node, told("r1", "bound", 3)) == {"r1": "withdrawing"}
    assert follow(node, told("r1", "bound", 3)) == {"r1": "bound"}
    assert node.state.holdings["r1"].positions == [3]


@pytest.mark.clause("HST-1", "the node enforces the amounts")
@pytest.mark.parametrize(
    ("second", "fits"), [({"vcpuMilli": 4_000}, True), ({"vcpuMilli": 4_001}, False), ({"memoryMiB": 901}, False)]
)
def test_it_binds_no_more_host_than_it_has(second, fits):
    node = machine()
    follow(node, told("r1", "bound", 0, vcpuMilli=4_000, memoryMiB=100))
    said = follow(node, told("r1", "bound", 0, vcpuMilli=4_000, memoryMiB=100), told("r2", "bound", 1, **second))
    assert ("r2" in said) == fits


@pytest.mark.clause("NOD-9", "a living node that is stale opens a new session")
def test_a_stale_answer_makes_it_open_a_session_and_nothing_else():
    node = machine()
    follow(node, told("r1", "bound", 0))
    node.follow(
        {"session": 7, "stale": True, "allocations": [told("r1", "withdrawn", 0)], "heartbeatSeconds": 1}, now=NOW
    )
    report = node.report()
    assert "session" not in report
    assert [a["state"] for a in report["allocations"]] == ["bound"]


def test_a_restart_is_no_reboot(tmp_path: Path):
    path = tmp_path / "n1.json"
    node = machine()
    follow(node, told("r1", "bound", 0, vcpuMilli=5))
    node.state.save(path)
    again = State.load(path)
    assert again == node.state
    assert State.load(tmp_path / "other.json").boot_id != again.boot_id


@pytest.mark.parametrize("text", ["{}x", "[{}]", '[{"nodeId": "a", "token": "t"}]', "[1]", "5"])
def test_a_nodes_file_that_cannot_be_read_says_why(tmp_path: Path, text: str):
    path = tmp_path / "nodes.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"nodes\.json"):
        read_nodes(path)


class Running:
    """``manage.py simulate_nodes`` as a process of its own, against a served test database."""

    def __init__(self, url: str, folder: Path) -> None:
        words = ["simulate_nodes", "--url", url, "--state-dir", str(folder), "--poll-ms", "20"]
        with (folder / "log").open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(settings.BASE_DIR / "manage.py"), *words],
                env={**os.environ, "DJANGO_SETTINGS_MODULE": "computeplatform.settings"},
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(timeout=10)


def wait_until(true: Any, *, seconds: float = 20) -> None:
    """Look until it is so; another process is doing its work meanwhile."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.clause("NOD-3", "simulated nodes speak the protocol over HTTP and survive kill -9")
def test_nodes_bind_and_survive_a_kill(committed_world: World, live_server, tmp_path: Path):
    world = committed_world
    pool_id = world.pool()
    entries = []
    for number in range(2):
        made = world.admin("nodes/register", name=f"sim-{number}", poolId=pool_id, positions=4).data
        entries.append({"nodeId": made["node"]["id"], "token": made["token"], "positions": 4, "host": {"vcpu": 8}})
    (tmp_path / "nodes.json").write_text(json.dumps(entries))
    want = Desire(entries[0]["nodeId"], pool_id)

    def node(number: int = 0) -> dict[str, Any]:
        found: dict[str, Any] = world.admin("nodes/get", nodeId=entries[number]["nodeId"]).data["node"]
        return found

    def remembered() -> dict[str, Any]:
        state: dict[str, Any] = json.loads((tmp_path / "nodes" / f"{entries[0]['nodeId']}.json").read_text())
        return state

    running = Running(live_server.url, tmp_path)
    try:
        wait_until(lambda: {node(0)["state"], node(1)["state"]} == {"ready"})
        assert len(node()["devices"]) == 4
        want.plan("res_1")
        want.bind("res_1")
        wait_until(lambda: want.rows() == {"res_1": ("bound", "bound")})
        running.kill()
        before = remembered()
        assert before["holdings"]["res_1"]["state"] == "bound"
        want.withdraw("res_1")
        want.plan("res_2")
        want.bind("res_2")
        running = Running(live_server.url, tmp_path)
        wait_until(lambda: want.rows() == {"res_2": ("bound", "bound")})
        assert (remembered()["boot_id"], remembered()["session"]) == (before["boot_id"], before["session"])
        assert remembered()["sequence"] > before["sequence"]
        want.withdraw("res_2")
        wait_until(lambda: want.rows() == {})
    finally:
        running.kill()
