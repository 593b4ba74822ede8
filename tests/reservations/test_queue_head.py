"""The first in line is not passed for ever, and starves nobody (REC-9); what else is kept from others."""

from collections.abc import Callable
from typing import Any

import pytest

from fleet.models import Maintenance
from reservations.models import Reservation
from reservations.operations import placing
from tests.support.api import Api, settle
from tests.support.clock import Clock
from tests.support.world import HOUR, World, request


@pytest.fixture
def bare(world: World) -> str:
    """One node of eight GPUs whose host reports nothing."""
    pool = world.offered_pool(nodes=0)
    world.node(pool, host=None)
    return pool


@pytest.fixture
def create(clock: Clock) -> Callable[..., dict[str, Any]]:
    """One after the other: each is a millisecond younger than the one before."""

    def one(api: Api, pool: str, gpus: int, **changed: Any) -> dict[str, Any]:
        clock.advance(milliseconds=1)
        return api("reservations/create", **request(pool, gpus, **changed)).data["reservation"]

    return one


def state(world: World, made: dict[str, Any]) -> str:
    api = world.acme.api if made["tenantId"] == "acme" else world.globex.api
    return str(api("reservations/get", reservationId=made["id"]).data["reservation"]["state"])


def why(made: dict[str, Any]) -> str:
    [condition] = made["conditions"]
    return str(condition["reason"])


@pytest.mark.clause("REC-9", "new requests too: they pass only if they end before the shadow start")
@pytest.mark.clause("CRE-14", "fits, REC-9 counts")
def test_a_new_request_does_not_delay_the_first_in_line(world: World, bare: str, create, clock):
    first = create(world.ann.api, bare, 5)
    head = create(world.ann.api, bare, 8)
    late = create(world.ann.api, bare, 1, durationSeconds=3600)
    assert why(late) == "BehindQueueHead"
    assert late["conditions"][0]["message"].startswith(
        "needs 1 gpu on one node; that many are free, but the first in line starts on them at "
    )
    for gap, fits in ((1, False), (0, True)):
        asked = request(bare, 3, endsAt=first["endsAt"] + gap)
        del asked["durationSeconds"]
        assert (world.ann.api("reservations/create", **asked).data["reservation"]["state"] == "placed") is fits
    clock.set(first["endsAt"])
    settle()
    assert state(world, head) == "active"
    assert state(world, late) == "pending"


@pytest.mark.clause("REC-9", "its earliest fit, as it is now")
def test_what_is_freed_before_the_tick_is_the_firsts(world: World, bare: str, create):
    first = create(world.ann.api, bare, 5)
    head = create(world.ann.api, bare, 8)
    world.ann.api("reservations/release", reservationId=first["id"])
    assert why(create(world.ann.api, bare, 1, durationSeconds=60)) == "BehindQueueHead"
    settle()
    assert state(world, head) == "active"


@pytest.mark.clause("REC-9", "it is not passed for ever")
def test_a_stream_of_small_requests_does_not_starve_a_large_one(world: World, bare: str, create, clock):
    for _ in range(8):
        create(world.gil.api, bare, 1)
        clock.advance(seconds=60)
    head = create(world.ann.api, bare, 8, priority=50)
    started = None
    for minute in range(120):
        create(world.gil.api, bare, 1, priority=40)
        clock.advance(seconds=60)
        settle()
        if state(world, head) == "active":
            started = minute
            break
    # The last of those before it ends 59 minutes after it came.
    assert started == 58


@pytest.mark.clause("REC-9", "those behind it pass if they leave its devices free")
def test_a_head_does_not_starve_those_that_leave_its_devices_free(world: World, bare: str, create):
    world.node(bare, gpus=2, host=None)
    create(world.ann.api, bare, 5, durationSeconds=7200)
    head = create(world.ann.api, bare, 8)
    small = create(world.ann.api, bare, 2, durationSeconds=24 * 3600)
    assert (state(world, head), small["placement"][0]["nodeId"]) == ("pending", world.nodes[1].id)


@pytest.mark.clause("REC-9", "the first that could ever fit")
@pytest.mark.parametrize("hopeless", ["never", "unavailable", "too late"])
def test_one_that_cannot_fit_holds_up_nobody(world: World, bare: str, create, clock, hopeless: str):
    create(world.ann.api, bare, 5)
    if hopeless == "never":
        create(world.ann.api, bare, 9)
    elif hopeless == "unavailable":
        world.node(bare, gpus=16, host=None)
        world.admin("nodes/cordon", nodeId=world.nodes[1].id)
        assert why(create(world.ann.api, bare, 12)) == "NodesUnavailable"
    else:
        create(world.ann.api, bare, 8, startBefore=clock.now + HOUR - 1)
    assert create(world.ann.api, bare, 3, durationSeconds=7200)["state"] == "placed"


@pytest.mark.clause("REC-9", "only those behind it: a higher priority is before it")
def test_a_higher_priority_is_not_behind(world: World, bare: str, create):
    create(world.ann.api, bare, 5)
    create(world.ann.api, bare, 8, priority=40)
    assert create(world.ann.api, bare, 3, durationSeconds=7200)["state"] == "placed"
    assert why(create(world.ann.api, bare, 1, durationSeconds=7200)) == "NoFreeDevices"


