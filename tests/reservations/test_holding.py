"""Devices that kubernetes nodes keep after a reservation has left them (REL-2, REL-3, REL-4), through the API."""

from typing import Any

import pytest

from computeplatform.api.calls import system_actor
from computeplatform.models import Event
from fleet.contracts import places_of
from fleet.models import Allocation, Node, Taint
from fleet.operations.taints import clear_taint
from quotas.models import Charge
from reservations import reconcilers
from reservations.models import Booking, Reservation
from tests.support.api import settle
from tests.support.clock import Clock
from tests.support.nodes import tick
from tests.support.world import HOUR, SimNode, World, request

MINUTE = 60_000


@pytest.fixture
def cluster(world: World) -> str:
    """A pool of the platform's own cluster, with one node of four GPUs."""
    pool = world.pool(policy={"kubernetes": {"cluster": "c1"}, "tenantRoot": "/srv/tenants"})
    world.node(pool, gpus=4)
    for tenant in ("acme", "globex"):
        world.offer(pool, tenant)
    return pool


def create(world: World, pool: str, gpus: int = 4, **changed: Any) -> dict[str, Any]:
    """The cluster's owner reserves in it."""
    made = world.admin("reservations/create", **request(pool, gpus, **({"binding": "kubernetes"} | changed)))
    return dict(made.data["reservation"])


def run(world: World, pool: str, gpus: int = 4, *, pods: int = 2, **changed: Any) -> dict[str, Any]:
    """A reservation that is bound, with pods on its devices."""
    made = create(world, pool, gpus, **changed)
    settle()
    for node in world.nodes:
        node.follow()
        if made["id"] in node.holds:
            node.pods[made["id"]] = pods
            node.sync()
    reconcilers.reconcile(pool_id=pool)
    assert shown(world, made["id"])["state"] == "active"
    return made


def shown(world: World, reservation_id: str) -> dict[str, Any]:
    return dict(world.admin("reservations/get", reservationId=reservation_id).data["reservation"])


def conditions(world: World, reservation_id: str) -> dict[str, str]:
    return {c["type"]: c["reason"] for c in shown(world, reservation_id)["conditions"]}


def release(world: World, reservation_id: str) -> None:
    assert world.admin("reservations/release", reservationId=reservation_id).data["reservation"]["state"] == "released"


def bookings(reservation_id: str) -> list[tuple[int, int | None, int | None]]:
    """Devices, and until when each booking blocks them and is billed."""
    rows = Booking.objects.filter(reservation_id=reservation_id).order_by("units")
    return [(row.devices, row.during.upper, None if row.billed.isempty else row.billed.upper) for row in rows]


def let_go(world: World, node: SimNode, pool: str, reservation_id: str) -> None:
    """The pods are gone, and the node reports the allocation withdrawn with no holders."""
    node.pods.pop(reservation_id, None)
    node.follow()
    reconcilers.reconcile(pool_id=pool)


def tainted(node: SimNode) -> list[str]:
    return [taint["key"] for taint in node.sync()["taints"]]


@pytest.mark.clause("REL-2", "released at once, the charge refunded, the node withdraws")
@pytest.mark.clause("REL-2", "devices stay booked and billed, with DevicesHeld, until AllocationReleased")
@pytest.mark.clause("EVT-5", "reservation.devices-held")
def test_a_bound_one_is_released_and_its_devices_are_held(world: World, cluster: str, clock: Clock):
    made = run(world, cluster)
    node = world.nodes[0]
    clock.advance(seconds=60)
    release(world, made["id"])
    assert not Charge.objects.filter(refunded_at=None).exists()
    row = shown(world, made["id"])
    assert row["releasedAt"] == clock.now
    assert conditions(world, made["id"]) == {"DevicesHeld": "NotReleasedYet"}
    types = Event.objects.filter(subject_id=made["id"]).order_by("subject_version").values_list("type", flat=True)
    assert list(types)[-2:] == ["reservation.released", "reservation.devices-held"]
    assert [a["desired"] for a in node.sync()["allocations"]] == ["withdrawn"]
    # Nobody else can book them, now or for later within the planned window.
    assert world.ann.api("reservations/create", **request(cluster, 1)).data["reservation"]["state"] == "pending"
    node.follow()
    settle()
    assert bookings(made["id"]) == [(4, made["endsAt"], made["endsAt"])]
    at = clock.advance(seconds=30)
    let_go(world, node, cluster, made["id"])
    assert bookings(made["id"]) == [(4, at, at)]
    assert conditions(world, made["id"]) == {}
    assert not Allocation.objects.filter(reservation_id=made["id"]).exists()


