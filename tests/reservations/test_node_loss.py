"""Nodes that are lost under reservations (REC-4, REC-8, QTA-5): what has not started moves, what runs has its grace."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from computeplatform.api.calls import system_actor
from computeplatform.models import Event
from fleet.models import Pool
from fleet.operations.silence import end_mass_silence
from quotas.models import Quota
from reservations import reconcilers
from reservations.models import Booking, Reservation
from reservations.operations import displacing
from tests.reservations.conftest import event_types
from tests.support.api import settle
from tests.support.nodes import condition, lose, on, pass_time, tick
from tests.support.world import HOUR, World, request


def create(world: World, pool: str, gpus: int = 8, **changed: Any) -> dict[str, Any]:
    return dict(world.ann.api("reservations/create", **request(pool, gpus, **changed)).data["reservation"])


def get(world: World, made: dict[str, Any]) -> dict[str, Any]:
    return dict(world.ann.api("reservations/get", reservationId=made["id"]).data["reservation"])


def used(pool: str, tenant: str = "acme") -> int:
    return Quota.objects.get(tenant_id=tenant, pool_id=pool, resource="gpu").used


def billed(made: dict[str, Any]) -> dict[str, tuple[int, int] | None]:
    """What is billed of a reservation, by node."""
    rows = Booking.objects.filter(reservation_id=made["id"])
    return {b.node_id: None if b.billed.isempty else (b.billed.lower, b.billed.upper) for b in rows}


# --- Not started ------------------------------------------------------------------------------------------------------


@pytest.mark.clause("REC-4", "not-yet-started ones are placed elsewhere if they fit")
@pytest.mark.clause("EVT-5", "placed comes again after a re-placement")
def test_a_placed_one_moves_to_another_node(world: World, clock):
    pool = world.offered_pool(nodes=2)
    made = create(world, pool, startsAt=clock.now + HOUR)
    (gone,) = on(world, made)
    lose(world, clock, gone)
    moved = get(world, made)
    assert moved["state"] == "placed"
    assert [node.id for node in on(world, moved)] == [node.id for node in world.nodes if node is not gone]
    assert (moved["startsAt"], moved["endsAt"]) == (made["startsAt"], made["endsAt"])
    assert event_types(made["id"])[-1] == "placed"
    assert used(pool) == 8
    # The node that is back has nothing of it any more.
    assert gone.sync()["allocations"] == []


@pytest.mark.clause("REC-4", "else pending")
@pytest.mark.clause("REC-1", "placed to pending when a node of it is lost")
def test_a_placed_one_that_fits_nowhere_waits(world: World, pool: str, clock):
    made = create(world, pool, startsAt=clock.now + HOUR)
    (gone,) = on(world, made)
    lose(world, clock, gone)
    waiting = get(world, made)
    assert (waiting["state"], waiting["reason"]) == ("pending", "node-lost")
    assert "placement" not in waiting
    assert condition(waiting, "Unschedulable") is not None
    assert (event_types(made["id"]), used(pool)) == (["placed", "pending"], 8)
    assert billed(made) == {gone.id: None}
    gone.sync()
    settle()
    assert get(world, made)["state"] == "placed"
    assert event_types(made["id"]) == ["placed", "pending", "placed"]


def test_it_keeps_its_price_and_its_charge_in_an_archived_pool(world: World, clock):
    pool = world.offered_pool(
        nodes=2, policy={"tenantRoot": "/srv", "price": {"perDeviceHour": "2.00", "currency": "EUR"}}
    )
    made = create(world, pool, startsAt=clock.now + HOUR)
    Pool.objects.filter(id=pool).update(archived_at=clock.now)
    (gone,) = on(world, made)
    lose(world, clock, gone)
    moved = get(world, made)
    assert (moved["state"], moved["estimatedCost"]) == ("placed", made["estimatedCost"])
    assert used(pool) == 8


@pytest.mark.clause("REN-1", "the lease runs anew from a re-placement")
def test_its_lease_runs_anew(world: World, clock):
    pool = world.offered_pool(nodes=2)
    made = create(world, pool, startsAt=clock.now + HOUR, leaseSeconds=600)
    (gone,) = on(world, made)
    lose(world, clock, gone)
    assert get(world, made)["leaseExpiresAt"] == clock.now + 600_000


def test_an_extended_one_keeps_its_end(world: World, clock):
    pool = world.offered_pool(nodes=2)
    made = create(world, pool, startsAt=clock.now + HOUR)
    longer = world.ann.api("reservations/extend", reservationId=made["id"], by=HOUR).data["reservation"]
    (gone,) = on(world, made)
    lose(world, clock, gone)
    moved = get(world, made)
    assert (moved["state"], moved["startsAt"], moved["endsAt"]) == ("placed", made["startsAt"], longer["endsAt"])


def test_one_that_starts_while_its_node_is_silent_but_not_lost(world: World, pool: str, clock):
    """It starts, since nobody knows; then it has the grace like any other, and nothing of it is billed."""
    made = create(world, pool, startsAt=clock.now + 30_000)
    (gone,) = on(world, made)
    at = lose(world, clock, gone, seconds=30)
    assert get(world, made)["state"] == "active"
    pass_time(clock, seconds=270)
    assert get(world, made)["state"] == "released"
    assert clock.now == at + 300_000
    assert billed(made) == {gone.id: None}


# --- Running ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def active(world: World, pool: str) -> dict[str, Any]:
    made = create(world, pool)
    settle()
    assert get(world, made)["state"] == "active"
    return made


@pytest.mark.clause("REC-4", "started ones get NodeLost")
@pytest.mark.clause("EVT-5", "reservation.node-lost")
def test_a_running_one_is_told(world: World, clock, active):
    (gone,) = on(world, active)
    at = lose(world, clock, gone)
    tick()
    shown = get(world, active)
    told = condition(shown, "NodeLost")
    assert told is not None
    assert (shown["state"], told["status"], told["lastTransitionAt"]) == ("active", "True", clock.now)
    assert gone.id in told["message"]
    event = Event.objects.get(type="reservation.node-lost")
    assert event.data["nodes"] == [{"nodeId": gone.id, "lastContactAt": at}]
    assert event.data["releaseAt"] == at + 300_000
    assert (event.subject_version, event.tenant_id) == (shown["version"], "acme")


@pytest.mark.clause("REC-4", "the grace counts from the last contact, and ends with node-lost")
@pytest.mark.clause("QTA-5", "a lost node's bookings end at its last contact")
def test_it_is_released_when_the_grace_has_run_out(world: World, pool: str, clock, active):
    (gone,) = on(world, active)
    at = lose(world, clock, gone)
    clock.set(at + 299_999)
    tick()
    assert get(world, active)["state"] == "active"
    clock.advance(milliseconds=1)
    tick()
    tick()
    ended = get(world, active)
    assert (ended["state"], ended["reason"], ended["releasedAt"]) == ("released", "node-lost", at + 300_000)
    assert ended["conditions"] == []
    assert billed(active) == {gone.id: (active["startsAt"], at)}
    assert used(pool) == 0
    assert event_types(active["id"]) == ["placed", "binding", "active", "node-lost", "released"]


@pytest.mark.clause("REC-4", "the pool's grace")
@pytest.mark.parametrize("grace", [0, 60])
def test_the_grace_is_the_pools(world: World, clock, grace: int):
    pool = world.offered_pool(policy={"nodeLostGraceSeconds": grace})
    made = create(world, pool)
    settle()
    (gone,) = on(world, made)
    at = lose(world, clock, gone)
    assert (get(world, made)["state"] == "released") == (grace == 0)
    pass_time(clock, seconds=30)
    assert get(world, made)["releasedAt"] == at + grace * 1_000


def test_a_late_tick_releases_at_the_same_moment(world: World, clock, active):
    (gone,) = on(world, active)
    at = lose(world, clock, gone)
    clock.advance(seconds=1_000)
    tick()
    assert get(world, active)["releasedAt"] == at + 300_000


def test_what_ended_before_its_grace_ran_out_has_ended(world: World, pool: str, clock):
    made = create(world, pool, durationSeconds=120)
    settle()
    (gone,) = on(world, made)
    at = lose(world, clock, gone)
    clock.advance(seconds=1_000)
    tick()
    ended = get(world, made)
    assert (ended["reason"], ended["releasedAt"]) == ("ended", made["endsAt"])
    assert billed(made) == {gone.id: (made["startsAt"], at)}


@pytest.mark.clause("REC-4", "a node that returns in time: the condition goes")
def test_it_goes_on_when_the_node_returns(world: World, clock, active):
    (gone,) = on(world, active)
    lose(world, clock, gone, seconds=200)
    gone.sync()
    tick()
    shown = get(world, active)
    assert (shown["state"], shown["conditions"]) == ("active", [])
    pass_time(clock, gone, seconds=300)
    assert get(world, active)["state"] == "active"
    assert billed(active) == {gone.id: (active["startsAt"], active["endsAt"])}


@pytest.mark.clause("REC-4", "a node that returns late is told to withdraw what is no longer its")
def test_a_node_that_returns_too_late_withdraws(world: World, pool: str, clock):
    made = create(world, pool, binding="node")
    settle()
    (gone,) = on(world, made)
    gone.follow()
    settle()
    lose(world, clock, gone, seconds=310)
    assert get(world, made)["state"] == "released"
    told = {a["reservationId"]: a["desired"] for a in gone.sync()["allocations"]}
    assert told == {made["id"]: "withdrawn"}
    gone.follow()
    gone.follow()
    assert gone.sync()["allocations"] == []
    again = create(world, pool, binding="node")
    assert again["state"] == "placed"


@pytest.mark.clause("REC-4", "a rebooted node binds again what is still wanted")
def test_a_rebooted_node_is_told_to_bind_again(world: World, pool: str, clock):
    made = create(world, pool, binding="node")
    settle()
    (node,) = on(world, made)
    node.follow()
    clock.advance(seconds=5)
    settle()
    assert get(world, made)["state"] == "active"
    node.boot_id, node.session, node.holds = "boot-2", None, {}
    told = node.sync()["allocations"]
    assert [(a["reservationId"], a["desired"]) for a in told] == [(made["id"], "bound")]
    node.follow()
    tick()
    shown = world.ann.api("reservations/get", reservationId=made["id"]).data
    assert (shown["reservation"]["state"], shown["binding"][0]["nodeId"]) == ("active", node.id)


@pytest.mark.clause("REC-4", "partial gang: one of several nodes lost")
@pytest.mark.clause("QTA-5", "a lost node's bookings end at its last contact, the others at the release")
def test_a_gang_that_loses_one_node(world: World, clock):
    pool = world.offered_pool(nodes=3)
    made = create(world, pool, nodes=2)
    settle()
    gone, alive = on(world, made)
    at = lose(world, clock, gone, seconds=310)
    ended = get(world, made)
    assert (ended["state"], ended["reason"]) == ("released", "node-lost")
    assert billed(made) == {gone.id: (made["startsAt"], at), alive.id: (made["startsAt"], at + 300_000)}
    assert used(pool) == 0
    told = {a["reservationId"]: a["desired"] for a in alive.sync()["allocations"]}
    assert "bound" not in told.values()


@pytest.mark.clause("REC-4", "a binding one with nothing bound goes the way of REC-7")
@pytest.mark.clause("REC-7", "placed elsewhere, the try is unbilled, the silent node is tainted")
def test_a_binding_one_with_nothing_bound_is_placed_elsewhere(world: World, clock):
    pool = world.offered_pool(nodes=2, policy={"tenantRoot": "/srv", "bindTimeoutSeconds": 3600})
    made = create(world, pool, binding="node")
    settle()
    (gone,) = on(world, made)
    lose(world, clock, gone, seconds=290)
    assert get(world, made)["state"] == "binding"
    assert condition(get(world, made), "NodeLost") is not None
    pass_time(clock, *(node for node in world.nodes if node is not gone), seconds=10)
    settle()
    moved = get(world, made)
    assert moved["state"] == "binding"
    assert moved["conditions"] == []
    assert gone not in on(world, moved)
    assert billed(made)[gone.id] is None
    assert "BindTimedOut" in [t["key"] for t in world.admin("nodes/get", nodeId=gone.id).data["node"]["taints"]]
    assert used(pool) == 8


@pytest.mark.clause("QTA-5", "whatever ends it, a lost node's bookings end at its last contact")
def test_a_release_while_its_node_is_lost_is_billed_to_the_last_contact(world: World, clock, active):
    (gone,) = on(world, active)
    at = lose(world, clock, gone, seconds=100)
    ended = world.ann.api("reservations/release", reservationId=active["id"]).data["reservation"]
    assert (ended["reason"], ended["releasedAt"], ended["conditions"]) == ("release", clock.now, [])
    assert billed(active) == {gone.id: (active["startsAt"], at)}


# --- Silence that is not the node's -----------------------------------------------------------------------------------


@pytest.mark.clause("REC-8", "node grace is moved by a gap in our own service")
def test_the_grace_is_moved_by_a_gap(world: World, pool: str, clock):
    active = create(world, pool, durationSeconds=5 * 3600)
    settle()
    (gone,) = on(world, active)
    at = lose(world, clock, gone)
    clock.outage(seconds=3_600)
    tick()
    assert get(world, active)["state"] == "active"
    clock.set(at + 3_600_000 + 299_999)
    reconcilers.reconcile_tick()
    assert get(world, active)["state"] == "active"
    clock.advance(milliseconds=1)
    tick()
    ended = get(world, active)
    assert (ended["state"], ended["releasedAt"]) == ("released", at + 3_600_000 + 300_000)
    assert billed(active) == {gone.id: (active["startsAt"], at)}


@pytest.mark.clause("REC-8", "many at once: none is timed out until an operator says so")
def test_nothing_is_released_while_many_are_silent(world: World, clock):
    pool = world.offered_pool(nodes=4, policy={"tenantRoot": "/srv", "bindTimeoutSeconds": 60})
    active = create(world, pool)
    binding = create(world, pool, binding="node")
    later = create(world, pool, startsAt=clock.now + 10 * HOUR)
    settle()
    at = lose(world, clock, *world.nodes, seconds=600)
    assert get(world, active)["state"] == "active"
    assert get(world, active)["conditions"] == []
    assert get(world, binding)["state"] == "binding"
    assert get(world, later)["placement"] == later["placement"]
    end_mass_silence(pool_id=pool, reason="", by=system_actor("test"), now=clock.now)
    tick()
    ended = get(world, active)
    assert (ended["state"], ended["reason"], ended["releasedAt"]) == ("released", "node-lost", at + 300_000)
    assert get(world, later)["state"] == "pending"
    assert get(world, binding)["state"] == "pending"


@pytest.mark.clause("REC-8", "the bind timeout runs anew when they are heard of again")
def test_the_bind_timeout_runs_anew_after_mass_silence(world: World, clock):
    pool = world.offered_pool(nodes=3, policy={"tenantRoot": "/srv", "bindTimeoutSeconds": 60})
    made = create(world, pool, binding="node")
    settle()
    lose(world, clock, *world.nodes, seconds=300)
    pass_time(clock, seconds=10)
    for node in world.nodes:
        node.sync()
    tick()
    tick()
    assert get(world, made)["state"] == "binding"
    clock.advance(seconds=59)
    reconcilers.reconcile_tick()
    assert get(world, made)["state"] == "binding"
    clock.advance(seconds=1)
    reconcilers.reconcile_tick()
    assert get(world, made)["state"] in ("pending", "placed")


# --- Cost -------------------------------------------------------------------------------------------------------------


def test_a_pass_costs_the_same_however_many_run_there(world: World, clock):
    pool = world.offered_pool(nodes=2)
    first = create(world, pool, 1)
    settle()
    (gone,) = on(world, first)
    lose(world, clock, gone)

    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            displacing.displace(pool, now=clock.now)
        return len(captured)

    few = queries()
    gone.sync()
    tick()
    for _ in range(5):
        create(world, pool, 1)
    settle()
    lose(world, clock, gone)
    assert queries() == few == 2
    assert Reservation.objects.filter(disturbed_since__isnull=False).count() == 6
