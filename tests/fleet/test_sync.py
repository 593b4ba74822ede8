"""nodes/sync through HTTP: what a node reports is stored, what it is told follows from what is wanted."""

import json

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from computeplatform.events.models import Event
from computeplatform.wakes import _mark
from fleet.metrics import SYNC_UNKNOWN_FIELDS
from fleet.models import Allocation, Device, Node, Taint
from fleet.operations.taints import BIND_TIMED_OUT, clear_taint, set_taint
from tests.quotas.conftest import BY


def told(answer) -> dict[str, str]:
    return {item["reservationId"]: item["desired"] for item in answer["allocations"]}


def woken(redis_client) -> set[str]:
    """The queues that what was committed since the last look has woken. The test's own transaction never commits."""
    waiting, connection.run_on_commit = connection.run_on_commit, []
    for _, send, *_ in waiting:
        send()
    found = {queue for queue in ("placement", "reconcile") if list(redis_client.scan_iter(_mark(queue, "*")))}
    redis_client.flushdb()
    return found


def shown(world, node) -> dict:
    return world.admin("nodes/get", nodeId=node.id).data["node"]


@pytest.mark.clause("NOD-9", "a sync without a session opens one and is not applied")
def test_the_first_sync_opens_a_session_and_is_not_applied(world, clock):
    pool_id = world.pool()
    made = world.admin("nodes/register", name="node-x", poolId=pool_id, positions=2).data
    node = type(world.node(pool_id))(made["node"]["id"], "node-x", type(world.admin)(made["token"], "platform"), 2)
    opening = node._post()
    assert (opening["session"], opening["heartbeatSeconds"], opening["allocations"]) == (1, 10, [])
    assert "stale" not in opening
    before = shown(world, node)
    assert (before["state"], before["devices"], before["lastHeartbeatAt"]) == ("registered", [], clock.now)
    node.session = 1
    node._post()
    after = shown(world, node)
    assert (after["state"], len(after["devices"])) == ("ready", 2)
    assert after["host"] == {"vcpu": 128, "memoryMiB": 1048576, "hugepages1Gi": 0}
    assert after["software"] == {"version": "1.0.0"}
    told_of = [e.type for e in Event.objects.filter(subject_id=node.id).order_by("position")]
    assert told_of == ["node.registered", "node.host-changed", "node.devices-changed", "node.ready"]


@pytest.mark.clause("NOD-9", "higher each time; a lower one is ignored and answered stale")
def test_only_the_newest_session_counts(site, world):
    node, _ = site
    old = node.session
    opening = {"bootId": "boot-2", "sequence": 1, "software": {"version": "2"}, "devices": [], "allocations": []}
    opened = node.api("nodes/sync", nodeId=node.id, **opening).data
    assert opened["session"] == old + 1
    before = shown(world, node)
    assert len(before["devices"]) == 8, "an opening report is not applied"
    ghost = node._post(devices=[])
    assert (ghost["stale"], ghost["session"], ghost["allocations"]) == (True, old + 1, [])
    wrong_boot = node._post(session=old + 1, devices=[])
    assert wrong_boot["stale"] is True
    assert shown(world, node) == before
    node.session = None  # it is alive, so it opens a new one
    assert "stale" not in node.sync()
    assert node.session == old + 2


@pytest.mark.clause("NOD-2", "an older sequence of the same boot is ignored, the same one is the same again")
def test_an_overtaken_message_is_answered_and_not_applied(site, world, clock):
    node, want = site
    node.sync()
    want.plan("res_1")
    want.bind("res_1")
    before = shown(world, node)
    clock.advance(seconds=3)
    late = node._post(
        sequence=node.sequence - 1, devices=[], allocations=[{"reservationId": "res_1", "state": "bound"}]
    )
    assert told(late) == {"res_1": "bound"}
    after = shown(world, node)
    assert after["lastHeartbeatAt"] == before["lastHeartbeatAt"]
    assert after["devices"] == before["devices"]
    assert want.rows() == {"res_1": ("bound", "")}
    node.holds = {"res_1": "bound"}
    node.sync()
    rows, events = list(Allocation.objects.values()), Event.objects.count()
    node.sequence -= 1
    node.sync()
    assert (list(Allocation.objects.values()), Event.objects.count()) == (rows, events)