@pytest.mark.clause("REL-3", "carried on in steps of five minutes, unbilled, and the node is tainted")
def test_it_is_carried_on_while_pods_hold(world: World, cluster: str, clock: Clock):
    made = run(world, cluster)
    node = world.nodes[0]
    end = made["endsAt"]
    clock.set(end)
    settle()
    settle()
    assert shown(world, made["id"])["state"] == "released"
    assert bookings(made["id"]) == [(4, end + 5 * MINUTE, end)]
    assert tainted(node) == ["KubernetesReleaseStuck"]
    assert Taint.objects.get().subjects == [made["id"]]
    clock.advance(milliseconds=5 * MINUTE - 1)
    settle()
    assert bookings(made["id"]) == [(4, end + 5 * MINUTE, end)]
    clock.advance(milliseconds=1)
    settle()
    assert bookings(made["id"]) == [(4, end + 10 * MINUTE, end)]
    clock.advance(seconds=7)
    let_go(world, node, cluster, made["id"])
    assert bookings(made["id"]) == [(4, clock.now, end)]
    assert tainted(node) == []
    assert Reservation.objects.get(id=made["id"]).held_since is None


# --- Every way of ending (REL-4) ----------------------------------------------------------------------------------


def by_release(world: World, clock: Clock, pool: str, made: dict[str, Any]) -> None:
    release(world, made["id"])


def by_its_end(world: World, clock: Clock, pool: str, made: dict[str, Any]) -> None:
    clock.set(made["endsAt"])
    reconcilers.reconcile_tick()


def by_lapse(world: World, clock: Clock, pool: str, made: dict[str, Any]) -> None:
    clock.advance(seconds=660)
    for node in world.nodes:
        node.sync()
    reconcilers.reconcile_tick()


def by_preemption(world: World, clock: Clock, pool: str, made: dict[str, Any]) -> None:
    world.ann.api("reservations/create", **request(pool, 4))


WAYS: dict[str, tuple[Any, dict[str, Any]]] = {
    "release": (by_release, {}),
    "ended": (by_its_end, {}),
    "lease-lapsed": (by_lapse, {"leaseSeconds": 600}),
    "preempted": (by_preemption, {"spot": True}),
}


@pytest.mark.clause("REL-4", "every way in which it ends: release, end, lapse, preemption")
@pytest.mark.parametrize("reason", WAYS)
def test_however_it_ends_its_devices_are_held(world: World, cluster: str, clock: Clock, reason: str):
    end, asked = WAYS[reason]
    made = run(world, cluster, **asked)
    end(world, clock, cluster, made)
    row = shown(world, made["id"])
    assert (row["state"], row["reason"]) == ("released", reason)
    assert "DevicesHeld" in conditions(world, made["id"])
    assert not Charge.objects.filter(reservation_id=made["id"], refunded_at=None).exists()
    node = world.nodes[0]
    node.follow()
    settle()
    assert node.holds == {made["id"]: "withdrawing"}
    clock.set(made["endsAt"])
    settle()
    assert bookings(made["id"]) == [(4, made["endsAt"] + 5 * MINUTE, made["endsAt"])]
    assert tainted(node) == ["KubernetesReleaseStuck"]
    clock.advance(seconds=1)
    let_go(world, node, cluster, made["id"])
    assert conditions(world, made["id"]) == {}
    assert tainted(node) == []
    assert bookings(made["id"])[0][1] == clock.now
    settle()
    waiting = world.ann.api("reservations/list").data["reservations"]
    assert [one["state"] for one in waiting] == (["active"] if reason == "preempted" else [])


@pytest.mark.clause("REL-4", "a node that was told to bind and has not reported since holds them too")
def test_a_node_that_was_told_may_hold(world: World, cluster: str, clock: Clock):
    made = create(world, cluster)
    settle()
    node = world.nodes[0]
    node.sync()  # told to bind; what it did with that, nobody knows
    clock.advance(seconds=1)
    release(world, made["id"])
    assert "DevicesHeld" in conditions(world, made["id"])
    assert world.ann.api("reservations/create", **request(cluster, 1)).data["reservation"]["state"] == "pending"
    node.sync()
    reconcilers.reconcile(pool_id=cluster)
    assert conditions(world, made["id"]) == {}
    assert bookings(made["id"])[0][1] == clock.now


