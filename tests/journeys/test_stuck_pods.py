"""Pods that do not go, on real processes: the devices stay with them, and come back when they have gone."""

import uuid

import pytest

from computeplatform.simulator.orders import Orders, path_of, write_orders
from tests.journeys.installation import Installation, until

pytestmark = pytest.mark.slow


@pytest.mark.clause("REL-2", "held until the node reports AllocationReleased, with a real worker and node")
@pytest.mark.clause("REL-3", "stuck at the end, and cleared by the node's report, with a real worker and node")
@pytest.mark.clause("NOD-3", "stuck pods can be ordered, and survive a killed simulator")
def test_stuck_pods(installation: Installation):
    owner = installation.platform()
    owner("pools/update", poolId=installation.pool_id, policy={"kubernetes": {"cluster": "journey"}})
    asked = {"poolId": installation.pool_id, "devices": {"class": "gpu", "count": 8}, "durationSeconds": 10}
    made = owner("reservations/create", **asked, binding="kubernetes", idempotencyKey=uuid.uuid4().hex)["reservation"]
    [place] = owner.follow(made["id"], "active")["reservation"]["placement"]
    orders = path_of(installation.state_dir / "nodes", place["nodeId"])
    write_orders(orders, Orders(stuck=True))
    try:
        released = owner("reservations/release", reservationId=made["id"])["reservation"]
        assert released["state"] == "released"
        assert conditions(owner, made["id"]) == {"DevicesHeld"}
        installation.kill("nodes")
        installation.start("nodes")
        # Its time runs out, and the pods are still there.
        until(lambda: taints(owner, place["nodeId"]), lambda keys: keys == {"KubernetesReleaseStuck"}, seconds=30)
        assert conditions(owner, made["id"]) == {"DevicesHeld"}
        installation.verify()
    finally:
        orders.unlink()
    until(lambda: conditions(owner, made["id"]), lambda found: not found)
    until(lambda: taints(owner, place["nodeId"]), lambda keys: not keys)
    installation.verify()


def conditions(owner, reservation_id: str) -> set[str]:
    return {one["type"] for one in owner.get(reservation_id)["reservation"]["conditions"]}


def taints(owner, node_id: str) -> set[str]:
    return {taint["key"] for taint in owner("nodes/get", nodeId=node_id)["node"]["taints"]}
