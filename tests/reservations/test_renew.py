"""Leases: ``reservations/renew``, lapse, and gaps in our own service (REN-1, REN-2, REC-8)."""

from typing import Any

import pytest

from computeplatform.models import Event, ServiceGap
from fleet.models import Node
from iam.models import Decision, Principal
from quotas.models import Quota
from reservations import reconcilers
from reservations.models import Booking, Reservation
from tests.reservations.conftest import event_types
from tests.support.api import Answer
from tests.support.clock import Clock
from tests.support.world import World, request

SECOND = 1000
LEASE = 60


def shown(world: World, reservation_id: str) -> dict[str, Any]:
    return world.ann.api("reservations/get", reservationId=reservation_id).data["reservation"]


def leased(world: World, pool: str, **changed: Any) -> dict[str, Any]:
    """A running reservation with a lease."""
    asked = request(pool, leaseSeconds=LEASE) | changed
    made = world.ann.api("reservations/create", **asked).data["reservation"]
    reconcilers.reconcile_tick()
    return shown(world, made["id"])


def renew(world: World, reservation_id: str) -> Answer:
    return world.ann.api("reservations/renew", reservationId=reservation_id)


def tick(world: World, reservation_id: str) -> dict[str, Any]:
    reconcilers.reconcile_tick()
    return shown(world, reservation_id)


@pytest.mark.clause("REN-1", "the deadline is now + leaseSeconds; the window is unchanged")
@pytest.mark.clause("REN-1", "no event; version does not rise")
@pytest.mark.clause("EVT-5", "renewals write neither event nor history")
def test_renewed(world: World, pool: str, clock: Clock):
    one = leased(world, pool)
    assert one["leaseExpiresAt"] == one["startsAt"] + LEASE * SECOND
    events = Event.objects.count()
    now = clock.advance(seconds=20)
    answer = renew(world, one["id"]).data["reservation"]
    assert answer == one | {"leaseExpiresAt": now + LEASE * SECOND}
    assert Event.objects.count() == events
    assert shown(world, one["id"]) == answer


@pytest.mark.clause("REN-1", "decided as extend, with the present window")
def test_decided_as_extend(world: World, pool: str):
    one = leased(world, pool)
    renew(world, one["id"])
    entry = Decision.objects.get(action="compute:reservations:extend")
    assert (entry.resource_id, entry.outcome) == (one["id"], "allow")
    # A viewer may not.
    world.vic.api("reservations/renew", reservationId=one["id"]).refused("ACCESS_DENIED")
    world.gil.api("reservations/renew", reservationId=one["id"]).refused("NOT_FOUND")


@pytest.mark.clause("REN-1", "without a lease: INVALID_STATE")
def test_without_a_lease(world: World, pool: str):
    one = leased(world, pool, leaseSeconds=30)
    made = world.ann.api("reservations/create", **request(pool)).data["reservation"]
    assert not made.keys() & {"leaseSeconds", "leaseExpiresAt"}
    renew(world, made["id"]).refused("INVALID_STATE", reason="no-lease", reservationId=made["id"])
    assert "leaseExpiresAt" not in shown(world, made["id"])
    assert shown(world, one["id"]) == one


@pytest.mark.clause("REN-1", "placed, binding and active ones")
@pytest.mark.parametrize("state", ["placed", "binding", "active"])
def test_states_that_can_be_renewed(world: World, pool: str, clock: Clock, state: str):
    ways: dict[str, Any] = {
        "placed": {"startsAt": clock.now + 3_600_000},
        "binding": {"binding": "node"},
        "active": {},
    }
    later = ways[state]
    one = leased(world, pool, **later)
    assert one["state"] == state
    now = clock.advance(seconds=1)
    assert renew(world, one["id"]).data["reservation"]["leaseExpiresAt"] == now + LEASE * SECOND