@pytest.mark.clause("REL-4", "a node that was never told holds nothing")
def test_a_node_that_was_never_told_holds_nothing(world: World, cluster: str, clock: Clock):
    made = create(world, cluster)
    settle()
    clock.advance(seconds=1)
    release(world, made["id"])
    assert conditions(world, made["id"]) == {}
    assert bookings(made["id"]) == [(4, clock.now, clock.now)]
    assert not Allocation.objects.exists()


@pytest.mark.clause("REL-4", "what the node withdrew by itself at the end is not held")
@pytest.mark.clause("NOD-8", "the node acts on until by itself: nothing is left to withdraw")
def test_what_the_node_withdrew_by_itself_is_not_held(world: World, cluster: str, clock: Clock):
    made = run(world, cluster, pods=0)
    node = world.nodes[0]
    clock.set(made["endsAt"])
    node.holds[made["id"]] = "withdrawn"
    node.sync()
    settle()
    assert shown(world, made["id"])["state"] == "released"
    assert conditions(world, made["id"]) == {}
    assert tainted(node) == []
    assert bookings(made["id"]) == [(4, made["endsAt"], made["endsAt"])]


@pytest.mark.clause("REL-4", "AllocationReleased means that no pod holds them")
@pytest.mark.parametrize(("state", "holders", "free"), [("withdrawing", 0, False), ("withdrawn", 1, False)])
def test_what_is_no_release(world: World, cluster: str, clock: Clock, state: str, holders: int, free: bool):
    made = run(world, cluster)
    node = world.nodes[0]
    release(world, made["id"])
    node.holds[made["id"]], node.pods[made["id"]] = state, holders
    node.sync()
    reconcilers.reconcile(pool_id=cluster)
    assert ("DevicesHeld" not in conditions(world, made["id"])) == free
    assert Allocation.objects.filter(reservation_id=made["id"]).exists() != free


@pytest.mark.clause("REL-4", "a node that has booted again holds nothing")
def test_a_reboot_lets_go(world: World, cluster: str, clock: Clock):
    made = run(world, cluster)
    node = world.nodes[0]
    release(world, made["id"])
    node.boot_id, node.session, node.sequence = "boot-2", None, 0
    node.holds, node.pods = {}, {}
    node.sync()
    reconcilers.reconcile(pool_id=cluster)
    assert conditions(world, made["id"]) == {}


@pytest.mark.clause("REL-4", "node by node")
def test_a_gang_is_held_node_by_node(world: World, cluster: str, clock: Clock):
    world.node(cluster, gpus=4)
    made = run(world, cluster, 4, nodes=2)
    first, second = world.nodes
    release(world, made["id"])
    at = clock.advance(seconds=5)
    let_go(world, first, cluster, made["id"])
    assert sorted(bookings(made["id"])) == [(4, at, at), (4, made["endsAt"], made["endsAt"])]
    assert "DevicesHeld" in conditions(world, made["id"])
    assert world.ann.api("reservations/create", **request(cluster, 4)).data["reservation"]["state"] == "placed"
    at = clock.advance(seconds=5)
    let_go(world, second, cluster, made["id"])
    assert conditions(world, made["id"]) == {}
    assert (4, at, at) in bookings(made["id"])


@pytest.mark.clause("REL-4", "a failed bind of a gang: held where bound or told, and none of it billed")
@pytest.mark.clause("REC-7", "none of that time is billed, devices still held included")
def test_a_gang_that_binds_in_part(world: World, cluster: str, clock: Clock):
    world.node(cluster, gpus=4)
    made = create(world, cluster, 4, nodes=2)
    settle()
    first, second = world.nodes
    first.follow()
    second.sync()
    for _ in range(15):
        clock.advance(seconds=20)
        first.sync()
        second.sync()
        reconcilers.reconcile_tick()
    row = shown(world, made["id"])
    assert (row["state"], row["reason"]) == ("released", "bind-failed")
    assert tainted(second) == ["BindTimedOut"]
    assert {b[2] for b in bookings(made["id"])} == {None}
    held = {row.node_id: row.held_since for row in Booking.objects.all()}
    assert held[first.id] == clock.now
    first.follow()
    second.follow()
    reconcilers.reconcile(pool_id=cluster)
    assert conditions(world, made["id"]) == {}
    assert {b[2] for b in bookings(made["id"])} == {None}


