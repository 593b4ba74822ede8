"""A node that knows more than we do, as after a restore from backup (NOD-6)."""

from typing import Any

import pytest

from computeplatform.api.calls import Actor
from computeplatform.events.models import Event
from fleet.models import Node
from fleet.operations.nodes import adopt_node
from fleet.reconcilers import silence_tick
from tests.support.api import settle
from tests.support.world import SimNode, World, request

pytestmark = pytest.mark.django_db

OPERATOR = Actor("usr_operator")


@pytest.fixture
def node(world: World) -> SimNode:
    """Its session is newer than any that is stored here, and it holds what nobody here knows."""
    made = world.node(world.offered_pool(nodes=0))
    made.session = 7
    made.holds = {"res_before": "bound"}
    made.pods = {"res_before": 2}
    made.sync()
    return made


def shown(world: World, node: SimNode) -> dict[str, Any]:
    return dict(world.admin("nodes/get", nodeId=node.id).data["node"])


@pytest.mark.clause("NOD-6", "what the server does not know is kept and listed for the operator")
def test_what_it_holds_is_listed_and_kept(world: World, node: SimNode):
    seen = shown(world, node)
    assert seen["state"] == "adopting"
    assert seen["unknownAllocations"] == [{"reservationId": "res_before", "state": "bound", "holders": 2}]
    assert node.sync()["allocations"] == []
    node.holds["res_other"] = "withdrawing"
    del node.pods["res_before"]
    node.sync()
    assert shown(world, node)["unknownAllocations"] == [
        {"reservationId": "res_before", "state": "bound", "holders": 0},
        {"reservationId": "res_other", "state": "withdrawing", "holders": 0},
    ]
    assert [e.type for e in Event.objects.filter(subject_id=node.id).order_by("position")][-1] == "node.adopting"


@pytest.mark.clause("NOD-6", "it takes no new booking")
def test_it_takes_no_booking(world: World, node: SimNode):
    pool = str(Node.objects.get(id=node.id).pool_id)
    made = world.ann.api("reservations/create", **request(pool)).data["reservation"]
    settle()
    assert world.ann.api("reservations/get", reservationId=made["id"]).data["reservation"]["state"] == "pending"


@pytest.mark.clause("NOD-6", "nothing is withdrawn until the operator decides")
def test_the_operator_decides(world: World, node: SimNode):
    before = shown(world, node)["version"]
    adopt_node(node_id=node.id, reason="restored", by=OPERATOR, now=1)
    seen = shown(world, node)
    assert (seen["state"], seen["version"]) == ("ready", before + 1)
    assert "unknownAllocations" not in seen
    assert node.sync()["allocations"] == [{"reservationId": "res_before", "desired": "withdrawn"}]
    event = Event.objects.get(type="node.adopted")
    assert (event.reason, event.actor_id) == ("restored", "usr_operator")
    assert [one["reservationId"] for one in event.data["withdrawn"]] == ["res_before"]
    adopt_node(node_id=node.id, reason="again", by=OPERATOR, now=2)
    assert Event.objects.filter(type="node.adopted").count() == 1
    pool = str(Node.objects.get(id=node.id).pool_id)
    assert world.ann.api("reservations/create", **request(pool)).data["reservation"]["state"] == "placed"


def test_what_it_no_longer_holds_is_no_longer_listed(world: World, node: SimNode):
    node.holds = {}
    node.sync()
    assert "unknownAllocations" not in shown(world, node)
    assert shown(world, node)["state"] == "adopting"


def test_a_silent_one_stays_adopting(world: World, node: SimNode, clock):
    heard = clock.now
    clock.advance(seconds=60)
    silence_tick()
    seen = shown(world, node)
    assert (seen["state"], seen["lostAt"]) == ("adopting", heard)
    node.sync()
    seen = shown(world, node)
    assert seen["state"] == "adopting"
    assert "lostAt" not in seen
