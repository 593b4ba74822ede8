"""``pools/availability`` (POL-2): over HTTP, beside what create then does."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleet.models import Pool
from iam.models import Decision
from reservations.domain import availability as rules
from tests.support.api import Answer, Api
from tests.support.world import HOUR, World, request

DAY = 24 * HOUR
Left = Callable[..., dict[str, int]]


def create(api: Api, pool: str, gpus: int = 1, **changed: Any) -> dict[str, Any]:
    return api("reservations/create", **request(pool, gpus, **changed)).data["reservation"]


def asked(pool: str, now: int, gpus: int = 1, **changed: Any) -> dict[str, Any]:
    devices = {"class": "gpu", "count": gpus}
    times = {"durationSeconds": 3600, "from": now, "to": now + DAY}
    return {"poolId": pool, "devices": devices} | times | changed


def look(api: Api, pool: str, now: int, gpus: int = 1, **changed: Any) -> Answer:
    return api("pools/availability", **asked(pool, now, gpus, **changed))


def window(begin: int, end: int) -> dict[str, int]:
    return {"startsAt": begin, "endsAt": end}


@pytest.mark.clause("POL-2", "the earliest start, the windows, free devices over time")
def test_a_free_pool(world: World, pool: str, clock, left: Left):
    now = clock.now
    assert look(world.ann.api, pool, now, 8).data == {
        "earliest": window(now, now + HOUR),
        "windows": [window(now, now + DAY)],
        "free": [{"from": now, "to": now + DAY, "devices": 8}],
    }
    assert left() == {}


@pytest.mark.clause("POL-2", "bookings of anybody count")
def test_around_bookings(world: World, pool: str, clock):
    now = clock.now
    create(world.gil.api, pool, 6, durationSeconds=2 * 3600)
    create(world.ann.api, pool, 8, startsAt=now + 5 * HOUR)
    found = look(world.ann.api, pool, now, 4).data
    assert found["earliest"] == window(now + 2 * HOUR, now + 3 * HOUR)
    assert found["windows"] == [window(now + 2 * HOUR, now + 5 * HOUR), window(now + 6 * HOUR, now + DAY)]
    assert [(f["from"] - now, f["to"] - now, f["devices"]) for f in found["free"]] == [
        (0, 2 * HOUR, 2),
        (2 * HOUR, 5 * HOUR, 8),
        (5 * HOUR, 6 * HOUR, 0),
        (6 * HOUR, DAY, 8),
    ]
    # What is told of the future does not change by the way it is asked for.
    later = look(world.ann.api, pool, now, 4, **{"from": now + 3 * HOUR}).data
    assert later["earliest"] == window(now + 3 * HOUR, now + 4 * HOUR)


@pytest.mark.clause("POL-2", "at most 10 windows")
def test_ten_windows_at_most(world: World, pool: str, clock):
    for turn in range(12):
        create(world.gil.api, pool, 8, startsAt=clock.now + (2 * turn + 1) * 600_000, durationSeconds=600)
    found = look(world.ann.api, pool, clock.now, 1, durationSeconds=600).data
    starts = [clock.now + 2 * turn * 600_000 for turn in range(10)]
    assert found["windows"] == [window(start, start + 600_000) for start in starts]
    assert len(found["free"]) == 25


@pytest.mark.clause("POL-2", "gangs")
def test_a_gang(world: World, clock):
    pool = world.offered_pool(nodes=3)
    now = clock.now
    create(world.gil.api, pool, 8)
    create(world.gil.api, pool, 8, startsAt=now + 2 * HOUR)
    assert look(world.ann.api, pool, now, 8, nodes=2).data["earliest"]["startsAt"] == now
    assert look(world.ann.api, pool, now, 8, nodes=3).data["earliest"]["startsAt"] == now + HOUR
    assert look(world.ann.api, pool, now, 8, nodes=4).data["reason"] == "NeverFits"


@pytest.mark.clause("POL-2", "host resources")
@pytest.mark.clause("HST-1", "what is booked on a node never exceeds what it reports")
def test_host_resources(world: World, pool: str, clock):
    now = clock.now
    for resource in ("vcpu", "memoryGiB"):
        world.admin("quotas/set", poolId=pool, toTenantId="globex", resource=resource, max=10_000)
    create(world.gil.api, pool, 1, resources={"vcpu": 100, "memoryGiB": 16, "hugepages1Gi": 0})
    assert look(world.ann.api, pool, now, 1, resources={"vcpu": 28}).data["earliest"]["startsAt"] == now
    assert look(world.ann.api, pool, now, 1, resources={"vcpu": 29}).data["earliest"]["startsAt"] == now + HOUR
    never = look(world.ann.api, pool, now, 1, resources={"vcpu": 129}).data
    assert (never["reason"], never["windows"]) == ("NeverFits", [])


@pytest.mark.clause("POL-2", "maintenance counts")
@pytest.mark.clause("NOD-7", "a busy interval for availability")
def test_maintenance(world: World, pool: str, clock):
    now = clock.now
    node = world.nodes[0].id
    busy = {"from": now + HOUR, "until": now + 3 * HOUR}
    assert world.admin("nodes/maintenance", nodeId=node, **busy).status == 200
    found = look(world.ann.api, pool, now, 1, durationSeconds=2 * 3600).data
    assert found["earliest"] == window(now + 3 * HOUR, now + 5 * HOUR)
    assert [f["devices"] for f in found["free"]] == [8, 0, 8]


@pytest.mark.clause("POL-2", "the shadow of the first in line counts")
@pytest.mark.clause("REC-9", "new requests too")
def test_the_first_in_line(world: World, pool: str, clock):
    now = clock.now
    create(world.ann.api, pool, 4)
    clock.advance(seconds=1)
    create(world.bob.api, pool, 8, durationSeconds=2 * 3600)
    clock.advance(seconds=1)
    short = look(world.ann.api, pool, clock.now, 4, durationSeconds=3598).data
    assert short["earliest"]["startsAt"] == clock.now
    long = look(world.ann.api, pool, clock.now, 4, durationSeconds=3600).data
    assert long["earliest"]["startsAt"] == now + 3 * HOUR
    # A tenant that holds less comes before it in the order of those that wait, so for that one nothing is kept.
    assert look(world.gil.api, pool, clock.now, 4).data["earliest"]["startsAt"] == clock.now
    assert create(world.ann.api, pool, 4, startsAt=now + 3 * HOUR - 1)["state"] == "pending"
    assert create(world.ann.api, pool, 4, startsAt=now + 3 * HOUR)["state"] == "placed"


@pytest.mark.clause("POL-2", "why not, where it fits nowhere")
def test_why_it_does_not_fit(world: World, pool: str, clock):
    create(world.gil.api, pool, 5, durationSeconds=24 * 3600)
    found = look(world.ann.api, pool, clock.now, 8).data
    assert "earliest" not in found
    assert found["windows"] == []
    assert found["reason"] == "NoFreeDevices"
    assert found["message"].startswith("needs 8 gpu on one node; the freest node has 3")
    assert [f["devices"] for f in found["free"]] == [3]
    assert look(world.ann.api, pool, clock.now, 9).data["reason"] == "NeverFits"


@pytest.mark.clause("POL-2", "nodes that take no bookings")
def test_a_cordoned_node(world: World, pool: str, clock):
    world.admin("nodes/cordon", nodeId=world.nodes[0].id)
    found = look(world.ann.api, pool, clock.now).data
    assert (found["reason"], found["free"][0]["devices"]) == ("NodesUnavailable", 0)


@pytest.mark.clause("POL-2", "it never reveals other tenants")
def test_nothing_tells_who_has_booked(world: World, pool: str, clock):
    made = create(world.gil.api, pool, 8, name="secret-plan", labels={"team": "secret-team"})
    clock.advance(seconds=1)
    waiting = create(world.gil.api, pool, 8)
    for gpus in (1, 8):
        text = str(look(world.ann.api, pool, clock.now, gpus, to=clock.now + HOUR).body)
        for word in ("globex", "secret", made["id"], waiting["id"], world.gil.id, *[n.id for n in world.nodes]):
            assert word not in text


@pytest.mark.clause("POL-2", "what is wrong with the range or the devices: INVALID_INPUT")
@pytest.mark.parametrize(
    ("changed", "path"),
    [
        ({"to": 0}, "to"),
        ({"from": HOUR, "to": HOUR}, "to"),
        ({"from": 2 * HOUR, "to": HOUR}, "to"),
        ({"from": -60_001}, "from"),
        ({"to": 90 * DAY + 1}, "to"),
        ({"from": 91 * DAY, "to": 92 * DAY}, "to"),
        ({"to": HOUR - 1}, "durationSeconds"),
        ({"durationSeconds": 721 * 3600, "to": 60 * DAY}, "durationSeconds"),
        ({"durationSeconds": 0}, "durationSeconds"),
        ({"devices": {"class": "mig", "count": 1, "profile": "1g.10gb"}}, "devices.class"),
        ({"devices": {"class": "gpu", "count": 1, "profile": "1g.10gb"}}, "devices.profile"),
        ({"devices": {"class": "gpu", "count": 1, "sharing": "mps"}}, "devices.sharing"),
        ({"devices": {"class": "gpu", "count": 4097}}, "devices.count"),
        ({"devices": {"class": "gpu", "count": 4096}, "nodes": 17}, "nodes"),
        ({"resources": {"vcpu": -1}}, "resources.vcpu"),
        ({"startsAt": 1}, "startsAt"),
        ({"to": 2**53 - 1}, "to"),
        ({"to": 1.5}, "to"),
    ],
)
def test_what_is_refused(world: World, pool: str, clock, changed: dict[str, Any], path: str):
    moved = {name: clock.now + at if name in ("from", "to") else at for name, at in changed.items()}
    if changed.get("to") in (2**53 - 1, 1.5):
        moved["to"] = changed["to"]
    look(world.ann.api, pool, clock.now, **moved).refused_at(path)


@pytest.mark.clause("POL-2", "from up to 60 s past means now")
def test_a_from_that_is_just_past_means_now(world: World, pool: str, clock):
    found = look(world.ann.api, pool, clock.now, 1, **{"from": clock.now - 60_000}).data
    assert found["earliest"]["startsAt"] == clock.now
    assert found["free"][0]["from"] == clock.now


@pytest.mark.clause("POL-2", "an archived or foreign pool: NOT_FOUND")
@pytest.mark.clause("API-5", "an id of another tenant's object: NOT_FOUND")
def test_pools_that_are_not_there(world: World, clock):
    hidden, archived = world.pool(name="hidden"), world.offered_pool(name="archived")
    Pool.objects.filter(id=archived).update(archived_at=clock.now)
    for pool in (hidden, archived, "pool_none"):
        look(world.ann.api, pool, clock.now).refused("NOT_FOUND")
    look(world.admin, archived, clock.now).refused("NOT_FOUND")
    world.node(hidden)
    assert look(world.admin, hidden, clock.now).data["earliest"]


@pytest.mark.clause("POL-2", "decided as compute:pools:read on the tenant")
def test_who_may_ask(world: World, pool: str, clock):
    nobody = world.person(world.acme, "nobody")
    look(nobody.api, pool, clock.now).refused("ACCESS_DENIED")
    assert look(world.vic.api, pool, clock.now).data["earliest"]
    before = Decision.objects.count()
    look(world.ann.api, pool, clock.now)
    assert Decision.objects.count() == before


@pytest.mark.clause("POL-2", "free devices: at most 200 stretches")
def test_many_stretches(world: World, pool: str, clock, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rules, "MOST_STRETCHES", 3)
    for turn in range(5):
        create(world.gil.api, pool, turn + 1, startsAt=clock.now + (2 * turn + 1) * HOUR)
    free = look(world.ann.api, pool, clock.now).data["free"]
    assert len(free) <= 3
    assert (free[0]["from"], free[-1]["to"]) == (clock.now, clock.now + DAY)
    assert free[0]["devices"] == 6


@pytest.mark.parametrize("bookings", [1, 9])
def test_it_asks_the_database_no_more_for_more_bookings(world: World, clock, bookings: int):
    pool = world.offered_pool(nodes=2)
    for turn in range(bookings):
        create(world.gil.api, pool, 1, startsAt=clock.now + turn * HOUR)
    with CaptureQueriesContext(connection) as queries:
        assert look(world.ann.api, pool, clock.now).data["earliest"]
    assert len(queries) <= 10


# --- What it answers, create places -----------------------------------------------------------------------------------

hours = st.integers(0, 6)
bookings = st.lists(
    st.tuples(st.integers(1, 4), st.integers(1, 2), hours, st.integers(1, 4), st.sampled_from(["gil", "ann"])),
    max_size=6,
)


@pytest.mark.clause("POL-2", "what it answers, create can place, and one millisecond earlier it cannot")
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(booked=bookings, gpus=st.integers(1, 4), nodes=st.integers(1, 2), length=st.integers(1, 3))
def test_create_agrees(
    world: World, clock, booked: list[tuple[int, int, int, int, str]], gpus: int, nodes: int, length: int
):
    with transaction.atomic():
        pool = world.offered_pool(name=f"pool-{len(world.nodes)}", nodes=2, gpus=4)
        begun = clock.now
        for count, gang, start, lasts, who in booked:
            clock.advance(milliseconds=1)
            asked = {"startsAt": begun + start * HOUR, "durationSeconds": lasts * 3600, "nodes": gang}
            create(getattr(world, who).api, pool, count, **asked)
        clock.advance(milliseconds=1)
        shape = {"nodes": nodes, "durationSeconds": length * 3600}
        found = look(world.bob.api, pool, clock.now, gpus, **shape).data
        first = found["earliest"]["startsAt"]
        assert found["windows"][0]["startsAt"] == first
        for told in found["windows"]:
            for start in {told["startsAt"], told["endsAt"] - length * HOUR}:
                made = create(world.bob.api, pool, gpus, startsAt=start, **shape)
                assert (made["state"], made["startsAt"]) == ("placed", start)
                world.bob.api("reservations/cancel", reservationId=made["id"])
        if first > clock.now:
            assert create(world.bob.api, pool, gpus, startsAt=first - 1, **shape)["state"] == "pending"
        clock.set(begun)
        transaction.set_rollback(True)