@pytest.mark.clause("QTA-4", "among equals of REC-9 too the tenant that holds least is first")
def test_a_tenant_that_holds_less_is_not_behind(world: World, bare: str, create):
    create(world.ann.api, bare, 5)
    create(world.ann.api, bare, 8)
    assert create(world.gil.api, bare, 1, durationSeconds=7200)["state"] == "placed"
    assert why(create(world.bob.api, bare, 1, durationSeconds=7200)) == "BehindQueueHead"


@pytest.mark.clause("REC-3", "50 pending, eight GPUs come back: eight given")
def test_of_fifty_as_many_are_placed_as_fit(world: World, bare: str, create):
    first = create(world.ann.api, bare, 8)
    for _ in range(50):
        create(world.ann.api, bare, 1)
    world.ann.api("reservations/release", reservationId=first["id"])
    settle()
    assert Reservation.objects.filter(state="active").count() == 8
    assert Reservation.objects.filter(state="pending").count() == 42


@pytest.mark.clause("REC-9", "in a pass those behind the first that does not fit keep its devices free")
def test_the_pass_keeps_the_shadow_free(world: World, bare: str, create):
    world.node(bare, gpus=8, host=None)
    first = create(world.ann.api, bare, 8)
    second = create(world.ann.api, bare, 8, durationSeconds=7200)
    large = create(world.ann.api, bare, 8, nodes=2, priority=50)
    long = create(world.ann.api, bare, 8, durationSeconds=7201)
    short = create(world.ann.api, bare, 8, durationSeconds=7199)
    world.ann.api("reservations/release", reservationId=first["id"])
    settle()
    assert {state(world, large), state(world, long)} == {"pending"}
    assert state(world, short) == "active"
    assert state(world, second) == "active"
    reasons = {row.id: row.conditions[0]["reason"] for row in Reservation.objects.filter(state="pending")}
    assert reasons == {large["id"]: "NoFreeDevices", long["id"]: "BehindQueueHead"}


@pytest.mark.clause("REC-3", "what can never fit does not keep others from their turn")
def test_never_fits_do_not_fill_a_pass(world: World, bare: str, create, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(placing, "PASS_LIMIT", 3)
    first = create(world.ann.api, bare, 8)
    for _ in range(4):
        assert why(create(world.ann.api, bare, 9, priority=50)) == "NeverFits"
    small = create(world.ann.api, bare, 8, priority=1)
    world.ann.api("reservations/release", reservationId=first["id"])
    settle()
    assert state(world, small) == "active"


@pytest.mark.clause("PRE-2", "freed devices are kept for the claimant until it is placed")
def test_a_claim_is_the_claimants_alone(world: World, bare: str, create, clock):
    first = create(world.ann.api, bare, 8)
    claimant = create(world.ann.api, bare, 4, priority=1)
    node = world.nodes[0].id
    Reservation.objects.filter(id=claimant["id"]).update(
        claim=[{"nodeId": node, "first": 2, "count": 4, "from": clock.now}]
    )
    world.ann.api("reservations/release", reservationId=first["id"])
    small = create(world.ann.api, bare, 2)
    assert [d["position"] for d in small["placement"][0]["devices"]] == [0, 1]
    assert why(create(world.ann.api, bare, 4)) == "NoFreeDevices"
    settle()
    row = Reservation.objects.get(id=claimant["id"])
    assert (row.state, row.claim) == ("active", None)


@pytest.mark.clause("NOD-7", "maintenance is a busy interval for placement")
@pytest.mark.parametrize(("gap", "fits"), [(0, True), (1, False)])
def test_nothing_is_placed_into_maintenance(world: World, bare: str, create, clock, gap: int, fits: bool):
    world.admin(
        "nodes/maintenance",
        nodeId=world.nodes[0].id,
        **{"from": clock.now + 1 + HOUR - gap, "until": clock.now + 2 * HOUR},
    )
    assert Maintenance.objects.count() == 1
    made = create(world.ann.api, bare, 1)
    assert (made["state"] == "placed") is fits
    if not fits:
        assert why(made) == "NodesUnavailable"
        assert made["conditions"][0]["message"].endswith("1 of 1 nodes have maintenance in that time")
        clock.advance(milliseconds=2 * HOUR)
        settle()
        assert state(world, made) == "active"


@pytest.mark.clause("NOD-1", "drain: no new bookings")
def test_a_draining_node_takes_nothing(world: World, bare: str, create):
    world.admin("nodes/drain", nodeId=world.nodes[0].id)
    assert why(create(world.ann.api, bare, 1)) == "NodesUnavailable"


@pytest.mark.clause("REC-6", "back-to-back windows fit to the millisecond, one of overlap does not")
def test_back_to_back(world: World, bare: str, create, clock):
    later = create(world.ann.api, bare, 8, startsAt=clock.now + HOUR)
    for end, placed in ((later["startsAt"] + 1, False), (later["startsAt"], True)):
        asked = request(bare, 8, endsAt=end)
        del asked["durationSeconds"]
        made = world.ann.api("reservations/create", **asked).data["reservation"]
        assert (made["state"] == "placed") is placed
        if not placed:
            world.ann.api("reservations/cancel", reservationId=made["id"])
