"""The claimant waits: its victims have a notice, or their nodes keep the devices for a while (PRE-1, PRE-2, EVT-4)."""

from typing import Any

import pytest

from computeplatform.models import Event
from quotas.models import Quota
from reservations import reconcilers
from reservations.models import Reservation
from reservations.operations.placing import place_pending
from tests.reservations.conftest import event_types
from tests.reservations.test_preemption import conditions, create, shown, spot, standing, windows
from tests.support.api import settle
from tests.support.clock import Clock
from tests.support.world import HOUR, World, request

MINUTE = 60_000


@pytest.fixture
def patient(world: World) -> str:
    """A pool that gives two minutes of notice."""
    return world.offered_pool(policy={"spotNoticeSeconds": 120, "tenantRoot": "/srv/tenants"})


def claim(made: dict[str, Any]) -> Any:
    return Reservation.objects.get(id=made["id"]).claim


@pytest.mark.clause("PRE-2", "with notice a running victim ends no earlier, and the claimant is pending until then")
@pytest.mark.clause("CRE-14", "AwaitingPreemption")
@pytest.mark.clause("EVT-4", "a running victim has policy.spotNoticeSeconds between notice and release")
def test_a_running_victim_has_its_notice(world: World, patient: str, clock: Clock):
    victim = spot(world, patient, 8)
    settle()
    at = clock.now + 2 * MINUTE
    made = create(world.ann.api, patient, 8)
    assert (made["state"], conditions(made)) == ("pending", {"Unschedulable": "AwaitingPreemption"})
    assert "needs 8 gpu on one node; 1 spot reservation makes way" in made["conditions"][0]["message"]
    cut = shown(world, victim)
    assert (cut["state"], cut["endsAt"], conditions(cut)) == ("active", at, {"PreemptionScheduled": "DevicesNeeded"})
    assert claim(made) == [{"nodeId": world.nodes[0].id, "first": 0, "count": 8, "from": at}]
    settle()
    assert event_types(victim["id"])[-2:] == ["preemption-scheduled", "ending"]
    assert Event.objects.get(subject_id=victim["id"], type="reservation.ending").reason == "preemption"
    clock.set(at - 1)
    settle()
    assert standing(world, victim, made) == [("active", ""), ("pending", "")]
    clock.set(at)
    reconcilers.reconcile_tick()
    reconcilers.place(pool_id=patient)
    gone, now = shown(world, victim), shown(world, made)
    assert (gone["state"], gone["reason"], gone["releasedAt"]) == ("released", "preempted", at)
    assert (now["state"], now["startsAt"], now["endsAt"], now["conditions"]) == ("placed", at, at + HOUR, [])
    assert claim(made) is None
    assert event_types(made["id"]) == ["pending", "placed"]


@pytest.mark.clause("PRE-2", "nothing is kept for one that can never have it")
def test_a_claimant_that_no_longer_fits_at_all(world: World, patient: str, clock: Clock):
    victim = spot(world, patient, 8)
    settle()
    made = create(world.ann.api, patient, 8)
    clock.advance(seconds=120)
    reconcilers.reconcile_tick()
    assert shown(world, victim)["state"] == "released"
    world.admin("nodes/assign", nodeId=world.nodes[0].id)
    reconcilers.place(pool_id=patient)
    assert (conditions(shown(world, made)), claim(made)) == ({"Unschedulable": "NeverFits"}, None)


@pytest.mark.clause("PRE-2", "asked again it stays: nobody else is preempted for it")
def test_waiting_preempts_nobody_else(world: World, patient: str, clock: Clock):
    other = world.node(patient)
    victims = [spot(world, patient, 8), spot(world, patient, 8)]
    settle()
    made = create(world.ann.api, patient, 8)
    for _ in range(3):
        settle()
    version = shown(world, made)["version"]
    settle()
    cut = [row for row in (shown(world, victim) for victim in victims) if row["conditions"]]
    assert len(cut) == 1
    assert shown(world, made)["version"] == version == 1
    assert other.id in {part["nodeId"] for row in victims for part in row["placement"]}


@pytest.mark.clause("PRE-2", "freed devices are kept for the claimant until it is placed")
def test_what_is_freed_is_kept(world: World, patient: str, clock: Clock):
    victim = spot(world, patient, 5)
    settle()
    made = create(world.ann.api, patient, 8)
    assert made["state"] == "pending"
    # Three devices are free until the victim's notice is over, and for nobody beyond that.
    assert create(world.bob.api, patient, 1, priority=50)["state"] == "pending"
    assert create(world.bob.api, patient, 1, durationSeconds=60)["state"] == "placed"
    assert spot(world, patient, 1)["state"] == "pending"
    clock.advance(seconds=120)
    reconcilers.reconcile_tick()
    reconcilers.place(pool_id=patient)
    assert standing(world, victim, made) == [("released", "preempted"), ("placed", "")]