@pytest.mark.clause("REN-1", "another state: INVALID_STATE")
@pytest.mark.parametrize("state", ["draft", "pending", "released", "cancelled"])
def test_other_states(world: World, pool: str, state: str):
    asked = request(pool, 8 if state == "pending" else 1, leaseSeconds=LEASE)
    if state == "draft":
        world.offer(pool, "acme", gpu=0)
        world.ann.api("reservations/create", **asked).refused("QUOTA_EXCEEDED")
    else:
        if state == "pending":
            world.ann.api("reservations/create", **request(pool, 8))
        one = world.ann.api("reservations/create", **asked).data["reservation"]["id"]
        if state == "released":
            reconcilers.reconcile_tick()
            world.ann.api("reservations/release", reservationId=one)
        elif state == "cancelled":
            world.ann.api("reservations/cancel", reservationId=one)
    row = Reservation.objects.get(lease_seconds=LEASE)
    renew(world, row.id).refused("INVALID_STATE", state=state, reservationId=row.id)
    after = Reservation.objects.get(lease_seconds=LEASE)
    assert (after.state, after.version, after.lease_expires_at) == (row.state, row.version, None)
    renew(world, "res_none").refused("NOT_FOUND")


@pytest.mark.clause("REN-1", "the lease runs from placement and not while pending")
def test_it_runs_from_placement(world: World, pool: str, clock: Clock):
    blocker = world.ann.api("reservations/create", **request(pool, 8)).data["reservation"]["id"]
    waiting = world.ann.api("reservations/create", **request(pool, 8, leaseSeconds=LEASE)).data["reservation"]
    assert "leaseExpiresAt" not in waiting
    clock.advance(seconds=600)
    assert tick(world, waiting["id"])["state"] == "pending"
    world.ann.api("reservations/release", reservationId=blocker)
    reconcilers.placement_tick()
    assert shown(world, waiting["id"])["leaseExpiresAt"] == clock.now + LEASE * SECOND


@pytest.mark.clause("REN-1", "the lease runs before the start too")
def test_it_lapses_before_the_start(world: World, pool: str, clock: Clock):
    one = leased(world, pool, startsAt=clock.now + 3_600_000)
    clock.advance(seconds=LEASE + 3)
    done = tick(world, one["id"])
    assert (done["state"], done["reason"], done["releasedAt"]) == ("released", "lease-lapsed", one["leaseExpiresAt"])


@pytest.mark.clause("REN-1", "anew from a re-placement")
def test_it_runs_anew_from_a_re_placement(world: World, clock: Clock):
    pool = world.offered_pool(nodes=2, policy={"tenantRoot": "/srv", "bindTimeoutSeconds": 30})
    one = leased(world, pool, binding="node")
    clock.advance(seconds=31)
    Node.objects.update(last_heartbeat_at=clock.now)
    waiting = tick(world, one["id"])
    assert waiting["state"] == "pending"
    assert "leaseExpiresAt" not in waiting
    now = clock.advance(seconds=100)
    reconcilers.placement_tick()
    assert shown(world, one["id"])["leaseExpiresAt"] == now + LEASE * SECOND


@pytest.mark.clause("REN-2", "a lapsed lease releases, reason lease-lapsed, at the deadline")
@pytest.mark.clause("REC-2", "releasedAt of lease-lapsed is the deadline, not the tick's time")
def test_lapsed(world: World, pool: str, clock: Clock):
    one = leased(world, pool)
    deadline = one["leaseExpiresAt"]
    clock.set(deadline - 1)
    assert tick(world, one["id"])["state"] == "active"
    # However late within ten seconds.
    clock.set(deadline + 7 * SECOND)
    done = tick(world, one["id"])
    assert (done["state"], done["reason"], done["releasedAt"]) == ("released", "lease-lapsed", deadline)
    assert "leaseExpiresAt" not in done
    assert Booking.objects.get().billed.upper == deadline
    assert Quota.objects.get(tenant_id="acme", resource="gpu").used == 0
    told = Event.objects.get(type="reservation.released")
    assert (told.reason, told.actor_id) == ("lease-lapsed", "system:capacity.reservations")


@pytest.mark.clause("REN-2", "within 10 seconds of the deadline, by ticks every second")
def test_within_ten_seconds(world: World, pool: str, clock: Clock):
    one = leased(world, pool)
    clock.set(one["leaseExpiresAt"])
    for _ in range(10):
        clock.advance(seconds=1)
        if tick(world, one["id"])["state"] == "released":
            break
    assert clock.now - one["leaseExpiresAt"] <= 4 * SECOND


