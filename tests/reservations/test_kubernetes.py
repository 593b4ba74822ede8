"""Binding kubernetes: who may ask for it, and what is shown of it."""

import pytest

from reservations import reconcilers
from tests.reservations.test_holding import cluster, create, let_go, release, run
from tests.support.api import settle
from tests.support.clock import Clock
from tests.support.world import World, request

__all__ = ["cluster"]


@pytest.mark.clause("CRE-10", "binding kubernetes and the pool has no policy.kubernetes")
def test_without_the_policy_it_is_refused(world: World, left):
    pool = world.pool()
    world.node(pool)
    assert world.admin("reservations/create", **request(pool, binding="kubernetes")).refused_at("binding")
    assert left() == {}


@pytest.mark.clause("CRE-10", "binding kubernetes and the tenant does not own the pool")
def test_a_borrower_is_refused(world: World, cluster: str, left):
    refused = world.ann.api("reservations/create", **request(cluster, binding="kubernetes"))
    assert "own" in refused.refused_at("binding")
    assert left() == {}


@pytest.mark.clause("CRE-10", "resources go with kubernetes, unlike node")
def test_the_owner_may_book_host_resources_with_it(world: World, cluster: str):
    made = create(world, cluster, 1, resources={"vcpu": 40, "memoryGiB": 10})
    assert (made["state"], made["binding"], made["resources"]["vcpu"]) == ("placed", "kubernetes", 40)
    wrong = request(cluster, 1, binding="node", resources={})
    assert world.admin("reservations/create", **wrong).refused("INVALID_INPUT")


@pytest.mark.clause("GET-1", "binding: per node its devices, once a node reported them bound")
@pytest.mark.clause("REC-2", "active once every node reported bound")
def test_binding_is_shown_node_by_node(world: World, cluster: str, clock: Clock):
    world.node(cluster, gpus=4)
    made = create(world, cluster, 4, nodes=2)
    settle()
    first, second = world.nodes
    assert "binding" not in world.admin("reservations/get", reservationId=made["id"]).data
    first.follow()
    reconcilers.reconcile(pool_id=cluster)
    found = world.admin("reservations/get", reservationId=made["id"]).data
    assert found["reservation"]["state"] == "binding"
    assert [(part["nodeId"], len(part["devices"])) for part in found["binding"]] == [(first.id, 4)]
    second.follow()
    reconcilers.reconcile(pool_id=cluster)
    found = world.admin("reservations/get", reservationId=made["id"]).data
    assert found["reservation"]["state"] == "active"
    assert {part["nodeId"] for part in found["binding"]} == {first.id, second.id}


@pytest.mark.clause("GET-1", "operation: the end runs until the nodes have let go")
def test_the_end_goes_on_until_the_nodes_have_let_go(world: World, cluster: str, clock: Clock):
    made = run(world, cluster)
    world.admin("reservations/release", reservationId=made["id"])
    found = world.admin("reservations/get", reservationId=made["id"]).data
    assert "binding" not in found
    operation = found["operation"]
    assert (operation["kind"], operation["status"], operation["step"]) == ("end", "running", "withdraw")
    world.nodes[0].pods.clear()
    world.nodes[0].follow()
    reconcilers.reconcile(pool_id=cluster)
    operation = world.admin("reservations/get", reservationId=made["id"]).data["operation"]
    assert (operation["kind"], operation["status"]) == ("end", "done")


@pytest.mark.clause("GET-1", "operation: an end whose devices are held is done when the node lets go")
def test_the_end_is_done_when_the_devices_are_free(world: World, cluster: str, clock: Clock):
    made = run(world, cluster)
    clock.advance(seconds=60)
    ended = clock.now
    release(world, made["id"])
    clock.advance(seconds=30)
    going = world.admin("reservations/get", reservationId=made["id"]).data["operation"]
    assert (going["kind"], going["status"], going["step"], going["startedAt"]) == ("end", "running", "withdraw", ended)
    let_go(world, world.nodes[0], cluster, made["id"])
    done = world.admin("reservations/get", reservationId=made["id"]).data["operation"]
    assert (done["status"], done["startedAt"], done["finishedAt"]) == ("done", ended, ended + 30_000)