@pytest.mark.clause("NOD-2", "desired and observed")
def test_from_planned_to_bound_to_gone(site, redis_client, clock):
    node, want = site
    want.plan("res_1", position=3, until=clock.now + 5_000)
    woken(redis_client)
    answer = node.sync()
    assert answer["allocations"] == [
        {
            "reservationId": "res_1",
            "tenantId": "acme",
            "binding": "node",
            "devices": [{"position": 3, "uuid": "GPU-3", "class": "gpu"}],
            "resources": {"vcpuMilli": 1500, "memoryMiB": 4096},
            "until": clock.now + 5_000,
            "desired": "planned",
        }
    ]
    assert Allocation.objects.get().told_at is None
    assert want.bind("res_1") == 1
    assert want.bind("res_1") == 0
    clock.advance(seconds=1)
    assert told(node.sync()) == {"res_1": "bound"}
    assert Allocation.objects.get().told_at == clock.now
    assert woken(redis_client) == set()
    node.holds["res_1"] = "bound"
    clock.advance(seconds=1)
    node.sync()
    row = Allocation.objects.get()
    assert (row.observed, row.observed_at, row.told_at) == ("bound", clock.now, clock.now - 1_000)
    assert woken(redis_client) == {"reconcile"}
    node.sync()
    assert Allocation.objects.get().observed_at == clock.now
    assert woken(redis_client) == set()
    assert want.until("res_1", 10**15) == 1
    assert node.sync()["allocations"][0]["until"] == 10**15
    assert want.withdraw("res_1") == 1
    assert told(node.sync()) == {"res_1": "withdrawn"}
    node.holds["res_1"] = "withdrawing"
    node.sync()
    assert want.rows() == {"res_1": ("withdrawn", "withdrawing")}
    woken(redis_client)
    node.holds["res_1"] = "withdrawn"
    assert node.sync()["allocations"] == []
    assert want.rows() == {}
    assert woken(redis_client) == {"reconcile"}


def test_what_no_node_was_told_is_simply_gone(site):
    node, want = site
    want.plan("res_1", "res_2")
    node.sync()
    want.bind("res_2")
    assert want.withdraw("res_1", "res_2") == 0, "no answer carried `bound` yet"
    assert want.rows() == {}


def test_planning_again_replaces_the_plan(site):
    node, want = site
    want.plan("res_1", position=1)
    want.plan("res_1", position=2)
    assert node.sync()["allocations"][0]["devices"] == [{"position": 2, "uuid": "GPU-2", "class": "gpu"}]
    assert Allocation.objects.count() == 1


@pytest.mark.clause("REL-4", "told to bind and has not reported since")
def test_what_a_node_was_told_waits_for_its_word(site):
    node, want = site
    want.plan("res_1", "res_2")
    want.bind("res_1", "res_2")
    node.sync()
    assert want.withdraw("res_1", "res_2") == 2
    assert want.rows() == {"res_1": ("withdrawn", ""), "res_2": ("withdrawn", "")}
    node.holds = {"res_2": "bound"}  # it bound this one before it heard
    assert told(node.sync()) == {"res_2": "withdrawn"}
    assert want.rows() == {"res_2": ("withdrawn", "bound")}


@pytest.mark.clause("REC-4", "a node is told to withdraw what is not its")
def test_what_nobody_wants_is_to_be_withdrawn(site):
    node, _ = site
    node.holds = {"res_ghost": "bound"}
    assert node.sync()["allocations"] == [{"reservationId": "res_ghost", "desired": "withdrawn"}]
    node.holds = {"res_ghost": "withdrawn"}
    assert node.sync()["allocations"] == []


def test_a_node_that_forgot_what_it_held_is_told_again(site, redis_client):
    node, want = site
    want.plan("res_1")
    want.bind("res_1")
    node.follow()
    assert want.rows() == {"res_1": ("bound", "bound")}
    node.holds, node.boot_id, node.session = {}, "boot-2", None
    woken(redis_client)
    assert told(node.sync()) == {"res_1": "bound"}
    assert want.rows() == {"res_1": ("bound", "")}
    assert woken(redis_client) == {"reconcile"}


@pytest.mark.clause("NOD-6", "nothing is withdrawn from a node that knows a newer session")
def test_a_node_ahead_of_us_is_adopting_and_loses_nothing(site, world):
    node, want = site
    want.plan("res_1")
    want.bind("res_1")
    node.follow()
    want.withdraw("res_1")
    node.session += 7
    node.holds["res_new"] = "bound"
    answer = node.sync()
    assert (answer["session"], answer["allocations"]) == (node.session, [])
    assert shown(world, node)["state"] == "adopting"
    node.sync()
    assert shown(world, node)["state"] == "adopting"
    assert Event.objects.filter(type="node.adopting").count() == 1