@pytest.mark.clause("REN-2", "a renew that arrives first always wins")
def test_renewed_in_the_last_millisecond(world: World, pool: str, clock: Clock):
    one = leased(world, pool)
    clock.set(one["leaseExpiresAt"] - 1)
    assert renew(world, one["id"]).status == 200
    clock.advance(seconds=5)
    assert tick(world, one["id"])["state"] == "active"
    assert shown(world, one["id"])["leaseExpiresAt"] == one["leaseExpiresAt"] - 1 + LEASE * SECOND


@pytest.mark.clause("REN-2", "one that arrives after never revives, also if the tick is late")
@pytest.mark.parametrize("late", [0, 1, 1500, 29_000])
def test_renewed_too_late(world: World, pool: str, clock: Clock, late: int):
    one = leased(world, pool)
    clock.set(one["leaseExpiresAt"] - 1)
    reconcilers.reconcile_tick()
    # From here on the tick does not run, for less than the gap of REC-8.
    clock.outage(milliseconds=1 + late)
    error = renew(world, one["id"]).refused("INVALID_STATE", reason="lease-lapsed")
    assert error["details"]["leaseExpiredAt"] == one["leaseExpiresAt"]
    assert Reservation.objects.get().lease_expires_at == one["leaseExpiresAt"]
    clock.outage(milliseconds=max(0, 4000 - late))
    done = tick(world, one["id"])
    assert (done["state"], done["releasedAt"]) == ("released", one["leaseExpiresAt"])
    assert not ServiceGap.objects.exists()


@pytest.mark.clause("REC-8", "lease deadlines are moved by a gap in our own service")
def test_a_gap_moves_the_deadline(world: World, pool: str, clock: Clock):
    one = leased(world, pool)
    clock.advance(seconds=20)
    reconcilers.reconcile_tick()
    clock.outage(seconds=300)
    # The first tick after the gap counts it before it judges anything.
    assert tick(world, one["id"])["state"] == "active"
    gap = ServiceGap.objects.get()
    assert (gap.began_at, gap.ended_at) == (clock.now - 300 * SECOND, clock.now)
    clock.advance(seconds=LEASE - 20 - 1)
    assert tick(world, one["id"])["state"] == "active"
    clock.advance(seconds=4)
    done = tick(world, one["id"])
    assert (done["state"], done["reason"]) == ("released", "lease-lapsed")
    assert done["releasedAt"] == one["leaseExpiresAt"] + 300 * SECOND
    assert Booking.objects.get().billed.upper == done["releasedAt"]


@pytest.mark.clause("REC-8", "renew counts the gap first too, before any tick has noted it")
def test_renew_counts_the_gap_that_lasts(world: World, pool: str, clock: Clock):
    one = leased(world, pool)
    clock.outage(seconds=LEASE + 100)
    assert not ServiceGap.objects.exists()
    assert renew(world, one["id"]).data["reservation"]["leaseExpiresAt"] == clock.now + LEASE * SECOND
    assert tick(world, one["id"])["state"] == "active"
    # Renewed within the gap, the lease owes nothing to it.
    clock.advance(seconds=LEASE)
    renew(world, one["id"]).refused("INVALID_STATE", reason="lease-lapsed")


@pytest.mark.clause("REC-8", "a gap that began after the deadline moves nothing")
def test_a_gap_after_the_deadline(world: World, pool: str, clock: Clock):
    one = leased(world, pool)
    clock.set(one["leaseExpiresAt"])
    reconcilers.reconcile_tick()
    assert shown(world, one["id"])["state"] == "active"
    clock.advance(seconds=1)
    clock.outage(seconds=300)
    renew(world, one["id"]).refused("INVALID_STATE", reason="lease-lapsed")
    done = tick(world, one["id"])
    assert (done["state"], done["releasedAt"]) == ("released", one["leaseExpiresAt"])


