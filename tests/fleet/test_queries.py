"""What other apps read and lock."""

import threading

import pytest
from django.db import OperationalError, connection, transaction

from fleet import queries
from fleet.contracts import AllocatedDevice, DeviceView
from fleet.errors import PoolNotFound
from fleet.locks import lock_pools
from fleet.models import Allocation, Node, Pool
from fleet.operations.taints import set_taint
from tests.fleet.conftest import Desire
from tests.quotas.conftest import BY
from tests.quotas.test_races import together
from tests.support.world import World


def test_a_pool_as_its_owner_and_a_borrower_see_it(world: World, clock, django_assert_num_queries):
    pool_id = world.pool(owner=world.acme.api, policy={"bindTimeoutSeconds": 7})
    with pytest.raises(PoolNotFound):
        queries.visible_pool(tenant_id="globex", pool_id=pool_id)
    world.offer(pool_id, "globex", owner=world.acme.api, maxPriority=30)
    with django_assert_num_queries(1):
        mine = queries.visible_pool(tenant_id="acme", pool_id=pool_id)
    with django_assert_num_queries(1):
        lent = queries.visible_pool(tenant_id="globex", pool_id=pool_id)
    assert (mine.offered, mine.max_priority, lent.offered, lent.max_priority) == (False, 100, True, 30)
    assert lent.policy.bind_timeout_seconds == 7
    Pool.objects.update(archived_at=clock.now)
    assert queries.visible_pool(tenant_id="globex", pool_id=pool_id).archived_at == clock.now
    with pytest.raises(PoolNotFound):
        queries.visible_pool(tenant_id="globex", pool_id=pool_id, for_booking=True)
    assert queries.pools_by_id([pool_id, "pool_none"]).keys() == {pool_id}


def test_an_offer_that_was_withdrawn_shows_nothing(world: World, clock):
    pool_id = world.pool(owner=world.acme.api)
    world.offer(pool_id, "globex", owner=world.acme.api)
    Pool.objects.get(id=pool_id).offers.update(withdrawn_at=clock.now)  # pools/withdrawOffer is not there yet
    world.gil.api("pools/get", poolId=pool_id).refused("NOT_FOUND")
    assert world.gil.api("pools/list").data["pools"] == []
    assert world.gil.api("pools/list", cursor=pool_id).data["pools"] == [], "its place in the list is still a place"
    again = world.offer(pool_id, "globex", owner=world.acme.api).data["offer"]
    assert again["version"] == 2
    assert [p["id"] for p in world.gil.api("pools/list").data["pools"]] == [pool_id]


def test_a_pools_nodes_in_three_queries_and_then_in_one(world: World, clock, django_assert_num_queries):
    pool_id = world.pool()
    nodes = [world.node(pool_id, gpus=2) for _ in range(3)]
    world.node(world.pool("other"))
    world.admin("nodes/cordon", nodeId=nodes[1].id)
    set_taint([nodes[2].id], "Updating", by=BY, now=clock.now, until=clock.now + 1)
    set_taint([nodes[2].id], "BindTimedOut", by=BY, now=clock.now)
    devices = [
        {"position": 1, "uuid": "new", "model": "m", "memoryMiB": 1, "health": "ok"},
        {"position": 0, "uuid": f"GPU-{nodes[0].name}-0", "model": "m", "memoryMiB": 1, "health": "unhealthy"},
    ]
    nodes[0].sync(devices=devices)
    with django_assert_num_queries(3):
        views = queries.pool_nodes(pool_id)
    with django_assert_num_queries(1):
        assert queries.pool_nodes(pool_id) is views
    assert [view.id for view in views] == [node.id for node in nodes], "in the order of their units"
    assert views[0].devices == (DeviceView(0, f"GPU-{nodes[0].name}-0", False), DeviceView(1, "new", True))
    assert [view.cordoned for view in views] == [False, True, False]
    assert views[2].taints == {"Updating", "BindTimedOut"}
    assert (views[0].state, views[0].host_vcpu, views[0].host_memory_mib) == ("ready", 128, 1_048_576)
    clock.advance(milliseconds=1)
    assert queries.pool_nodes(pool_id)[2].taints == {"BindTimedOut"}


@pytest.mark.parametrize(
    "change",
    [
        lambda world, node: world.admin("nodes/cordon", nodeId=node.id),
        lambda world, node: node.sync(devices=[]),
        lambda world, node: node.sync(host={"vcpu": 1, "memoryMiB": 1}),
        lambda world, node: set_taint([node.id], "Updating", by=BY, now=0),
        lambda world, node: world.admin("nodes/assign", nodeId=node.id, poolId=world.pool("other")),
    ],
)
def test_what_was_read_of_a_pool_is_read_again_after_every_change(world: World, change):
    pool_id = world.pool()
    node = world.node(pool_id, gpus=2)
    before = queries.pool_nodes(pool_id)
    change(world, node)
    assert queries.pool_nodes(pool_id) != before
    before = queries.pool_nodes(pool_id)
    world.node(pool_id)
    assert queries.pool_nodes(pool_id) != before


