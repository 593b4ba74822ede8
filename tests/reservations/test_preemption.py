"""Spot work makes way for what is not spot: at once, or from a later start on (PRE-1, PRE-2), through the API."""

from typing import Any

import pytest

from computeplatform.models import Event
from fleet.models import Allocation
from quotas.models import Quota
from reservations import reconcilers
from reservations.models import Booking, Reservation
from tests.reservations.conftest import event_types
from tests.support.api import Api, settle
from tests.support.clock import Clock
from tests.support.world import HOUR, World, request

MINUTE = 60_000


def create(api: Api, pool: str, gpus: int = 8, **changed: Any) -> dict[str, Any]:
    return dict(api("reservations/create", **request(pool, gpus, **changed)).data["reservation"])


def spot(world: World, pool: str, gpus: int = 8, **changed: Any) -> dict[str, Any]:
    """Spot work of another tenant than the one who will need the devices."""
    return create(world.gil.api, pool, gpus, spot=True, **changed)


def shown(world: World, made: dict[str, Any]) -> dict[str, Any]:
    api = world.globex.api if made["tenantId"] == "globex" else world.acme.api
    return dict(api("reservations/get", reservationId=made["id"]).data["reservation"])


def standing(world: World, *made: dict[str, Any]) -> list[tuple[str, str]]:
    rows = [shown(world, one) for one in made]
    return [(row["state"], row.get("reason", "")) for row in rows]


def conditions(row: dict[str, Any]) -> dict[str, str]:
    return {c["type"]: c["reason"] for c in row["conditions"]}


def used(pool: str, tenant: str) -> int:
    return Quota.objects.get(tenant_id=tenant, pool_id=pool, resource="gpu").used


def windows(made: dict[str, Any]) -> list[tuple[Any, ...]]:
    """What was planned, what blocks and what is billed of each of its bookings."""
    rows = Booking.objects.filter(reservation_id=made["id"]).order_by("units")
    return [
        tuple(None if r.isempty else (r.lower, r.upper) for r in (row.planned, row.during, row.billed)) for row in rows
    ]


@pytest.mark.clause("CRE-14", "does not fit and is not spot: spot work is preempted")
@pytest.mark.clause("PRE-1", "victims: released, reason preempted")
def test_running_spot_work_makes_way_at_once(world: World, pool: str, clock: Clock):
    victim = spot(world, pool)
    settle()
    assert shown(world, victim)["state"] == "active"
    clock.advance(seconds=60)
    made = create(world.ann.api, pool)
    assert made["state"] == "placed"
    gone = shown(world, victim)
    assert (gone["state"], gone["reason"], gone["releasedAt"]) == ("released", "preempted", clock.now)
    assert event_types(victim["id"]) == ["placed", "binding", "active", "released"]
    assert event_types(made["id"]) == ["placed"]
    start = victim["startsAt"]
    assert windows(victim) == [((start, victim["endsAt"]), (start, clock.now), (start, clock.now))]
    assert (used(pool, "globex"), used(pool, "acme")) == (0, 8)
    settle()
    assert shown(world, made)["state"] == "active"


@pytest.mark.clause("PRE-1", "the victim's tenant does not learn for whom")
def test_the_victim_is_not_told_for_whom(world: World, pool: str, clock: Clock):
    victim = spot(world, pool)
    settle()
    made = create(world.ann.api, pool, startsAt=clock.now + 30 * MINUTE)
    told = [*Event.objects.filter(subject_id=victim["id"]).values(), shown(world, victim)]
    for secret in (made["id"], world.ann.id, "acme"):
        assert secret not in str(told)


@pytest.mark.clause("PRE-1", "victims: released, reason preempted")
def test_spot_work_that_has_not_begun_makes_way(world: World, pool: str, clock: Clock):
    later = spot(world, pool, startsAt=clock.now + HOUR)
    made = create(world.ann.api, pool, startsAt=clock.now + 30 * MINUTE)
    assert made["state"] == "placed"
    assert standing(world, later) == [("released", "preempted")]
    assert windows(later)[0][1:] == (None, None)
    assert not Allocation.objects.filter(reservation_id=later["id"]).exists()


@pytest.mark.clause("PRE-1", "never a non-spot one")
@pytest.mark.clause("PRE-1", "never for a spot request")
@pytest.mark.clause("PRE-1", "all or nothing")
def test_who_is_never_preempted_and_who_never_preempts(world: World, pool: str, clock: Clock):
    firm = create(world.gil.api, pool, 5)
    loose = spot(world, pool, 3)
    settle()
    too_much = create(world.ann.api, pool, 4)
    assert too_much["state"] == "pending"
    assert too_much["conditions"][0]["reason"] == "NoFreeDevices"
    also_spot = create(world.ann.api, pool, 3, spot=True, priority=50)
    assert also_spot["state"] == "pending"
    assert standing(world, firm, loose) == [("active", ""), ("active", "")]
    assert not Reservation.objects.exclude(claim=None).exists()