@pytest.mark.clause("REC-8", "bind timeouts are moved by a gap in our own service")
def test_a_gap_moves_the_bind_timeout(world: World, pool: str, clock: Clock):
    made = world.ann.api("reservations/create", **request(pool, binding="node")).data["reservation"]
    assert tick(world, made["id"])["state"] == "binding"
    clock.outage(seconds=600)
    Node.objects.update(last_heartbeat_at=clock.now)
    assert tick(world, made["id"])["state"] == "binding"
    clock.advance(seconds=299)
    Node.objects.update(last_heartbeat_at=clock.now)
    assert tick(world, made["id"])["state"] == "binding"
    clock.advance(seconds=1)
    Node.objects.update(last_heartbeat_at=clock.now)
    assert tick(world, made["id"])["state"] == "pending"


@pytest.mark.clause("REN-1", "the end of the window comes first where it is earlier")
def test_the_window_ends_first(world: World, pool: str, clock: Clock):
    one = leased(world, pool, durationSeconds=30)
    clock.set(one["endsAt"])
    done = tick(world, one["id"])
    assert (done["reason"], done["releasedAt"]) == ("ended", one["endsAt"])


@pytest.mark.clause("REN-2", "both have passed: whichever was first")
def test_the_lease_lapsed_first(world: World, pool: str, clock: Clock):
    one = leased(world, pool, durationSeconds=LEASE + 1)
    clock.set(one["endsAt"] + 20 * SECOND)
    done = tick(world, one["id"])
    assert (done["reason"], done["releasedAt"]) == ("lease-lapsed", one["leaseExpiresAt"])


@pytest.mark.clause("POL-1", "policy agentsNeedLease: an agent's request needs leaseSeconds")
def test_agents_need_a_lease(world: World):
    pool = world.offered_pool(policy={"agentsNeedLease": True})
    agent = world.person(world.acme, "robot", "reserver")
    Principal.objects.filter(id=agent.id).update(kind="agent", sponsor_id=world.ann.id, boundary=["compute:*"])
    before = Reservation.objects.count()
    assert "agents" in agent.api("reservations/create", **request(pool)).refused_at("leaseSeconds")
    assert Reservation.objects.count() == before
    assert agent.api("reservations/create", **request(pool, leaseSeconds=30)).data["reservation"]["leaseSeconds"] == 30
    # People do not need one, and without the policy nobody does.
    assert world.ann.api("reservations/create", **request(pool)).status == 200
    world.admin("pools/update", poolId=pool, policy={"agentsNeedLease": False})
    assert agent.api("reservations/create", **request(pool)).status == 200


def told(reservation_id: str) -> list[tuple[str, int]]:
    """What was told of its ends: the reason, and the moment."""
    rows = Event.objects.filter(type="reservation.ending", subject_id=reservation_id).order_by("position")
    return [(row.reason, row.data.get("endsAt") or row.data["leaseExpiresAt"]) for row in rows]


MINUTE = 60 * SECOND


@pytest.mark.clause("EVT-4", "15 minutes before an end, once")
def test_told_of_the_end(world: World, pool: str, clock: Clock):
    made = world.ann.api("reservations/create", **request(pool)).data["reservation"]
    reconcilers.reconcile_tick()
    version = shown(world, made["id"])["version"]
    clock.set(made["endsAt"] - 15 * MINUTE - 1)
    reconcilers.reconcile_tick()
    assert told(made["id"]) == []
    clock.advance(milliseconds=1)
    for _ in range(3):
        reconcilers.reconcile_tick()
        clock.advance(seconds=1)
    assert told(made["id"]) == [("end", made["endsAt"])]
    assert shown(world, made["id"])["version"] == version
    clock.set(made["endsAt"])
    reconcilers.reconcile_tick()
    assert event_types(made["id"]) == ["placed", "binding", "active", "ending", "released"]


