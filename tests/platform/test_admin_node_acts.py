"""What operators do to nodes and pools on their pages: through the operations, in the audit log (OPS-1)."""

from typing import Any

import pytest
from django.contrib.admin.utils import quote
from django.contrib.messages import get_messages
from django.urls import reverse

from computeplatform.models import Event
from fleet.models import Maintenance, Node, Pool, Taint
from fleet.reconcilers import silence_tick
from iam.models import Decision
from tests.platform.conftest import administrator, sign_in  # noqa: F401 - fixtures of the acts' pages
from tests.support.world import HOUR, World, request


def act(client: Any, page: str, row_id: str, name: str, **posted: str) -> Any:
    return client.post(reverse(f"admin:{page}_{name}", args=[quote(row_id)]), posted)


def confirm(client: Any, page: str, row_id: str, name: str) -> list[str]:
    """Do it; returns what the operator is told."""
    answer = act(client, page, row_id, name, confirmed="yes", reason="the rack burns")
    storage: Any = get_messages(answer.wsgi_request)
    return [f"{message.level_tag}: {message.message}" for message in storage._queued_messages]


def entries() -> list[tuple[str, str, str]]:
    rows = Decision.objects.filter(context__has_key="operator").order_by("at", "id")
    return [
        (d.context["operator"]["method"], d.context["operator"]["subject"]["id"], d.context["operator"]["reason"])
        for d in rows
    ]


@pytest.fixture
def node(world: World) -> str:
    return world.node(world.offered_pool(nodes=0)).id


@pytest.mark.clause("OPS-1", "drain, clear taints and remove a node, in the audit log under the operator's name")
def test_drain_and_remove(world: World, operator, node: str):
    assert "is emptied" in act(operator, "fleet_node", node, "drain").content.decode()
    assert not Node.objects.get().draining
    (told,) = confirm(operator, "fleet_node", node, "drain")
    assert told.endswith(": draining")
    row = Node.objects.get()
    assert (row.draining, row.cordon_reason) == (True, "the rack burns")
    (told,) = confirm(operator, "fleet_node", node, "remove")
    assert told.endswith(": removed")
    assert Node.objects.get().removed_at is not None
    assert set(entries()) == {("nodes/drain", node, "the rack burns"), ("nodes/remove", node, "the rack burns")}
    page = operator.get(reverse("admin:fleet_node_change", args=[quote(node)])).content.decode()
    assert "removed" in page


@pytest.mark.clause("NOD-1", "remove: refused in the admin too while something is booked")
def test_a_node_in_use_is_not_removed(world: World, operator, node: str):
    pool = str(Node.objects.get().pool_id)
    world.ann.api("reservations/create", **request(pool, 2))
    assert "1 allocations are in the way" in act(operator, "fleet_node", node, "remove").content.decode()
    (told,) = confirm(operator, "fleet_node", node, "remove")
    assert told.startswith("error: ")
    assert "1 allocations of this node are live" in told
    assert Node.objects.get().removed_at is None


@pytest.mark.clause("NOD-6", "the operator decides on the node's page")
def test_adopt(world: World, operator, node: str):
    (sim,) = world.nodes
    sim.session, sim.holds = 9, {"res_lost": "bound"}
    sim.sync()
    asked = act(operator, "fleet_node", node, "adopt").content.decode()
    assert "is told to withdraw 1 allocations that are unknown here" in asked
    assert "res_lost" in operator.get(reverse("admin:fleet_node_change", args=[quote(node)])).content.decode()
    (told,) = confirm(operator, "fleet_node", node, "adopt")
    assert told.endswith(": adopted")
    assert Node.objects.get().state == "ready"
    assert "is not adopting" in act(operator, "fleet_node", node, "adopt").content.decode()


@pytest.mark.clause("REC-8", "the operator says so on the pool's page")
def test_give_up_what_is_silent(world: World, operator, clock):
    pool = world.pool()
    for _ in range(3):
        world.node(pool, gpus=0)
    clock.advance(seconds=60)
    silence_tick()
    page = operator.get(reverse("admin:fleet_pool_change", args=[quote(pool)])).content.decode()
    assert "many nodes silent since" in page.lower()
    assert "its 3 held nodes" in act(operator, "fleet_pool", pool, "end_silence").content.decode()
    confirm(operator, "fleet_pool", pool, "end_silence")
    assert set(Node.objects.values_list("state", flat=True)) == {"lost"}
    assert Pool.objects.get().mass_silence_since is None
    assert entries() == [("pools/endMassSilence", pool, "the rack burns")]
    assert Event.objects.get(type="pool.mass-silence-ended").reason == "operator"


def test_the_taint_of_many_silent_nodes_is_not_cleared_by_itself(world: World, operator, clock):
    pool = world.pool()
    nodes = [world.node(pool, gpus=0) for _ in range(3)]
    clock.advance(seconds=60)
    silence_tick()
    confirm(operator, "fleet_node", nodes[0].id, "clear_taints")
    assert Taint.objects.filter(key="MassSilence").count() == 3


@pytest.mark.clause("NOD-7", "an operator cancels a maintenance")
def test_cancel_a_maintenance(world: World, operator, node: str, clock):
    made = world.admin(
        "nodes/maintenance", **{"nodeId": node, "from": clock.now + HOUR, "until": clock.now + 2 * HOUR}
    ).data["maintenance"]["id"]
    assert made in operator.get(reverse("admin:fleet_node_change", args=[quote(node)])).content.decode()
    assert operator.get(reverse("admin:fleet_maintenance_changelist")).status_code == 200
    assert operator.get(reverse("admin:fleet_maintenance_change", args=[quote(made)])).status_code == 200
    confirm(operator, "fleet_maintenance", made, "cancel")
    assert not Maintenance.objects.exists()
    assert entries() == [("nodes/cancelMaintenance", node, "the rack burns")]