@pytest.mark.clause("PRE-1", "preemptSpot false: nobody is preempted")
def test_a_pool_may_do_without(world: World):
    pool = world.offered_pool(policy={"preemptSpot": False})
    victim = spot(world, pool)
    assert create(world.ann.api, pool)["state"] == "pending"
    assert standing(world, victim) == [("placed", "")]


@pytest.mark.clause("PRE-1", "the nodes with the fewest victims first, on them the lowest priority, then the youngest")
def test_who_makes_way(world: World, clock: Clock):
    pool = world.offered_pool(nodes=2)
    many = []
    for _ in range(4):
        many.append(spot(world, pool, 2, priority=0))
        clock.advance(milliseconds=1)
    few = [spot(world, pool, 4, priority=50) for _ in range(2)]
    settle()
    made = create(world.ann.api, pool, 8)
    assert standing(world, *few) == [("released", "preempted")] * 2
    assert standing(world, *many) == [("active", "")] * 4
    assert [part["nodeId"] for part in made["placement"]] == [few[0]["placement"][0]["nodeId"]]
    # Of equals the youngest; nobody who is not needed.
    create(world.ann.api, pool, 2)
    assert standing(world, *many) == [("active", "")] * 3 + [("released", "preempted")]


@pytest.mark.clause("PRE-1", "a gang preempts on all its nodes or on none")
def test_a_gang_preempts(world: World, clock: Clock):
    pool = world.offered_pool(nodes=2)
    victims = [spot(world, pool, 8), spot(world, pool, 3)]
    settle()
    assert create(world.ann.api, pool, 8, nodes=3)["conditions"][0]["reason"] == "NeverFits"
    assert standing(world, *victims) == [("active", "")] * 2
    made = create(world.ann.api, pool, 8, nodes=2)
    assert made["state"] == "placed"
    assert standing(world, *victims) == [("released", "preempted")] * 2


@pytest.mark.clause("PRE-1", "host resources count too")
def test_memory_is_preempted(world: World, clock: Clock):
    pool = world.offered_pool()
    world.admin("pools/offer", poolId=pool, toTenantId="globex", resources={"gpu": 100, "memoryGiB": 10_000})
    world.admin("pools/offer", poolId=pool, toTenantId="acme", resources={"gpu": 100, "memoryGiB": 10_000})
    large = spot(world, pool, 1, resources={"vcpu": 0, "memoryGiB": 600, "hugepages1Gi": 0})
    small = spot(world, pool, 1, priority=0)
    made = create(world.ann.api, pool, 1, resources={"vcpu": 0, "memoryGiB": 500, "hugepages1Gi": 0})
    assert made["state"] == "placed"
    assert standing(world, large, small) == [("released", "preempted"), ("placed", "")]


@pytest.mark.clause("PRE-2", "quota is charged before preemption, so one's own spot work frees none")
def test_ones_own_spot_work_frees_no_quota(world: World):
    pool = world.offered_pool(quota=8)
    mine = create(world.ann.api, pool, 8, spot=True)
    refused = world.ann.api("reservations/create", **request(pool, 8))
    assert refused.refused("QUOTA_EXCEEDED", requested=8, used=8, max=8)
    assert standing(world, mine) == [("placed", "")]
    assert used(pool, "acme") == 8


@pytest.mark.clause("PRE-1", "a batch of claimants takes victim after victim")
def test_several_at_once(world: World, pool: str):
    victims = [spot(world, pool, 2) for _ in range(4)]
    settle()
    made = [create(world.ann.api, pool, 4) for _ in range(3)]
    assert [one["state"] for one in made] == ["placed", "placed", "pending"]
    assert standing(world, *victims) == [("released", "preempted")] * 4


@pytest.mark.clause("PRE-1", "spot work that a pass has placed makes way in the next")
def test_what_waits_behind_spot_work_preempts_it(world: World, pool: str, clock: Clock):
    firm = create(world.ann.api, pool, 8)
    first = spot(world, pool, 8, priority=50)
    waiting = create(world.bob.api, pool, 8, priority=10)
    assert standing(world, first, waiting) == [("pending", "")] * 2
    world.ann.api("reservations/release", reservationId=firm["id"])
    reconcilers.place(pool_id=pool)
    reconcilers.place(pool_id=pool)
    assert standing(world, first, waiting) == [("released", "preempted"), ("placed", "")]


