"""Nodes that fall silent: lost, back again, or one of many (REC-4, REC-8). Reports over HTTP, ticks by hand."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from computeplatform.api.calls import Actor
from computeplatform.events.models import Event
from fleet.models import Node, Pool, Taint
from fleet.operations.silence import end_mass_silence, judge_silence
from fleet.reconcilers import silence_tick
from reservations import reconcilers
from tests.support.world import SimNode, World

pytestmark = pytest.mark.django_db

OPERATOR = Actor("usr_operator")


def seen(world: World, node: SimNode) -> dict[str, Any]:
    return dict(world.admin("nodes/get", nodeId=node.id).data["node"])


def told(node_or_pool: str, prefix: str = "") -> list[str]:
    rows = Event.objects.filter(subject_id=node_or_pool, type__startswith=prefix).order_by("position")
    return [row.type for row in rows]


def pass_time(clock, *nodes: SimNode, seconds: int) -> None:
    """Time goes on; these nodes report every ten seconds, the others are silent. The tick runs each time."""
    for _ in range(seconds // 10):
        clock.advance(seconds=10)
        for node in nodes:
            node.sync()
        silence_tick()


@pytest.mark.clause("REC-4", "silent for 3 x heartbeatSeconds, a node is lost")
def test_a_node_is_lost_after_thirty_seconds_and_not_before(world: World, clock):
    node = world.node(world.pool())
    heard = clock.now
    clock.advance(milliseconds=29_999)
    silence_tick()
    assert seen(world, node)["state"] == "ready"
    clock.advance(milliseconds=1)
    silence_tick()
    silence_tick()
    shown = seen(world, node)
    assert (shown["state"], shown["lostAt"], shown["lastHeartbeatAt"]) == ("lost", heard, heard)
    event = Event.objects.get(type="node.lost")
    assert (event.subject_id, event.tenant_id, event.data["lastContactAt"]) == (node.id, "platform", heard)
    assert event.subject_version == shown["version"]


@pytest.mark.clause("REC-4", "a node that reports is never lost")
def test_a_node_that_reports_in_time_stays_ready(world: World, clock):
    node = world.node(world.pool())
    pass_time(clock, node, seconds=120)
    assert seen(world, node)["state"] == "ready"
    assert told(node.id, "node.lost") == []


@pytest.mark.clause("REC-4", "a node that returns")
def test_a_lost_node_that_reports_again_is_ready(world: World, clock):
    node = world.node(world.pool())
    pass_time(clock, seconds=60)
    assert seen(world, node)["state"] == "lost"
    node.sync()
    shown = seen(world, node)
    assert shown["state"] == "ready"
    assert "lostAt" not in shown
    assert told(node.id)[-2:] == ["node.lost", "node.returned"]
    silence_tick()
    assert seen(world, node)["state"] == "ready"


def test_opening_a_session_is_no_return_and_repeated_reports_change_nothing(world: World, clock):
    node = world.node(world.pool())
    pass_time(clock, seconds=60)
    old = node.sequence
    node.session = None
    opened = node._post()
    assert seen(world, node)["state"] == "lost"
    node.session = opened["session"]
    node.sync()
    version = seen(world, node)["version"]
    # A late message of the session before says nothing.
    assert node.api(
        "nodes/sync",
        nodeId=node.id,
        bootId=node.boot_id,
        session=opened["session"] - 1,
        sequence=old + 1,
        software={"version": "1"},
        devices=[],
        allocations=[],
    ).data["stale"]
    assert (seen(world, node)["version"], seen(world, node)["state"]) == (version, "ready")


def test_a_node_that_never_spoke_is_never_lost(world: World, clock):
    made = world.admin("nodes/register", name="mute", positions=1).data["node"]
    pass_time(clock, seconds=600)
    assert world.admin("nodes/get", nodeId=made["id"]).data["node"]["state"] == "registered"


def test_a_node_in_no_pool_is_lost_by_itself(world: World, clock):
    nodes = [world.node(world.pool()) for _ in range(4)]
    for node in nodes:
        world.admin("nodes/assign", nodeId=node.id)
    clock.advance(seconds=30)
    silence_tick()
    assert {seen(world, node)["state"] for node in nodes} == {"lost"}


# --- Silence that is our own ------------------------------------------------------------------------------------------


@pytest.mark.clause("REC-8", "silence counts only while we could hear")
def test_a_gap_in_our_own_service_is_nobodys_silence(world: World, clock):
    node = world.node(world.pool())
    reconcilers.reconcile_tick()
    clock.advance(seconds=5)
    reconcilers.reconcile_tick()
    clock.outage(seconds=600)
    silence_tick()
    assert seen(world, node)["state"] == "ready"  # before any tick has noticed the gap
    reconcilers.reconcile_tick()
    silence_tick()
    clock.advance(milliseconds=24_999)
    silence_tick()
    assert seen(world, node)["state"] == "ready"
    clock.advance(milliseconds=1)
    silence_tick()
    shown = seen(world, node)
    # Lost since its last contact all the same.
    assert (shown["state"], shown["lostAt"]) == ("lost", clock.now - 630_000)


# --- Many at once -----------------------------------------------------------------------------------------------------


@pytest.fixture
def many(world: World) -> tuple[str, list[SimNode]]:
    pool_id = world.pool()
    return pool_id, [world.node(pool_id, gpus=0) for _ in range(10)]


@pytest.mark.clause("REC-8", "many fall silent within one minute: none is declared lost; the pool shows MassSilence")
def test_many_at_once_are_held(world: World, clock, many):
    pool_id, nodes = many
    gone, rest = nodes[:4], nodes[4:]
    pass_time(clock, *rest, seconds=60)
    assert {seen(world, node)["state"] for node in gone} == {"ready"}
    for node in gone:
        assert [taint["key"] for taint in seen(world, node)["taints"]] == ["MassSilence"]
    assert all(seen(world, node)["taints"] == [] for node in rest)
    (condition,) = world.admin("pools/get", poolId=pool_id).data["pool"]["conditions"]
    assert (condition["type"], condition["status"]) == ("MassSilence", "True")
    assert condition["lastTransitionAt"] == Pool.objects.get().mass_silence_since
    event = Event.objects.get(type="pool.mass-silence")
    assert (event.data, event.tenant_id) == ({"silent": 4, "nodes": 10}, "platform")
    assert not Event.objects.filter(type="node.lost").exists()


@pytest.mark.clause("REC-8", "a cut in the middle of the heartbeats: the first is not lost before the last is silent")
def test_a_cut_between_heartbeats_loses_nobody(world: World, clock, many):
    _, nodes = many
    for node in nodes:
        clock.advance(milliseconds=999)
        node.sync()
    for _ in range(60):
        clock.advance(seconds=1)
        silence_tick()
    assert not Node.objects.filter(state="lost").exists()
    assert Taint.objects.filter(key="MassSilence").count() == 10


@pytest.mark.clause("REC-8", "30 % or two nodes are not many")
def test_few_at_once_are_lost(world: World, clock, many):
    pool_id, nodes = many
    pass_time(clock, *nodes[3:], seconds=40)
    assert [seen(world, node)["state"] for node in nodes[:3]] == ["lost"] * 3
    assert world.admin("pools/get", poolId=pool_id).data["pool"]["conditions"] == []


@pytest.mark.clause("REC-8", "one that was declared lost before the others fell silent is taken back")
def test_one_that_was_lost_first_is_taken_back(world: World, clock, many):
    _, nodes = many
    first, others, rest = nodes[0], nodes[1:4], nodes[4:]
    pass_time(clock, *others, *rest, seconds=40)
    assert seen(world, first)["state"] == "lost"
    pass_time(clock, *rest, seconds=40)
    assert {seen(world, node)["state"] for node in [first, *others]} == {"ready"}
    assert told(first.id)[-3:] == ["node.lost", "node.ready", "node.tainted"]


@pytest.mark.clause("REC-8", "it ends when they are heard of again")
def test_it_ends_when_they_speak_again(world: World, clock, many):
    pool_id, nodes = many
    gone, rest = nodes[:4], nodes[4:]
    pass_time(clock, *rest, seconds=60)
    pass_time(clock, *gone[:3], *rest, seconds=10)
    assert all(seen(world, node)["taints"] == [] for node in gone[:3])
    assert world.admin("pools/get", poolId=pool_id).data["pool"]["conditions"] != []
    pass_time(clock, *nodes, seconds=10)
    assert world.admin("pools/get", poolId=pool_id).data["pool"]["conditions"] == []
    assert told(pool_id)[-2:] == ["pool.mass-silence", "pool.mass-silence-ended"]
    assert Event.objects.get(type="pool.mass-silence-ended").reason == "returned"
    # From now on each counts by itself again.
    pass_time(clock, *nodes[1:], seconds=40)
    assert seen(world, nodes[0])["state"] == "lost"


@pytest.mark.clause("REC-8", "until an operator says so")
def test_an_operator_gives_them_up(world: World, clock, many):
    pool_id, nodes = many
    gone, rest = nodes[:4], nodes[4:]
    heard = clock.now
    pass_time(clock, *rest, seconds=100)
    gone[0].sync()
    end_mass_silence(pool_id=pool_id, reason="the rack has burnt", by=OPERATOR, now=clock.now)
    silence_tick()
    assert [seen(world, node)["state"] for node in gone] == ["ready", "lost", "lost", "lost"]
    assert {seen(world, node)["lostAt"] for node in gone[1:]} == {heard}
    assert not Taint.objects.exists()
    assert world.admin("pools/get", poolId=pool_id).data["pool"]["conditions"] == []
    ended = Event.objects.get(type="pool.mass-silence-ended")
    assert (ended.reason, ended.actor_id) == ("operator", "usr_operator")
    pass_time(clock, gone[0], *rest, seconds=60)
    assert Pool.objects.get().mass_silence_since is None
    end_mass_silence(pool_id=pool_id, reason="again", by=OPERATOR, now=clock.now)
    assert Event.objects.filter(type="pool.mass-silence-ended").count() == 1


@pytest.mark.clause("REC-8", "one that leaves the pool is none of the many any more")
def test_one_of_many_goes_elsewhere(world: World, clock, many):
    _, nodes = many
    pass_time(clock, seconds=30)
    moved, removed = nodes[:2]
    other = world.pool("other")
    world.admin("nodes/assign", nodeId=moved.id, poolId=other)
    world.admin("nodes/remove", nodeId=removed.id)
    assert told(moved.id)[-3:] == ["node.tainted", "node.untainted", "node.assigned"]
    assert Taint.objects.filter(key="MassSilence").count() == 8
    silence_tick()
    # Alone in its new pool, it is lost as anybody would be; and it takes bookings once it is heard of again.
    assert seen(world, moved)["state"] == "lost"
    moved.sync()
    assert (seen(world, moved)["state"], seen(world, moved)["taints"]) == ("ready", [])
    assert {seen(world, node)["state"] for node in nodes[2:]} == {"ready"}


def test_other_pools_have_nothing_to_do_with_it(world: World, clock, many):
    _, nodes = many
    other = world.node(world.pool("other"))
    pass_time(clock, *nodes[4:], seconds=40)
    assert seen(world, other)["state"] == "lost"


def test_a_tick_costs_one_look_where_nobody_is_silent(world: World, clock, many, django_assert_max_num_queries):
    clock.advance(seconds=10)
    with django_assert_max_num_queries(3):
        silence_tick()


def test_a_pool_is_judged_in_the_same_queries_however_many_are_silent(world: World, clock):
    few, more = world.pool("few"), world.pool("more")
    for pool_id, count in ((few, 3), (more, 6)):
        for _ in range(count):
            world.node(pool_id, gpus=0)
    counts = []
    clock.advance(seconds=60)
    for pool_id in (few, more):
        with CaptureQueriesContext(connection) as queries:
            judge_silence(pool_id=pool_id, now=clock.now)
        counts.append(len(queries))
    assert counts[0] == counts[1]