@pytest.mark.clause("EVT-4", "at once if less is left")
@pytest.mark.parametrize("later", [0, 3_600_000])
def test_told_at_once(world: World, pool: str, clock: Clock, later: int):
    asked = request(pool, durationSeconds=60) | ({"startsAt": clock.now + later} if later else {})
    made = world.ann.api("reservations/create", **asked).data["reservation"]
    reconcilers.reconcile_tick()
    if later:
        # Not yet: it is 15 minutes before the end that counts, whether it runs or not.
        assert told(made["id"]) == []
        clock.set(made["endsAt"] - 15 * MINUTE)
        reconcilers.reconcile_tick()
    assert told(made["id"]) == [("end", made["endsAt"])]


@pytest.mark.clause("EVT-4", "once for each such time: told again of an end that has moved")
def test_told_of_each_end(world: World, pool: str, clock: Clock):
    made = world.ann.api("reservations/create", **request(pool, durationSeconds=600)).data["reservation"]
    reconcilers.reconcile_tick()
    world.ann.api("reservations/extend", reservationId=made["id"], by=MINUTE)
    reconcilers.reconcile_tick()
    world.ann.api("reservations/extend", reservationId=made["id"], by="PT1H")
    reconcilers.reconcile_tick()
    ends = [made["endsAt"], made["endsAt"] + MINUTE]
    assert told(made["id"]) == [("end", end) for end in ends]
    clock.set(ends[-1] + 45 * MINUTE)
    reconcilers.reconcile_tick()
    assert told(made["id"])[2:] == [("end", ends[-1] + 60 * MINUTE)]


@pytest.mark.clause("EVT-4", "once for each such time, also if it is placed anew with the same end")
def test_told_once_of_an_end_that_stays(world: World, clock: Clock):
    pool = world.offered_pool(nodes=2)
    asked = request(pool, startsAt=clock.now + 5 * MINUTE, durationSeconds=300)
    made = world.ann.api("reservations/create", **asked).data["reservation"]
    reconcilers.reconcile_tick()
    assert told(made["id"]) == [("end", made["endsAt"])]
    world.admin("nodes/drain", nodeId=made["placement"][0]["nodeId"]).data  # noqa: B018 - asserts success
    for _ in range(2):
        reconcilers.reconcile_tick()
    moved = shown(world, made["id"])
    assert (moved["state"], moved["endsAt"]) == ("placed", made["endsAt"])
    assert moved["placement"] != made["placement"]
    assert told(made["id"]) == [("end", made["endsAt"])]


@pytest.mark.clause("EVT-4", "a spot cut")
def test_told_of_a_spot_cut(world: World, pool: str, clock: Clock):
    made = world.ann.api("reservations/create", **request(pool, spot=True, durationSeconds=36_000)).data["reservation"]
    reconcilers.reconcile_tick()
    cut = clock.now + 3_600_000
    claimant = world.gil.api("reservations/create", **request(pool, 8, startsAt=cut)).data["reservation"]
    assert shown(world, made["id"])["endsAt"] == cut, claimant
    clock.set(cut - 15 * MINUTE)
    reconcilers.reconcile_tick()
    assert told(made["id"]) == [("preemption", cut)]


@pytest.mark.clause("EVT-4", "at half a lease, once for each")
def test_told_at_half_a_lease(world: World, pool: str, clock: Clock):
    one = leased(world, pool)
    half = LEASE * SECOND // 2
    clock.set(one["leaseExpiresAt"] - half - 1)
    reconcilers.reconcile_tick()
    assert told(one["id"]) == []
    clock.advance(milliseconds=1)
    for _ in range(3):
        reconcilers.reconcile_tick()
        clock.advance(seconds=1)
    assert told(one["id"]) == [("lease", one["leaseExpiresAt"])]
    again = renew(world, one["id"]).data["reservation"]["leaseExpiresAt"]
    clock.set(again - half)
    reconcilers.reconcile_tick()
    reconcilers.reconcile_tick()
    assert told(one["id"]) == [("lease", one["leaseExpiresAt"]), ("lease", again)]


@pytest.mark.clause("EVT-4", "one that is renewed in time is not told")
def test_renewed_in_time(world: World, pool: str, clock: Clock):
    one = leased(world, pool)
    for _ in range(10):
        clock.advance(seconds=LEASE // 2 - 1)
        renew(world, one["id"])
        reconcilers.reconcile_tick()
    assert told(one["id"]) == []
