"""The operators' methods on nodes, through HTTP."""

from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from computeplatform.events.models import Event
from fleet.contracts import AllocatedDevice, NewAllocation
from fleet.domain.units import UNITS_PER_NODE
from fleet.models import Node, Pool
from fleet.operations.allocations import bind, plan, withdraw
from iam.models import ApiKey, Principal
from tests.support.api import Api
from tests.support.world import World, fresh_key

pytestmark = pytest.mark.django_db


def register(world: World, name: str = "node-a", **fields):
    return world.admin("nodes/register", name=name, **({"positions": 8} | fields))


def planned(node_id: str, pool_id: str, reservation_id: str = "res_1", **changed):
    devices = (AllocatedDevice(0, "GPU-0", "gpu"),)
    values: dict[str, Any] = {
        "tenant_id": "acme",
        "binding": "node",
        "devices": devices,
        "resources": {},
        "until": 10**15,
    } | changed
    return NewAllocation(reservation_id=reservation_id, pool_id=pool_id, node_id=node_id, **values)


@pytest.mark.clause("NOD-1", "register: the software's own service and key")
def test_register_answers_the_token_once(world: World):
    pool_id = world.pool()
    key = fresh_key()
    made = register(world, poolId=pool_id, labels={"rack": "r1"}, idempotencyKey=key).data
    node = made["node"]
    assert (node["state"], node["poolId"], node["positions"], node["labels"]) == (
        "registered",
        pool_id,
        8,
        {"rack": "r1"},
    )
    assert (node["devices"], node["host"], node["allocations"], node["cordoned"]) == ([], {}, [], False)
    service = Principal.objects.get(node_id=node["id"])
    assert (service.kind, service.tenant_id) == ("service", "platform")
    assert ApiKey.objects.get(principal=service).scopes == ["compute:nodes:sync"]
    again = register(world, poolId=pool_id, labels={"rack": "r1"}, idempotencyKey=key).data
    assert again == {"node": node}
    told = Event.objects.get(type="node.registered")
    assert (told.tenant_id, told.subject_id, told.data["poolId"]) == ("platform", node["id"], pool_id)
    assert made["token"] not in str(Event.objects.values())


@pytest.mark.clause("NOD-1", "the software's key is good for nodes/sync of that node alone")
def test_the_softwares_key_does_nothing_else(world: World):
    pool_id = world.pool()
    one, two = world.node(pool_id), world.node(pool_id)
    one.api("nodes/get", nodeId=one.id).refused("ACCESS_DENIED")
    one.api("nodes/list").refused("ACCESS_DENIED")
    one.api("pools/list").refused("ACCESS_DENIED")
    report: dict[str, Any] = {
        "bootId": "b",
        "sequence": 99,
        "software": {"version": "1"},
        "devices": [],
        "allocations": [],
    }
    one.api("nodes/sync", nodeId=two.id, **report).refused("ACCESS_DENIED")
    one.api("nodes/sync", nodeId="node_none", **report).refused("NOT_FOUND")
    assert Node.objects.get(id=two.id).session == 1


@pytest.mark.clause("NOD-4", "a span of units of its own")
def test_every_node_has_its_own_span_of_units(world: World):
    ids = [register(world, f"node-{i}").data["node"]["id"] for i in range(3)]
    bases = list(Node.objects.filter(id__in=ids).values_list("unit_base", flat=True))
    assert len(set(bases)) == 3
    assert all(base > 0 and base % UNITS_PER_NODE == 0 for base in bases)


@pytest.mark.parametrize(
    ("changed", "path"),
    [
        ({"name": "Node"}, "name"),
        ({"name": "-a"}, "name"),
        ({"name": "a" * 64}, "name"),
        ({"positions": 0}, "positions"),
        ({"positions": 65}, "positions"),
        ({"labels": {"a b": "c"}}, "labels.a b"),
        ({"labels": {"a": "\n"}}, "labels.a"),
        ({"rack": "r1"}, "rack"),
    ],
)
def test_register_refuses_what_does_not_fit(world: World, changed, path):
    register(world, **changed).refused_at(path)
    assert not Node.objects.exists()
    assert not Principal.objects.exclude(node_id="").exists()


def test_register_refuses_a_taken_name_and_a_pool_that_is_not_open(world: World, clock):
    assert register(world).status == 200
    register(world).refused("CONFLICT", reason="name-taken")
    register(world, "node-b", poolId="pool_none").refused("NOT_FOUND")
    pool_id = world.pool()
    Pool.objects.update(archived_at=clock.now)
    register(world, "node-b", poolId=pool_id).refused("INVALID_STATE", reason="pool-archived")
    assert Node.objects.count() == 1
    assert Principal.objects.exclude(node_id="").count() == 1
    assert Event.objects.filter(type="node.registered").count() == 1


