"""A reservation from a REST call to released, on real processes."""

import statistics
import time
import uuid

import pytest

from tests.journeys.installation import Installation, until

pytestmark = pytest.mark.slow


def whole_node(installation: Installation, **changed):
    asked = {"poolId": installation.pool_id, "devices": {"class": "gpu", "count": 8}, "durationSeconds": 3600}
    return asked | {"binding": "node", "idempotencyKey": uuid.uuid4().hex} | changed


@pytest.mark.clause("REC-2", "placed, binding, active with a real node")
@pytest.mark.clause("GET-1", "operation and binding on the way")
@pytest.mark.clause("EVT-1", "events of one subject in the order of its version")
@pytest.mark.clause("NOD-2", "the simulator follows the protocol")
def test_a_node_binds_it_and_it_is_released(installation: Installation):
    ann = installation.caller("acme")
    admin = installation.caller("acme", "admin")
    made = ann("reservations/create", **whole_node(installation))["reservation"]
    assert made["state"] == "placed"
    [place] = made["placement"]

    found = ann.follow(made["id"], "active")
    operation = found["operation"]
    assert (operation["kind"], operation["status"]) == ("create", "done")
    assert operation["startedAt"] <= operation["finishedAt"]
    [bound] = found["binding"]
    assert bound["nodeId"] == place["nodeId"]
    assert [d["uuid"] for d in bound["devices"]] == [d["uuid"] for d in place["devices"]]
    [node] = installation.platform()("nodes/get", nodeId=place["nodeId"])["node"]["allocations"]
    assert (node["desired"], node["observed"], node["reservationId"]) == ("bound", "bound", made["id"])

    released = ann("reservations/release", reservationId=made["id"])["reservation"]
    assert (released["state"], released["reason"]) == ("released", "release")
    until(lambda: not installation.platform()("nodes/get", nodeId=place["nodeId"])["node"]["allocations"])
    ended = ann.get(made["id"])
    assert (ended["operation"]["kind"], ended["operation"]["status"]) == ("end", "done")
    assert "binding" not in ended

    happened = ["placed", "binding", "active", "released"]
    until(lambda: admin.types_of(made["id"]), lambda types: len(types) == 4)
    assert admin.types_of(made["id"]) == happened
    events = admin.events()
    assert [event["sequence"] for event in events] == list(range(1, len(events) + 1))
    versions = [event["subject"]["version"] for event in events if event["subject"]["id"] == made["id"]]
    assert versions == sorted(versions)


@pytest.mark.clause("REC-3", "a release wakes what is pending")
def test_a_release_wakes_what_waits(installation: Installation):
    ann, gil = installation.caller("acme"), installation.caller("globex")
    everything = gil("reservations/create", **whole_node(installation, nodes=4))["reservation"]
    gil.follow(everything["id"], "active")
    waiting = ann("reservations/create", **whole_node(installation))["reservation"]
    assert (waiting["state"], waiting["conditions"][0]["type"]) == ("pending", "Unschedulable")
    started = time.monotonic()
    gil("reservations/release", reservationId=everything["id"])
    ann.follow(waiting["id"], "active")
    assert time.monotonic() - started < 25, "the 30 s tick found it, not the wake"
    happened = ["pending", "placed", "binding", "active"]
    assert (
        until(lambda: installation.caller("acme", "admin").types_of(waiting["id"]), lambda t: len(t) == 4) == happened
    )


@pytest.mark.clause("CRE-18", "answered at once while a worker runs")
def test_create_is_parked_and_answered_in_milliseconds(installation: Installation, capsys):
    ann = installation.caller("acme", "service")
    took = []
    for _ in range(30):
        request = whole_node(installation, binding="hold") | {"devices": {"class": "gpu", "count": 1}}
        started = time.monotonic()
        answer = ann.post("reservations/create", **request)
        took.append(1000 * (time.monotonic() - started))
        assert answer.status_code == 200, answer.text
        assert answer.json()["data"]["reservation"]["state"] == "placed"
        assert "x-wait-on" not in answer.headers
    with capsys.disabled():
        print(f"\n  create through web and worker: median {statistics.median(took):.1f} ms, longest {max(took):.0f} ms")