@pytest.mark.clause("PRE-2", "what runs before the claimant's start keeps running, its end moves to that start")
@pytest.mark.clause("PRE-2", "condition PreemptionScheduled, event")
@pytest.mark.clause("PRE-2", "it is released there, reason preempted")
@pytest.mark.clause("EVT-5", "reservation.preemption-scheduled")
def test_a_later_start_cuts_the_victim_short(world: World, pool: str, clock: Clock):
    victim = spot(world, pool, 8, binding="node", durationSeconds=4 * 3600)
    settle()
    world.nodes[0].follow()
    reconcilers.reconcile(pool_id=pool)
    assert shown(world, victim)["state"] == "active"
    start = clock.now + 2 * HOUR
    made = create(world.ann.api, pool, startsAt=start)
    assert (made["state"], made["startsAt"]) == ("placed", start)
    cut = shown(world, victim)
    assert (cut["state"], cut["endsAt"], conditions(cut)) == ("active", start, {"PreemptionScheduled": "DevicesNeeded"})
    window = (victim["startsAt"], start)
    assert windows(victim) == [(window, window, window)]
    assert Allocation.objects.get(reservation_id=victim["id"]).until == start
    assert event_types(victim["id"])[-1] == "preemption-scheduled"
    assert Event.objects.get(subject_id=victim["id"], type="reservation.preemption-scheduled").data["endsAt"] == start
    assert used(pool, "globex") == 8
    clock.set(start - 1)
    settle()
    assert standing(world, victim) == [("active", "")]
    clock.set(start + 5_000)
    settle()
    gone = shown(world, victim)
    assert (gone["state"], gone["reason"], gone["releasedAt"], gone["conditions"]) == (
        "released",
        "preempted",
        start,
        [],
    )
    assert standing(world, made) == [("active", "")]
    assert used(pool, "globex") == 0


@pytest.mark.clause("EVT-4", "reservation.ending 15 minutes before a spot cut, at once if less is left, once")
def test_the_victim_is_told_of_its_cut(world: World, pool: str, clock: Clock):
    victim = spot(world, pool, 8, durationSeconds=4 * 3600)
    settle()
    create(world.ann.api, pool, startsAt=clock.now + HOUR)
    settle()
    assert "ending" not in event_types(victim["id"])
    clock.advance(milliseconds=45 * MINUTE)
    settle()
    settle()
    assert event_types(victim["id"]).count("ending") == 1
    # Another one needs the devices sooner: the new end is told too.
    create(world.ann.api, pool, startsAt=clock.now + 10 * MINUTE, durationSeconds=60)
    settle()
    assert event_types(victim["id"]).count("ending") == 2
    assert shown(world, victim)["endsAt"] == clock.now + 10 * MINUTE


@pytest.mark.clause("EXT-7", "extend never preempts")
@pytest.mark.clause("PRE-2", "a victim cannot be extended over its cut")
def test_extending_and_preemption(world: World, pool: str, clock: Clock):
    firm = create(world.ann.api, pool, 8)
    after = spot(world, pool, 8, startsAt=firm["endsAt"])
    answer = world.ann.api("reservations/extend", reservationId=firm["id"], by=HOUR).data
    assert (answer["extended"], answer["availableUntil"]) == (False, firm["endsAt"])
    assert standing(world, after) == [("placed", "")]
    start = firm["endsAt"] + 30 * MINUTE
    create(world.bob.api, pool, 8, startsAt=start)
    answer = world.gil.api("reservations/extend", reservationId=after["id"], by=HOUR).data
    assert (answer["extended"], answer["availableUntil"]) == (False, start)


@pytest.mark.clause("PRE-1", "victims do not come back and take the freed devices")
def test_victims_do_not_come_back(world: World, pool: str, clock: Clock):
    victim = spot(world, pool, 8)
    settle()
    made = create(world.ann.api, pool, 8)
    again = spot(world, pool, 8)
    settle()
    assert standing(world, victim, made, again) == [("released", "preempted"), ("active", ""), ("pending", "")]


@pytest.mark.clause("PRE-2", "one that is placed anew has its whole window again")
def test_a_victim_that_is_displaced(world: World, clock: Clock):
    pool = world.offered_pool()
    victim = spot(world, pool, 8, startsAt=clock.now + HOUR, durationSeconds=4 * 3600)
    create(world.ann.api, pool, 8, startsAt=clock.now + 2 * HOUR)
    assert shown(world, victim)["endsAt"] == clock.now + 2 * HOUR
    for _ in range(2):
        world.node(pool)
    world.admin("nodes/drain", nodeId=world.nodes[0].id, reason="test")
    settle()
    moved = shown(world, victim)
    assert moved["placement"][0]["nodeId"] != world.nodes[0].id
    assert (moved["state"], moved["endsAt"] - moved["startsAt"]) == ("placed", 4 * HOUR)
    assert conditions(moved) == {}
    assert Reservation.objects.get(id=victim["id"]).preempted_by == ""
