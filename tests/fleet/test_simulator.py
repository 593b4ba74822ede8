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
from computeplatform.simulator.orders import Orders, path_of, read_orders, write_orders
from computeplatform.simulator.runner import read_nodes
from fleet.models import Device, Node
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
    assert [device["position"] for device in node.state.holdings["r1"].devices] == [3]


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


# --- Faults to order --------------------------------------------------------------------------------------------------


def holders(node: Machine) -> dict[str, tuple[str, int]]:
    return {a["reservationId"]: (a["state"], a["holders"]) for a in node.report()["allocations"]}


@pytest.mark.clause("NOD-3", "faults to order: stuck pods")
@pytest.mark.parametrize("stuck", [True, ["r1"]])
def test_stuck_pods_keep_the_devices(stuck: Any):
    node = machine()
    follow(node, told("r1", "bound", 0), told("r2", "bound", 1))
    node.obey(Orders(stuck=stuck))
    for _ in range(3):
        follow(node, told("r1", "withdrawn", 0), told("r3", "bound", 0), told("r2", "bound", 1))
    assert holders(node) == {"r1": ("withdrawing", 1), "r2": ("bound", 1)}
    node.obey(Orders())
    follow(node, told("r1", "withdrawn", 0), told("r3", "bound", 0), told("r2", "bound", 1))
    assert holders(node) == {"r1": ("withdrawn", 0), "r2": ("bound", 1), "r3": ("bound", 1)}


@pytest.mark.clause("NOD-3", "faults to order: stuck pods outstay the end")
def test_stuck_pods_outstay_the_end():
    node = machine()
    follow(node, told("r1", "bound", 0))
    node.obey(Orders(stuck=True))
    node.enforce_ends(now=NOW + 1_000)
    assert holders(node) == {"r1": ("withdrawing", 1)}
    node.obey(Orders())
    node.enforce_ends(now=NOW + 1_001)
    assert holders(node) == {"r1": ("withdrawn", 0)}


@pytest.mark.clause("NOD-3", "faults to order: reboot")
def test_a_reboot_is_done_once_and_holds_nothing(tmp_path: Path):
    node = machine()
    follow(node, told("r1", "bound", 0))
    assert node.obey(Orders(reboot=1)) == ["boots again and holds nothing"]
    booted = node.report()
    assert (booted["bootId"] != "b1", "session" in booted, booted["allocations"]) == (True, False, [])
    node.state.save(tmp_path / "n1.json")
    again = Machine(node.hardware, State.load(tmp_path / "n1.json"))
    assert again.obey(Orders(reboot=1)) == []
    assert again.report()["bootId"] == booted["bootId"]
    assert again.obey(Orders(reboot=2)) != []


@pytest.mark.clause("NOD-3", "faults to order: a sick device")
def test_a_sick_device_says_so():
    node = machine()
    node.obey(Orders(sick=[2]))
    assert [d["health"] for d in node.report()["devices"]] == ["ok", "ok", "unhealthy", "ok"]
    node.obey(Orders())
    assert {d["health"] for d in node.report()["devices"]} == {"ok"}


def parts(name: str, desired: str, *devices: tuple[int, str, str]) -> dict[str, Any]:
    given = [{"position": position, "uuid": uuid, "class": class_} for position, class_, uuid in devices]
    return told(name, desired) | {"devices": given}


@pytest.mark.clause("NOD-3", "MIG instances and slots")
def test_instances_are_bound_each_once():
    node = machine(mig=["3g.40gb", "1g.10gb"])
    a, b = (instance["uuid"] for instance in node.report()["devices"][0]["mig"])
    assert a != b
    assert follow(node, parts("r1", "bound", (0, "mig", a))) == {"r1": "bound"}
    held = parts("r1", "bound", (0, "mig", a))
    assert "r2" not in follow(node, held, parts("r2", "bound", (0, "mig", a)))
    assert "r3" not in follow(node, held, parts("r3", "bound", (0, "gpu", "whole")))
    assert follow(node, held, parts("r2", "bound", (0, "mig", b)))["r2"] == "bound"


@pytest.mark.clause("NOD-3", "MIG instances and slots")
def test_a_gpu_has_so_many_slots():
    node = machine(slots=3)
    assert {device["slots"] for device in node.report()["devices"]} == {3}
    two = parts("r1", "bound", (0, "slot", "g"), (0, "slot", "g"))
    assert follow(node, two) == {"r1": "bound"}
    assert "r2" not in follow(node, two, parts("r2", "bound", (0, "slot", "g"), (0, "slot", "g")))
    assert follow(node, two, parts("r3", "bound", (0, "slot", "g")))["r3"] == "bound"


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"sick": 3}', '{"late": -1}', '{"reboot": "x"}', '{"stuck": 7}', '{"other": 1}', '{"late": null}'],
)
def test_orders_that_cannot_be_read_say_why(tmp_path: Path, text: str):
    path = path_of(tmp_path, "n1")
    path.write_text(text)
    with pytest.raises(ValueError, match=r"n1\.orders\.json"):
        read_orders(path)


def test_orders_are_read_as_they_were_given(tmp_path: Path):
    path = path_of(tmp_path, "n1")
    assert read_orders(path) == Orders()
    orders = Orders(late=1.5, lost=True, repeat=True, stuck=["r1"], reboot=2, sick=[0])
    write_orders(path, orders)
    assert read_orders(path) == orders


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


def speaks_on(node_id: str) -> None:
    """Wait until the node has spoken five more times."""
    before = Node.objects.get(id=node_id).sequence
    wait_until(lambda: Node.objects.get(id=node_id).sequence >= before + 5)


@pytest.mark.slow
@pytest.mark.clause("NOD-3", "faults are ordered while it runs, and survive kill -9")
def test_faults_are_ordered_while_it_runs(committed_world: World, live_server, tmp_path: Path):
    world = committed_world
    pool_id = world.pool()
    made = [world.admin("nodes/register", name=f"sim-{n}", poolId=pool_id, positions=2).data for n in "fg"]
    node_id, beside = (one["node"]["id"] for one in made)
    entries = [{"nodeId": one["node"]["id"], "token": one["token"], "positions": 2} for one in made]
    (tmp_path / "nodes.json").write_text(json.dumps(entries))
    want, order = Desire(node_id, pool_id), path_of(tmp_path / "nodes", node_id)

    def stored() -> Node:
        return Node.objects.get(id=node_id)

    running = Running(live_server.url, tmp_path)
    try:
        wait_until(lambda: stored().state == "ready")
        want.plan("res_1")
        want.bind("res_1")
        wait_until(lambda: want.rows() == {"res_1": ("bound", "bound")})
        write_orders(order, Orders(stuck=True, sick=[1], repeat=True))
        want.withdraw("res_1")
        wait_until(lambda: want.rows() == {"res_1": ("withdrawn", "withdrawing")})
        wait_until(lambda: Device.objects.get(node=node_id, position=1).health == "unhealthy")
        running.kill()
        running = Running(live_server.url, tmp_path)
        before = stored().sequence
        wait_until(lambda: stored().sequence > before + 2)
        assert want.rows() == {"res_1": ("withdrawn", "withdrawing")}, "the pods are still there"
        write_orders(order, Orders(reboot=1))
        wait_until(lambda: want.rows() == {})
        assert Device.objects.get(node=node_id, position=1).health == "ok"
        write_orders(order, Orders(lost=True, reboot=1))
        # The other node is as quick; by the time that it has spoken a few times, this one has read its orders.
        speaks_on(beside)
        silent = stored().sequence
        speaks_on(beside)
        assert stored().sequence == silent
    finally:
        running.kill()