def test_no_more_pools_are_remembered_than_a_process_can_hold(world: World):
    for _ in range(40):
        queries.pool_nodes(world.pool())
    assert len(queries._READ) <= 32


def test_allocations_by_reservation(site, django_assert_num_queries):
    node, want = site
    want.plan("res_1", "res_2", position=3)
    want.bind("res_2")
    node.follow()
    with django_assert_num_queries(1):
        found = queries.allocations_of(["res_1", "res_2", "res_none"])
    assert found.keys() == {"res_1", "res_2"}
    one, two = found["res_1"][0], found["res_2"][0]
    assert (one.desired, one.observed, one.told_at) == ("planned", "", None)
    assert (two.desired, two.observed, two.node_id) == ("bound", "bound", node.id)
    assert two.told_at is not None
    assert one.devices == (AllocatedDevice(3, "GPU-3", "gpu"),)
    assert queries.nodes_named([node.id, "node_none"]) == {node.id: node.name}


def test_desired_state_takes_a_constant_number_of_queries(site, django_assert_num_queries):
    _, want = site
    names = [f"res_{i}" for i in range(30)]
    for turn in (names[:1], names):
        with django_assert_num_queries(3):  # with the savepoint
            want.plan(*turn)
        with django_assert_num_queries(4):
            want.bind(*turn)
        with django_assert_num_queries(4):
            want.withdraw(*turn)


def test_a_pools_lock_is_held_by_one_at_a_time(committed_world):
    first, second = committed_world.pool("a"), committed_world.pool("b")
    holding, refused = threading.Event(), threading.Event()

    def one():
        with transaction.atomic():
            assert lock_pools([second, first]).keys() == {first, second}
            holding.set()
            assert refused.wait(timeout=10)

    def two():
        assert holding.wait(timeout=10)
        with connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = '50ms'")
        with pytest.raises(OperationalError, match="lock timeout"), transaction.atomic():
            lock_pools([first])
        refused.set()
        with transaction.atomic():
            assert lock_pools([first])[first].name == "a"

    together(one, two)


@pytest.mark.clause("REL-4", "told to bind, or not, whatever happens at the same time")
def test_withdrawing_while_the_node_is_being_told_never_forgets_what_it_was_told(committed_world):
    world = committed_world
    node = world.node(world.pool(), gpus=4)
    want = Desire(node.id, Node.objects.get(id=node.id).pool_id or "")
    for turn in range(12):
        name = f"res_{turn}"
        want.plan(name)
        want.bind(name)
        answers: list[dict[str, str]] = []

        def sync(into=answers):
            into.append({a["reservationId"]: a["desired"] for a in node.sync()["allocations"]})

        together(sync, lambda name=name: want.withdraw(name))
        if answers[0].get(name) == "bound":
            # It left with `bound`, so somebody has to hear from the node again.
            assert want.rows()[name][0] == "withdrawn"
        assert want.rows().get(name, ("withdrawn", ""))[0] == "withdrawn"
        node.follow()
        node.sync()
        assert want.rows() == {}
    assert not Allocation.objects.exists()


@pytest.mark.clause("REL-4", "told to bind, or not, whatever happens at the same time")
def test_withdrawing_waits_for_an_answer_that_is_being_written(committed_world):
    node = committed_world.node(committed_world.pool(), gpus=4)
    want = Desire(node.id, Node.objects.get(id=node.id).pool_id or "")
    want.plan("res_1")
    want.bind("res_1")
    told, blocked = threading.Event(), threading.Event()

    def answer():
        with transaction.atomic():
            Allocation.objects.update(told_at=1)  # what sync_node writes last
            told.set()
            assert blocked.wait(timeout=10)

    def withdraw():
        assert told.wait(timeout=10)
        assert want.withdraw("res_1") == 1

    def watch():
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        for _ in range(1_000):
            with connection.cursor() as cursor:
                cursor.execute(waiting)
                if cursor.fetchone()[0]:
                    break
                cursor.execute("SELECT pg_sleep(0.005)")
        blocked.set()

    together(answer, withdraw, watch)
    assert want.rows() == {"res_1": ("withdrawn", "")}, "it left with `bound`: somebody has to hear from the node"
    Allocation.objects.all().delete()


def test_two_nodes_with_one_name_at_once(committed_world):
    jobs = [lambda: committed_world.admin("nodes/register", name="twin", positions=1).status for _ in range(3)]
    assert sorted(together(*jobs)) == [200, 409, 409]
    assert Node.objects.count() == 1