@pytest.mark.clause(
    "REC-7", "a kubernetes reservation that is placed elsewhere leaves the held devices behind, unbilled"
)
@pytest.mark.clause("CAN-1", "a pending one whose devices are still held elsewhere can be cancelled")
def test_what_was_not_bound_in_time_waits_and_leaves_devices_behind(world: World, cluster: str, clock: Clock):
    made = create(world, cluster)
    settle()
    node = world.nodes[0]
    node.sync()
    for _ in range(15):
        clock.advance(seconds=20)
        node.sync()
        reconcilers.reconcile_tick()
    row = shown(world, made["id"])
    assert row["state"] == "pending"
    assert {"DevicesHeld", "Unschedulable"} <= set(conditions(world, made["id"]))
    assert bookings(made["id"]) == [(4, made["endsAt"], None)]
    # Another node comes, and it is placed there while the first still may hold.
    other = world.node(cluster, gpus=4)
    reconcilers.placement_tick()
    placed = shown(world, made["id"])
    assert (placed["state"], placed["placement"][0]["nodeId"]) == ("placed", other.id)
    assert "DevicesHeld" in conditions(world, made["id"])
    settle()
    other.follow()
    reconcilers.reconcile(pool_id=cluster)
    assert shown(world, made["id"])["state"] == "active"
    node.follow()
    reconcilers.reconcile(pool_id=cluster)
    assert conditions(world, made["id"]) == {}
    assert tainted(node) == []


@pytest.mark.clause("CAN-1", "binding: INVALID_STATE, and the message names release")
@pytest.mark.clause("CAN-1", "a pending one whose devices are still held can be cancelled")
def test_cancelling(world: World, cluster: str, clock: Clock):
    made = create(world, cluster)
    settle()
    refused = world.admin("reservations/cancel", reservationId=made["id"]).refused("INVALID_STATE", state="binding")
    assert "release" in refused["message"]
    node = world.nodes[0]
    node.sync()
    for _ in range(15):
        clock.advance(seconds=20)
        node.sync()
        reconcilers.reconcile_tick()
    assert shown(world, made["id"])["state"] == "pending"
    gone = world.admin("reservations/cancel", reservationId=made["id"]).data["reservation"]
    assert (gone["state"], gone["reason"]) == ("cancelled", "cancel")
    assert "DevicesHeld" in conditions(world, made["id"])
    assert bookings(made["id"]) == [(4, made["endsAt"], None)]
    node.follow()
    reconcilers.reconcile(pool_id=cluster)
    assert conditions(world, made["id"]) == {}


# --- A lost node ------------------------------------------------------------------------------------------------------


@pytest.mark.clause("REL-2", "or is lost: the bookings end at its last contact")
@pytest.mark.clause("QTA-5", "a lost node's bookings end at its last contact")
def test_a_lost_node_holds_nothing(world: World, cluster: str, clock: Clock):
    made = run(world, cluster)
    release(world, made["id"])
    contact = clock.advance(seconds=10)
    world.nodes[0].sync()
    clock.advance(seconds=31)
    lose(world.nodes[0])
    settle()
    assert bookings(made["id"]) == [(4, contact, contact)]
    assert conditions(world, made["id"]) == {}


def lose(node: SimNode) -> None:
    """What the fleet's tick does with a silent node."""
    silent = Node.objects.get(id=node.id)
    Node.objects.filter(id=node.id).update(state="lost", lost_at=silent.last_heartbeat_at)


@pytest.mark.clause("REL-3", "the taint stays until the node is lost")
def test_a_stuck_node_that_is_lost(world: World, cluster: str, clock: Clock):
    made = run(world, cluster)
    clock.set(made["endsAt"])
    settle()
    settle()
    assert Taint.objects.filter(key="KubernetesReleaseStuck").exists()
    lose(world.nodes[0])
    settle()
    assert not Taint.objects.exists()
    assert conditions(world, made["id"]) == {}


# --- Beyond the end ---------------------------------------------------------------------------------------------------


@pytest.mark.clause("REL-3", "for at most 24 hours; then the booking ends and the taint stays")
def test_after_a_day_the_booking_ends(world: World, cluster: str, clock: Clock):
    made = run(world, cluster)
    node, end = world.nodes[0], made["endsAt"]
    for now in (end, end + 13 * HOUR + 7, end + 24 * HOUR - 1, end + 24 * HOUR, end + 30 * HOUR):
        clock.set(now)
        node.sync()
        settle()
        settle()
    assert bookings(made["id"]) == [(4, end + 24 * HOUR, end)]
    assert tainted(node) == ["KubernetesReleaseStuck"]
    assert "DevicesHeld" in conditions(world, made["id"])
    let_go(world, node, cluster, made["id"])
    assert bookings(made["id"]) == [(4, end + 24 * HOUR, end)]
    assert (tainted(node), conditions(world, made["id"])) == ([], {})