@pytest.mark.clause("PRE-2", "or until it ends: then others have what was kept")
@pytest.mark.parametrize("end", ["release", "cancel"])
def test_when_the_claimant_ends_others_have_it(world: World, patient: str, clock: Clock, end: str):
    spot(world, patient, 5)
    settle()
    made = create(world.ann.api, patient, 8)
    other = create(world.bob.api, patient, 3)
    assert standing(world, made, other) == [("pending", "")] * 2
    world.ann.api(f"reservations/{end}", reservationId=made["id"])
    assert claim(made) is None
    reconcilers.place(pool_id=patient)
    assert standing(world, other) == [("placed", "")]


@pytest.mark.clause("PRE-2", "or until it ends: given up at its last moment, others have what was kept")
def test_a_claimant_that_is_given_up(world: World, patient: str, clock: Clock):
    spot(world, patient, 8)
    settle()
    made = create(world.ann.api, patient, 8, startBefore=clock.now + 2 * MINUTE + 1)
    assert conditions(made) == {"Unschedulable": "AwaitingPreemption"}
    clock.advance(seconds=121)
    reconcilers.reconcile_tick()
    assert standing(world, made) == [("cancelled", "window-passed")]
    assert claim(made) is None


@pytest.mark.clause("PRE-2", "who could not start in time after the notice preempts nobody")
@pytest.mark.parametrize("late", [{"startBefore": 2 * MINUTE}, {"endsAt": 2 * MINUTE}])
def test_whoever_could_not_start_in_time_preempts_nobody(
    world: World, patient: str, clock: Clock, late: dict[str, int]
):
    victim = spot(world, patient, 8)
    settle()
    asked = request(patient, 8, **{name: clock.now + value for name, value in late.items()})
    if "endsAt" in late:
        del asked["durationSeconds"]
    made = world.ann.api("reservations/create", **asked).data["reservation"]
    assert (made["state"], conditions(made)) == ("pending", {"Unschedulable": "NoFreeDevices"})
    assert shown(world, victim)["endsAt"] == victim["endsAt"]


@pytest.mark.clause("PRE-2", "what has not begun needs no notice")
def test_what_has_not_begun_has_no_notice(world: World, patient: str, clock: Clock):
    soon = spot(world, patient, 8, startsAt=clock.now + MINUTE)
    made = create(world.ann.api, patient, 8)
    assert made["state"] == "placed"
    assert standing(world, soon) == [("released", "preempted")]


@pytest.mark.clause("PRE-2", "a start after the notice is booked at once")
def test_a_start_after_the_notice_is_booked_at_once(world: World, patient: str, clock: Clock):
    victim = spot(world, patient, 8)
    settle()
    start = clock.now + 2 * MINUTE
    made = create(world.ann.api, patient, 8, startsAt=start)
    assert (made["state"], made["startsAt"]) == ("placed", start)
    assert shown(world, victim)["endsAt"] == start


@pytest.mark.clause("PRE-2", "a fixed end stays where it is")
def test_a_fixed_window_gets_shorter(world: World, patient: str, clock: Clock):
    spot(world, patient, 8)
    settle()
    asked = request(patient, 8, endsAt=clock.now + HOUR)
    del asked["durationSeconds"]
    made = world.ann.api("reservations/create", **asked).data["reservation"]
    at = clock.advance(seconds=120)
    settle()
    reconcilers.place(pool_id=patient)
    now = shown(world, made)
    assert (now["state"], now["startsAt"], now["endsAt"]) == ("active", at, asked["endsAt"])


@pytest.mark.clause("PRE-2", "two claimants wait for victims of their own")
def test_two_claimants_never_wait_for_one_victim(world: World, patient: str, clock: Clock):
    world.node(patient)
    victims = [spot(world, patient, 8), spot(world, patient, 8)]
    settle()
    made = [create(world.ann.api, patient, 8) for _ in range(3)]
    assert [conditions(one)["Unschedulable"] for one in made] == ["AwaitingPreemption"] * 2 + ["NoFreeDevices"]
    causes = Reservation.objects.filter(spot=True).values_list("preempted_by", flat=True)
    assert sorted(causes) == sorted(one["id"] for one in made[:2])
    clock.advance(seconds=120)
    settle()
    reconcilers.place(pool_id=patient)
    assert standing(world, *victims) == [("released", "preempted")] * 2
    assert standing(world, *made) == [("active", "")] * 2 + [("pending", "")]