def gpu(node, position, **changed):
    shape = {"position": position, "uuid": f"GPU-{node.name}-{position}", "model": "h100-sxm-80g", "memoryMiB": 81920}
    return shape | {"health": "ok"} | changed


@pytest.mark.clause("NOD-4", "a replaced GPU takes the place of the one before")
def test_a_new_device_at_a_position_replaces_the_one_before(site, world, clock):
    node, _ = site
    base = Node.objects.get(id=node.id).unit_base
    devices = [gpu(node, p) for p in range(7)] + [gpu(node, 7, uuid="GPU-spare")]
    node.sync(devices=devices)
    assert [d["uuid"] for d in shown(world, node)["devices"]][7] == "GPU-spare"
    assert Node.objects.get(id=node.id).unit_base == base
    gone = Device.objects.exclude(retired_at=None).get()
    assert (gone.uuid, gone.retired_at) == (f"GPU-{node.name}-7", clock.now)
    assert Event.objects.filter(type="node.devices-changed").order_by("-position")[0].data["new"] == [
        {"position": 7, "uuid": "GPU-spare"}
    ]


@pytest.mark.clause("NOD-5", "sync reports health per device")
def test_health_and_absence_are_stored_and_wake_the_pool(site, world, redis_client):
    node, _ = site
    woken(redis_client)
    version = shown(world, node)["version"]
    node.sync(devices=[gpu(node, p, health="unhealthy" if p == 2 else "ok") for p in range(7)])
    after = shown(world, node)
    assert [d["health"] for d in after["devices"]] == ["ok", "ok", "unhealthy", "ok", "ok", "ok", "ok", "missing"]
    assert after["version"] == version + 1
    assert "reconcile" in woken(redis_client)
    node.sync()
    assert {d["health"] for d in shown(world, node)["devices"]} == {"ok"}
    assert "placement" in woken(redis_client)
    assert Device.objects.count() == 8


def test_host_amounts_that_are_left_out_stay_and_parts_may_be_unknown(site, world):
    node, _ = site
    report = {"vcpu": 16, "memoryMiB": 1024}
    node.sync(host=report)
    assert shown(world, node)["host"] == report
    body = {
        "nodeId": node.id,
        "bootId": node.boot_id,
        "session": node.session,
        "sequence": node.sequence + 1,
        "software": {"version": "1.0.1", "platform": "linux/amd64"},
        "devices": [gpu(node, p) for p in range(8)],
        "allocations": [],
    }
    assert node.api("nodes/sync", **body).status == 200
    after = shown(world, node)
    assert after["host"] == report
    assert after["software"] == {"version": "1.0.1", "platform": "linux/amd64"}


@pytest.mark.clause("API-4", "nodes/sync ignores unknown fields and counts them")
def test_unknown_fields_are_ignored_and_counted(site):
    node, _ = site
    before = SYNC_UNKNOWN_FIELDS._value.get()
    devices = [gpu(node, 0, temperature=61, fan={"rpm": 9})]
    node._post(colour="red", devices=devices, allocations=[{"reservationId": "x", "state": "withdrawn", "why": 1}])
    assert SYNC_UNKNOWN_FIELDS._value.get() - before == 4


@pytest.mark.parametrize(
    ("changed", "path"),
    [
        ({"sequence": -1}, "sequence"),
        ({"sequence": "1"}, "sequence"),
        ({"session": 0}, "session"),
        ({"bootId": ""}, "bootId"),
        ({"software": {}}, "software.version"),
        ({"devices": [{"position": 64}]}, "devices.0.position"),
        (
            {"devices": [{"position": 0, "uuid": "a", "model": "m", "memoryMiB": 1, "health": "fine"}]},
            "devices.0.health",
        ),
        ({"host": {"vcpu": 1.5}}, "host.vcpu"),
        ({"allocations": [{"reservationId": "r", "state": "lost"}]}, "allocations.0.state"),
        ({"allocations": [{"reservationId": "r", "state": "bound", "holders": -1}]}, "allocations.0.holders"),
        ({"allocations": [{"reservationId": "r", "state": "bound"}] * 2}, "allocations.1.reservationId"),
        (
            {"devices": [{"position": 9, "uuid": "a", "model": "m", "memoryMiB": 1, "health": "ok"}]},
            "devices.0.position",
        ),
        (
            {"devices": [{"position": 0, "uuid": "a", "model": "m", "memoryMiB": 1, "health": "ok"}] * 2},
            "devices.1.uuid",
        ),
    ],
)
def test_a_report_that_makes_no_sense_changes_nothing(site, changed, path):
    node, _ = site
    before = list(Node.objects.values()), list(Device.objects.values())
    report = {
        "nodeId": node.id,
        "bootId": node.boot_id,
        "session": node.session,
        "sequence": node.sequence + 1,
        "software": {"version": "1"},
        "devices": [],
        "allocations": [],
    }
    node.api("nodes/sync", **(report | changed)).refused_at(path)
    assert (list(Node.objects.values()), list(Device.objects.values())) == before