@pytest.mark.clause("REL-3", "an operator clears the taint with a reason, and it stays cleared")
def test_an_operator_clears_the_taint(world: World, cluster: str, clock: Clock):
    made = run(world, cluster)
    clock.set(made["endsAt"])
    settle()
    settle()
    node = world.nodes[0]
    assert clear_taint([node.id], "KubernetesReleaseStuck", by=system_actor("op"), now=clock.now, reason="seen") == 1
    assert Event.objects.filter(type="node.untainted").latest("id").reason == "seen"
    clock.advance(seconds=300)
    settle()
    assert tainted(node) == []
    # Its devices are held all the same.
    assert bookings(made["id"]) == [(4, made["endsAt"] + 10 * MINUTE, made["endsAt"])]
    assert world.ann.api("reservations/create", **request(cluster, 1)).data["reservation"]["state"] == "pending"


@pytest.mark.clause("REL-3", "if pods hold them: a node that only has to withdraw is not tainted at once")
def test_without_pods_the_node_gets_the_time_to_withdraw(world: World, cluster: str, clock: Clock):
    made = run(world, cluster, pods=0)
    node, end = world.nodes[0], made["endsAt"]
    clock.set(end)
    settle()
    settle()
    assert Taint.objects.count() == 0
    assert bookings(made["id"]) == [(4, end + 5 * MINUTE, end)], "nobody else gets them before it has"
    clock.advance(seconds=2)
    let_go(world, node, cluster, made["id"])
    assert bookings(made["id"]) == [(4, clock.now, end)]


@pytest.mark.clause("REL-2", "until then nothing else can book them: not between the end and a late tick either")
@pytest.mark.clause("REL-3", "carried on while the devices are free")
def test_a_late_tick_gives_nothing_away(world: World, cluster: str, clock: Clock):
    made = run(world, cluster)
    clock.set(made["endsAt"] + 40)
    assert world.ann.api("reservations/create", **request(cluster, 1)).data["reservation"]["state"] == "pending"
    settle()
    settle()
    # The next step, late too.
    clock.set(made["endsAt"] + 5 * MINUTE + 40)
    clear_taint([world.nodes[0].id], "KubernetesReleaseStuck", by=system_actor("op"), now=clock.now)
    reconcilers.placement_tick()
    assert world.ann.api("reservations/create", **request(cluster, 1)).data["reservation"]["state"] == "pending"
    settle()
    assert bookings(made["id"]) == [(4, made["endsAt"] + 10 * MINUTE, made["endsAt"])]


# --- Who has booked them in advance -----------------------------------------------------------------------------------


@pytest.mark.clause("REL-3", "an advance booking takes them at its start, and stays binding with DevicesHeldByPrevious")
@pytest.mark.clause("REL-3", "its bind timeout does not run")
@pytest.mark.clause("QTA-5", "what waits for a former holder is billed from bound")
@pytest.mark.parametrize("binding", ["kubernetes", "node", "hold"])
def test_an_advance_booking_takes_the_devices(world: World, cluster: str, clock: Clock, binding: str):
    made = run(world, cluster)
    end, node = made["endsAt"], world.nodes[0]
    next_ = create(world, cluster, 4, binding=binding, startsAt=end, durationSeconds=7200)
    assert next_["state"] == "placed"
    clock.set(end)
    settle()
    settle()
    assert bookings(made["id"]) == [(4, end, end)]
    assert "DevicesHeld" in conditions(world, made["id"])
    assert tainted(node) == ["KubernetesReleaseStuck"]
    for _ in range(60):  # ten minutes; the bind timeout is five
        clock.advance(seconds=10)
        node.follow()
        node.holds = {k: v for k, v in node.holds.items() if k == made["id"]}
        reconcilers.reconcile_tick()
        assert shown(world, next_["id"])["state"] == "binding"
    assert conditions(world, next_["id"]) == {"DevicesHeldByPrevious": "NotReleasedYet"}
    assert [b[2] for b in bookings(next_["id"])] == [None]
    clock.advance(seconds=5)
    let_go(world, node, cluster, made["id"])
    clock.advance(seconds=5)
    node.follow()
    settle()
    row = shown(world, next_["id"])
    assert (row["state"], row["conditions"]) == ("active", [])
    billed = Booking.objects.get(reservation_id=next_["id"]).billed
    bound_at = Reservation.objects.get(id=next_["id"]).active_at
    assert (billed.lower, billed.upper) == (bound_at, next_["endsAt"])
    assert bound_at is not None
    assert bound_at > end + 10 * MINUTE
    assert tainted(node) == []