METHODS: dict[str, dict[str, Any]] = {
    "nodes/register": {"name": "node-z", "positions": 1},
    "nodes/list": {},
    "nodes/get": {"nodeId": None},
    "nodes/cordon": {"nodeId": None},
    "nodes/uncordon": {"nodeId": None},
    "nodes/assign": {"nodeId": None},
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.clause("IAM-4", "no tenant's administrator is a fleet administrator")
def test_who_may_do_what_to_nodes(world: World, method):
    node = world.node(world.pool())
    fields = {name: value or node.id for name, value in METHODS[method].items()}
    before = list(Node.objects.values())
    named = "nodeId" in fields
    for person in (world.acme, world.ann, world.vic):
        # To a tenant there are no nodes: one that exists looks like one that does not.
        person.api(method, **fields).refused("NOT_FOUND" if named else "ACCESS_DENIED")
    world.acme.api(method, **fields, tenantId="platform").refused("ACCESS_DENIED")
    plain = world.person(type(world.acme)("", world.admin), "plain", "reserver")
    plain.api(method, **fields).refused("ACCESS_DENIED")
    if named:
        plain.api(method, **(fields | {"nodeId": "node_none"})).refused("NOT_FOUND")
        world.admin(method, **(fields | {"nodeId": "node_none"})).refused("NOT_FOUND")
    Api("cpk_nothing", "platform")(method, **fields).refused("UNAUTHENTICATED")
    assert list(Node.objects.values()) == before


@pytest.mark.clause("NOD-1", "list")
def test_list_pages_newest_first_of_one_pool_or_all(world: World, clock):
    pool_id, other = world.pool("a"), world.pool("b")
    made = []
    for number in range(4):
        clock.advance(milliseconds=number % 2)
        made.append(register(world, f"node-{number}", poolId=pool_id if number < 3 else other).data["node"]["id"])
    ages = dict(Node.objects.values_list("id", "created_at"))
    ordered = sorted(made, key=lambda name: (ages[name], name), reverse=True)
    first = world.admin("nodes/list", limit=3).data
    assert [node["id"] for node in first["nodes"]] == ordered[:3]
    rest = world.admin("nodes/list", limit=3, cursor=first["nextCursor"]).data
    assert [node["id"] for node in rest["nodes"]] == ordered[3:]
    assert "nextCursor" not in rest
    assert {n["id"] for n in world.admin("nodes/list", poolId=other).data["nodes"]} == {made[3]}
    world.admin("nodes/list", cursor="node_none").refused_at("cursor")
    world.admin("nodes/list", poolId="pool_none").refused("NOT_FOUND")


def test_list_takes_the_same_queries_for_one_node_and_for_many(world: World, django_assert_num_queries):
    pool_id = world.pool()
    world.node(pool_id)
    with CaptureQueriesContext(connection) as few:
        assert len(world.admin("nodes/list").data["nodes"]) == 1
        count = len(few)
    for _ in range(4):
        world.node(pool_id)
    with django_assert_num_queries(count):
        assert len(world.admin("nodes/list").data["nodes"]) == 5


@pytest.mark.clause("NOD-1", "cordon and uncordon")
def test_cordon_and_uncordon(world: World):
    node = world.node(world.pool())
    version = world.admin("nodes/get", nodeId=node.id).data["node"]["version"]
    cordoned = world.admin("nodes/cordon", nodeId=node.id, reason="fan", version=version).data["node"]
    assert (cordoned["cordoned"], cordoned["cordonReason"], cordoned["version"]) == (True, "fan", version + 1)
    assert world.admin("nodes/cordon", nodeId=node.id, reason="fan").data["node"] == cordoned
    world.admin("nodes/uncordon", nodeId=node.id, version=version).refused("CONFLICT", reason="stale-version")
    open_again = world.admin("nodes/uncordon", nodeId=node.id).data["node"]
    assert (open_again["cordoned"], open_again["version"]) == (False, version + 2)
    assert "cordonReason" not in open_again
    assert world.admin("nodes/uncordon", nodeId=node.id).data["node"] == open_again
    told = Event.objects.filter(type__in=["node.cordoned", "node.uncordoned"]).order_by("position")
    assert [(e.type, e.reason, e.subject_version) for e in told] == [
        ("node.cordoned", "fan", version + 1),
        ("node.uncordoned", "", version + 2),
    ]


@pytest.mark.clause("NOD-4", "one pool at most, changed only without live bookings")
def test_assign_moves_a_node_that_nobody_holds(world: World):
    one, two = world.pool("one"), world.pool("two")
    node = world.node(one)
    moved = world.admin("nodes/assign", nodeId=node.id, poolId=two).data["node"]
    assert moved["poolId"] == two
    assert world.admin("nodes/assign", nodeId=node.id, poolId=two).data["node"]["version"] == moved["version"]
    assert "poolId" not in world.admin("nodes/assign", nodeId=node.id).data["node"]
    told = [e.data for e in Event.objects.filter(type="node.assigned").order_by("position")]
    assert [(d["poolIdBefore"], d["poolId"]) for d in told] == [(one, two), (two, None)]


@pytest.mark.clause("NOD-4", "one pool at most, changed only without live bookings")
@pytest.mark.parametrize("stage", ["planned", "bound", "withdrawing"])
def test_assign_is_refused_while_a_reservation_holds_the_node(world: World, clock, stage):
    one, two = world.pool("one"), world.pool("two")
    node = world.node(one)
    with transaction.atomic():
        plan([planned(node.id, one)])
        if stage != "planned":
            bind(["res_1"], now=clock.now)
    if stage == "withdrawing":
        node.follow()
        with transaction.atomic():
            withdraw(["res_1"], now=clock.now)
    before = world.admin("nodes/get", nodeId=node.id).data
    world.admin("nodes/assign", nodeId=node.id, poolId=two).refused(
        "INVALID_STATE", reason="node-in-use", allocations=1
    )
    assert world.admin("nodes/get", nodeId=node.id).data == before
    with transaction.atomic():
        withdraw(["res_1"], now=clock.now)
    node.follow()
    node.sync()
    assert world.admin("nodes/assign", nodeId=node.id, poolId=two).data["node"]["poolId"] == two


def test_assign_refuses_a_pool_that_is_not_open(world: World, clock):
    one, two = world.pool("one"), world.pool("two")
    node = world.node(one)
    Pool.objects.filter(id=two).update(archived_at=clock.now)
    world.admin("nodes/assign", nodeId=node.id, poolId=two).refused("INVALID_STATE", reason="pool-archived")
    world.admin("nodes/assign", nodeId=node.id, poolId="pool_none").refused("NOT_FOUND")
    assert Node.objects.get(id=node.id).pool_id == one