@pytest.mark.clause("PRE-2", "a claim that is of no use any more is given up")
def test_the_claimed_node_is_lost(world: World, patient: str, clock: Clock):
    world.node(patient)
    first, second = spot(world, patient, 8, priority=0), spot(world, patient, 8)
    settle()
    made = create(world.ann.api, patient, 8)
    claimed = first["placement"][0]["nodeId"]
    assert claim(made)[0]["nodeId"] == claimed
    world.admin("nodes/cordon", nodeId=claimed, reason="test")
    other = next(node for node in world.nodes if node.id != claimed)
    at = clock.advance(seconds=120)
    reconcilers.reconcile_tick()
    reconcilers.place(pool_id=patient)
    # Its node takes no bookings: it has spot work elsewhere make way.
    assert claim(made) == [{"nodeId": other.id, "first": 0, "count": 8, "from": at + 2 * MINUTE}]
    clock.advance(seconds=120)
    reconcilers.reconcile_tick()
    reconcilers.place(pool_id=patient)
    assert standing(world, first, second, made) == [("released", "preempted")] * 2 + [("placed", "")]


# --- Held devices -----------------------------------------------------------------------------------------------------


@pytest.fixture
def cluster(world: World) -> str:
    """A cluster of the platform's own, with one node of four GPUs; acme may use it too."""
    pool = world.pool(policy={"kubernetes": {"cluster": "c1"}, "tenantRoot": "/srv/tenants"})
    world.node(pool, gpus=4)
    world.offer(pool, "acme")
    world.offer(pool, "globex")
    return pool


def pods(world: World, pool: str, gpus: int = 4, **changed: Any) -> dict[str, Any]:
    """Spot work of the cluster's owner, with two pods on its devices."""
    made = world.admin("reservations/create", **request(pool, gpus, binding="kubernetes", spot=True, **changed))
    row = dict(made.data["reservation"])
    settle()
    node = world.nodes[0]
    node.follow()
    node.pods[row["id"]] = 2
    node.sync()
    reconcilers.reconcile(pool_id=pool)
    assert Reservation.objects.get(id=row["id"]).state == "active"
    return row


@pytest.mark.clause("PRE-1", "if the victims' devices are held, the request is pending until they are free")
def test_held_devices_keep_the_claimant_waiting(world: World, cluster: str, clock: Clock):
    victim = pods(world, cluster)
    node = world.nodes[0]
    clock.advance(seconds=10)
    made = create(world.ann.api, cluster, 4)
    assert (made["state"], conditions(made)) == ("pending", {"Unschedulable": "AwaitingPreemption"})
    assert "as soon as their nodes let go" in made["conditions"][0]["message"]
    row = Reservation.objects.get(id=victim["id"])
    assert (row.state, row.reason, row.ended_at) == ("released", "preempted", clock.now)
    assert [c["type"] for c in row.conditions] == ["DevicesHeld"]
    assert Quota.objects.get(tenant_id="platform", pool_id=cluster, resource="gpu").used == 0
    # The devices stay the victim's, and nobody but the claimant gets them after that.
    assert windows(victim)[0][1] == (victim["startsAt"], victim["endsAt"])
    assert create(world.gil.api, cluster, 1)["state"] == "pending"
    clock.advance(seconds=60)
    settle()
    assert standing(world, made) == [("pending", "")]
    node.pods.clear()
    node.follow()
    reconcilers.reconcile(pool_id=cluster)
    reconcilers.place(pool_id=cluster)
    assert standing(world, made) == [("placed", "")]
    assert claim(made) is None


@pytest.mark.clause("PRE-1", "a kubernetes victim whose node was told nothing frees its devices in the next pass")
def test_a_kubernetes_victim_that_holds_nothing(world: World, cluster: str, clock: Clock):
    later = world.admin(
        "reservations/create", **request(cluster, 4, binding="kubernetes", spot=True, startsAt=clock.now + HOUR // 2)
    ).data["reservation"]
    made = create(world.ann.api, cluster, 4)
    assert made["state"] == "placed"
    assert Reservation.objects.get(id=later["id"]).reason == "preempted"
    # One that is binding may have been told by the time its row is written.
    world.ann.api("reservations/release", reservationId=made["id"])
    binding = world.admin("reservations/create", **request(cluster, 4, binding="kubernetes", spot=True)).data
    reconcilers.reconcile_tick()
    assert Reservation.objects.get(id=binding["reservation"]["id"]).state == "binding"
    made = create(world.ann.api, cluster, 4)
    assert made["state"] == "pending"
    place_pending(pool_id=cluster, now=clock.now)
    assert standing(world, made) == [("placed", "")]


@pytest.mark.clause("PRE-2", "pods that outstay the cut: the claimant's booking in advance takes the devices")
def test_a_kubernetes_victim_that_is_cut_later(world: World, cluster: str, clock: Clock):
    victim = pods(world, cluster, durationSeconds=4 * 3600)
    start = clock.now + HOUR
    made = create(world.ann.api, cluster, 4, startsAt=start)
    assert made["state"] == "placed"
    clock.set(start)
    settle()
    row = Reservation.objects.get(id=victim["id"])
    assert (row.state, row.reason, row.ended_at) == ("released", "preempted", start)
    assert standing(world, made)[0][0] in ("active", "binding")