@pytest.mark.clause("REL-3", "the bind timeout begins when the devices are free")
def test_the_bind_timeout_begins_when_they_are_free(world: World, cluster: str, clock: Clock):
    made = run(world, cluster)
    node = world.nodes[0]
    next_ = create(world, cluster, 4, startsAt=made["endsAt"])
    clock.set(made["endsAt"])
    settle()
    clock.advance(seconds=299)
    node.sync()
    settle()
    node.pods, node.holds = {}, {}
    for _ in range(29):
        clock.advance(seconds=10)
        node.sync()
        reconcilers.reconcile_tick()
    assert shown(world, next_["id"])["state"] == "binding"
    for _ in range(3):
        clock.advance(seconds=10)
        node.sync()
        reconcilers.reconcile_tick()
    assert shown(world, next_["id"])["state"] == "pending"


@pytest.mark.clause("REL-3", "a run is split where an advance booking needs only one of its devices")
def test_a_run_is_split_for_an_advance_booking(world: World, cluster: str, clock: Clock):
    made = run(world, cluster)
    end = made["endsAt"]
    next_ = world.ann.api("reservations/create", **request(cluster, 1, startsAt=end + 2 * MINUTE)).data["reservation"]
    taken = next_["placement"][0]["devices"][0]["position"]
    clock.set(end)
    settle()
    settle()
    found = {(devices, until) for devices, until, _ in bookings(made["id"])}
    assert (1, end + 2 * MINUTE) in found
    assert sum(devices for devices, _ in found) == 4
    assert {until for _, until in found} == {end + 2 * MINUTE, end + 5 * MINUTE}
    clock.set(end + 5 * MINUTE)
    settle()
    assert shown_to(world.ann, next_["id"])["state"] == "binding"
    limits = {
        position: row.during.upper
        for row in Booking.objects.filter(reservation_id=made["id"])
        for position in places_of(row.units.lower, row.units.upper)
    }
    assert limits == {p: end + (2 if p == taken else 10) * MINUTE for p in range(4)}
    assert {row.billed.upper for row in Booking.objects.filter(reservation_id=made["id"])} == {end}
    let_go(world, world.nodes[0], cluster, made["id"])
    settle()
    assert shown_to(world.ann, next_["id"])["state"] == "active"


def shown_to(person: Any, reservation_id: str) -> dict[str, Any]:
    return dict(person.api("reservations/get", reservationId=reservation_id).data["reservation"])


@pytest.mark.clause("REL-3", "an advance booking that ends while it waits is not billed")
def test_an_advance_booking_that_never_gets_them(world: World, cluster: str, clock: Clock):
    made = run(world, cluster)
    next_ = create(world, cluster, 4, startsAt=made["endsAt"])
    clock.set(made["endsAt"])
    settle()
    settle()
    clock.advance(seconds=30)
    settle()
    release(world, next_["id"])
    assert bookings(next_["id"]) == [(4, clock.now, None)]
    assert "DevicesHeldByPrevious" not in conditions(world, next_["id"])


@pytest.mark.clause("REC-4", "a binding one that waits for a former holder too waits for that no longer")
def test_an_advance_booking_whose_other_node_is_lost(world: World, cluster: str, clock: Clock):
    made = run(world, cluster)
    keeps = world.nodes[0]
    world.node(cluster, gpus=4)
    next_ = create(world, cluster, 4, nodes=2, startsAt=made["endsAt"])
    clock.set(made["endsAt"] - 10_000)
    for node in world.nodes:
        node.sync()
    for _ in range(34):
        clock.advance(seconds=10)
        keeps.sync()
        tick()
    back = shown(world, next_["id"])
    assert (back["state"], back["reason"]) == ("pending", "node-lost")
    assert list(conditions(world, next_["id"])) == ["Unschedulable"]
    assert "DevicesHeld" in conditions(world, made["id"])