@pytest.mark.clause("API-4", "nodes/sync takes 1 MiB")
def test_a_body_may_have_one_mebibyte(site):
    node, _ = site
    holds = [{"reservationId": f"res_{i:05}", "state": "withdrawn", "holders": []} for i in range(9_000)]
    node._post(allocations=holds)
    report = json.dumps({"tenantId": "platform", "nodeId": node.id, "padding": "x" * 1024 * 1024})
    node.api.raw("/api/compute/nodes/sync", report).refused("PAYLOAD_TOO_LARGE", maxBytes=1024 * 1024)


@pytest.mark.clause("REC-7", "BindTimedOut stays until the node reports the allocation withdrawn")
def test_a_timed_out_node_is_tainted_until_it_has_let_go(site, world, clock):
    node, want = site
    want.plan("res_1")
    want.bind("res_1")
    node.sync()
    assert set_taint([node.id], BIND_TIMED_OUT, by=BY, now=clock.now, subject="res_1", reason="bind-timeout") == 1
    assert set_taint([node.id], BIND_TIMED_OUT, by=BY, now=clock.now, subject="res_0") == 0
    want.withdraw("res_1")
    answer = node.sync()
    assert told(answer) == {"res_0": "withdrawn", "res_1": "withdrawn"}, "asked for, though the row is gone"
    taint = {"key": BIND_TIMED_OUT, "effect": "NoSchedule", "reason": "bind-timeout", "since": clock.now}
    assert answer["taints"] == [taint]
    node.holds = {"res_1": "withdrawn"}
    node.sync()
    assert Taint.objects.get().subjects == ["res_0"]
    node.holds = {"res_0": "withdrawn"}
    assert node.sync()["taints"] == []
    assert shown(world, node)["taints"] == []
    assert [e.type for e in Event.objects.filter(type__contains="taint").order_by("position")] == [
        "node.tainted",
        "node.untainted",
    ]


@pytest.mark.clause("REC-7", "or an operator clears it")
def test_a_taint_can_be_cleared_and_ends_by_itself(site, world, clock, redis_client):
    node, _ = site
    set_taint([node.id, "node_none"], "Updating", by=BY, now=clock.now, until=clock.now + 1_000)
    assert node.sync()["taints"][0]["until"] == clock.now + 1_000
    clock.advance(seconds=1)
    assert node.sync()["taints"] == []
    set_taint([node.id], BIND_TIMED_OUT, by=BY, now=clock.now)
    woken(redis_client)
    assert clear_taint([node.id], BIND_TIMED_OUT, by=BY, now=clock.now, reason="looked at it") == 1
    assert clear_taint([node.id], BIND_TIMED_OUT, by=BY, now=clock.now) == 0
    assert woken(redis_client) == {"placement"}
    assert Event.objects.get(type="node.untainted").reason == "looked at it"


@pytest.mark.clause("NOD-2", "few queries, whatever the node holds")
def test_a_heartbeat_is_one_update_and_its_queries_do_not_grow(site):
    node, want = site

    def queries() -> list[str]:
        node.sync()
        with CaptureQueriesContext(connection) as captured:
            node.sync()
            return [query["sql"] for query in captured]

    few = queries()
    writes = [sql for sql in few if sql.split()[0] in ("UPDATE", "INSERT", "DELETE")]
    assert len(writes) == 1
    assert writes[0].startswith('UPDATE "fleet_node"')
    names = [f"res_{i}" for i in range(40)]
    want.plan(*names)
    want.bind(*names)
    node.follow()
    many = queries()
    assert len(many) == len(few) <= 10
    assert [sql for sql in many if sql.split()[0] in ("UPDATE", "INSERT", "DELETE")] != []
    with CaptureQueriesContext(connection) as captured:
        want.withdraw(*names)
        node.follow()
        # Three exchanges, of which two write: none of them by the number of allocations.
        assert len(captured) <= 3 * len(few) + 8
