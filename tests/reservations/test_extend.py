"""``reservations/extend`` through HTTP (EXT-1 … EXT-7)."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from computeplatform.models import Event
from fleet.models import Allocation, Maintenance, Node
from iam.models import Decision
from quotas.models import Quota
from reservations import reconcilers
from reservations.models import Booking, Reservation
from tests.reservations.conftest import event_types
from tests.support.api import Answer
from tests.support.clock import Clock
from tests.support.world import HOUR, World, request


def shown(world: World, reservation_id: str) -> dict[str, Any]:
    return world.ann.api("reservations/get", reservationId=reservation_id).data["reservation"]


def made(world: World, pool: str, gpus: int = 1, **changed: Any) -> dict[str, Any]:
    answer = world.ann.api("reservations/create", **request(pool, gpus, **changed))
    return answer.data["reservation"]


def running(world: World, pool: str, gpus: int = 1, **changed: Any) -> dict[str, Any]:
    """A reservation that has started."""
    found = made(world, pool, gpus, **changed)
    reconcilers.reconcile_tick()
    return shown(world, found["id"])


def extend(world: World, reservation_id: str, **asked: Any) -> Answer:
    return world.ann.api("reservations/extend", reservationId=reservation_id, **asked)


def decisions() -> int:
    return Decision.objects.filter(action="compute:reservations:extend").count()


def stored(reservation_id: str) -> dict[str, Any]:
    """All that an extension could change."""
    row = Reservation.objects.values().get(id=reservation_id)
    bookings = list(Booking.objects.filter(reservation_id=reservation_id).order_by("id").values())
    return {**row, "bookings": bookings, "events": event_types(reservation_id), "due_at": None}


@pytest.mark.clause("EXT-1", "all or nothing, after one decision")
@pytest.mark.clause("EXT-6", "reservation.extended with the new end")
def test_extended_by_an_hour(world: World, pool: str, clock: Clock):
    one = running(world, pool, 2)
    before = decisions()
    clock.advance(seconds=10)
    answer = extend(world, one["id"], by="PT1H").data
    assert answer["extended"] is True
    assert "availableUntil" not in answer
    end = one["endsAt"] + HOUR
    assert answer["reservation"] == one | {"endsAt": end, "version": one["version"] + 1}
    assert decisions() == before + 1
    assert event_types(one["id"]) == ["placed", "binding", "active", "extended"]
    told = Event.objects.get(type="reservation.extended")
    assert told.data["endsAt"] == end
    assert (told.subject_version, told.actor_id, told.at) == (one["version"] + 1, world.ann.id, clock.now)
    booking = Booking.objects.get()
    for part in (booking.planned, booking.during, booking.billed):
        assert (part.lower, part.upper) == (one["startsAt"], end)
    assert Allocation.objects.get().until == end
    assert Reservation.objects.get().pending_change is None


@pytest.mark.clause("EXT-1", "of a placed, binding or active reservation")
@pytest.mark.parametrize("state", ["placed", "binding", "active"])
def test_states_that_can_be_extended(world: World, pool: str, clock: Clock, state: str):
    ways: dict[str, Any] = {
        "placed": {"startsAt": clock.now + HOUR},
        "binding": {"binding": "node"},
        "active": {},
    }
    wanted = ways[state]
    one = running(world, pool, **wanted)
    assert one["state"] == state
    answer = extend(world, one["id"], until=one["endsAt"] + 1).data
    assert (answer["extended"], answer["reservation"]["endsAt"]) == (True, one["endsAt"] + 1)
    assert answer["reservation"]["state"] == state


def in_state(world: World, pool: str, state: str) -> str:
    """A reservation in a state that cannot be extended."""
    if state == "draft":
        world.offer(pool, "acme", gpu=0)
        asked = request(pool)
        world.ann.api("reservations/create", **asked).refused("QUOTA_EXCEEDED")
        return Reservation.objects.get().id
    if state == "pending":
        made(world, pool, 8)
        return str(made(world, pool)["id"])
    one = running(world, pool)["id"] if state == "released" else made(world, pool)["id"]
    world.ann.api("reservations/release" if state == "released" else "reservations/cancel", reservationId=one)
    return str(one)


@pytest.mark.clause("EXT-1", "other states: INVALID_STATE, draft too")
@pytest.mark.parametrize("state", ["draft", "pending", "released", "cancelled"])
def test_other_states_are_refused(world: World, pool: str, state: str):
    one = in_state(world, pool, state)
    before, asked = stored(one), decisions()
    error = extend(world, one, by=1000).refused("INVALID_STATE", reservationId=one, state=state)
    assert state in error["message"]
    assert (stored(one), decisions()) == (before, asked)


@pytest.mark.clause("EXT-1", "denied is NOT_FOUND")
def test_what_iam_refused_is_not_there(world: World, pool: str):
    world.acme.api.iam("policies/put", name="no", text="forbid (principal, action, resource);").data  # noqa: B018
    world.ann.api("reservations/create", **request(pool)).refused("ACCESS_DENIED")
    denied = Reservation.objects.get(state="denied").id
    world.acme.api.iam("policies/delete", name="no")
    for one in (denied, "res_none"):
        extend(world, one, by=1000).refused("NOT_FOUND")


@pytest.mark.clause("EXT-1", "exactly one of until and by")
@pytest.mark.parametrize("asked", [{}, {"until": 2_000_000_000_000, "by": 1000}])
def test_both_or_neither(world: World, pool: str, asked: dict[str, Any]):
    one = running(world, pool)
    before = stored(one["id"])
    assert "exactly one" in extend(world, one["id"], **asked).refused_at("until")
    assert stored(one["id"]) == before


OTHER_SPELLINGS: list[Any] = [
    *(0, -1, 1.5, True, None, 2**53, [], {}, "", "1000", "PT", "P", "P1M", "P1Y", "P1Y2M", "pt1h", "PT1h", "PT-1H"),
    *("-PT1H", "+PT1H", "PT1H ", " PT1H", "PT1.5H", "PT1M2H", "P1W1D", "P1DT", "PT0S", "1h", "PT1H\n", "PT\u0663H"),
    *("P9999999999D", "PT1H" * 2000),
]


@pytest.mark.clause("EXT-1", "by: whole milliseconds or ISO 8601 text, no other spelling")
def test_by_in_another_spelling(world: World, pool: str):
    one = running(world, pool)
    before, asked = stored(one["id"]), decisions()
    for by in OTHER_SPELLINGS:
        refused = extend(world, one["id"], by=by)
        assert refused.status == 400, by
        assert by == 2**53 or refused.refused_at("by"), by
    assert (stored(one["id"]), decisions()) == (before, asked)


@pytest.mark.clause("EXT-1", "until: epoch ms")
def test_until_in_another_spelling(world: World, pool: str):
    one = running(world, pool)
    for until in (-1, 1.5, "2030-01-01T00:00:00Z", None, True):
        extend(world, one["id"], until=until).refused_at("until")
    extend(world, one["id"], until=2**53).refused("INVALID_INPUT")


@pytest.mark.clause("EXT-2", "decided with the total after the change")
def test_decided_on_the_total(world: World, pool: str):
    one = running(world, pool, durationSeconds=7200)
    extend(world, one["id"], by="PT30M")
    entry = Decision.objects.get(action="compute:reservations:extend")
    assert entry.attributes["durationHours"] == 3
    assert entry.outcome == "allow"


CAP = """
forbid (principal, action == Compute::Action::"compute:reservations:extend", resource)
when { resource.durationHours > 2 };
"""


@pytest.mark.clause("EXT-2", "a policy that caps duration caps extensions; a refusal is ACCESS_DENIED and clears")
def test_refused_by_a_policy_on_the_total(world: World, pool: str):
    assert world.acme.api.iam("policies/put", name="cap", text=CAP).status == 200
    one = running(world, pool)
    before = stored(one["id"])
    error = extend(world, one["id"], by=HOUR + 1).refused("ACCESS_DENIED")
    assert "details" not in error
    assert stored(one["id"]) == before
    assert Decision.objects.filter(action="compute:reservations:extend", outcome="deny").count() == 1
    # Nothing is in flight: one that is allowed goes through at once.
    assert extend(world, one["id"], by=HOUR).data["extended"] is True


@pytest.mark.clause("EXT-2", "SPEND_LIMIT_REACHED as for create")
@pytest.mark.clause("EXT-7", "the estimated cost is that of the total")
def test_max_cost(world: World):
    pool = world.offered_pool(policy={"price": {"perDeviceHour": "2.00", "currency": "EUR"}})
    one = running(world, pool, 2, maxCost="8.00")
    assert one["estimatedCost"] == "4.00"
    before = stored(one["id"])
    refused = extend(world, one["id"], by=HOUR + 1)
    refused.refused("SPEND_LIMIT_REACHED", reason="max-cost", maxCost="8.00", currency="EUR")
    assert stored(one["id"]) == before
    assert extend(world, one["id"], by=HOUR).data["reservation"]["estimatedCost"] == "8.00"


@pytest.mark.clause("EXT-3", "by one millisecond into a neighbour: extended false, and the exact availableUntil")
def test_a_neighbour_in_the_way(world: World, pool: str):
    one = running(world, pool, 8)
    # Back to back but for five seconds.
    after = made(world, pool, 8, startsAt=one["endsAt"] + 5000)
    assert after["state"] == "placed"
    before = stored(one["id"])
    answer = extend(world, one["id"], by=5001).data
    assert (answer["extended"], answer["availableUntil"]) == (False, one["endsAt"] + 5000)
    assert answer["reservation"] == one
    assert stored(one["id"]) == before
    assert extend(world, one["id"], until=answer["availableUntil"]).data["extended"] is True
    again = extend(world, one["id"], by=1).data
    assert (again["extended"], again["availableUntil"]) == (False, one["endsAt"] + 5000)


@pytest.mark.clause("EXT-3", "the latest end that all its bookings can reach")
def test_a_gang_reaches_as_far_as_the_shortest_of_its_bookings(world: World):
    pool = world.offered_pool(nodes=2)
    gang = running(world, pool, 6, nodes=2)
    end = gang["endsAt"]
    for start in (end + 3000, end + 7000):
        other = made(world, pool, 8, startsAt=start)
        assert other["state"] == "placed"
    assert extend(world, gang["id"], by="PT1M").data["availableUntil"] == end + 3000


@pytest.mark.clause("EXT-3", "others on other devices are not in the way")
def test_others_beside_it(world: World, pool: str):
    one = running(world, pool, 4)
    other = running(world, pool, 4, durationSeconds=7200)
    assert extend(world, one["id"], by="PT1H").data["extended"] is True
    assert shown(world, other["id"])["endsAt"] == other["endsAt"]


@pytest.mark.clause("EXT-3", "host resources count")
def test_host_resources_in_the_way(world: World):
    pool = world.offered_pool(quota=1000, policy={"perGpu": {"vcpu": 1, "memoryGiB": 1}})
    for tenant in ("acme",):
        resources = {"gpu": 1000, "vcpu": 1000, "memoryGiB": 10_000}
        world.admin("pools/offer", poolId=pool, toTenantId=tenant, resources=resources)
    one = running(world, pool, 1, resources={"vcpu": 100, "memoryGiB": 8})
    # Another GPU, but with it there are too few CPUs for both.
    other = made(world, pool, 1, startsAt=one["endsAt"] + 60_000, resources={"vcpu": 100, "memoryGiB": 8})
    assert other["state"] == "placed"
    answer = extend(world, one["id"], by="PT2M").data
    assert (answer["extended"], answer["availableUntil"]) == (False, one["endsAt"] + 60_000)
    # What is left of the CPUs is no hindrance.
    small = made(world, pool, 1, durationSeconds=3660, resources={"vcpu": 20, "memoryGiB": 8})
    assert small["state"] == "placed"
    assert extend(world, one["id"], by="PT1M").data["extended"] is True


@pytest.mark.clause("EXT-3", "maintenance counts")
def test_maintenance_in_the_way(world: World, pool: str, clock: Clock):
    one = running(world, pool)
    Maintenance.objects.create(
        id="mnt_1",
        node_id=world.nodes[0].id,
        starts_at=one["endsAt"] + 2000,
        ends_at=one["endsAt"] + HOUR,
        created_at=clock.now,
        created_by="op",
    )
    answer = extend(world, one["id"], by="PT1M").data
    assert (answer["extended"], answer["availableUntil"]) == (False, one["endsAt"] + 2000)
    # One that was planned over its end leaves no more than that.
    Maintenance.objects.update(starts_at=one["endsAt"] - 1000)
    assert extend(world, one["id"], by=1).data["availableUntil"] == one["endsAt"]


@pytest.mark.clause("EXT-3", "a cordoned, draining or retired node reaches no further than the present end")
@pytest.mark.parametrize("act", ["nodes/cordon", "nodes/drain"])
def test_on_a_node_that_takes_nothing_more(world: World, pool: str, act: str):
    one = running(world, pool)
    assert world.admin(act, nodeId=world.nodes[0].id).status == 200
    answer = extend(world, one["id"], by=1).data
    assert (answer["extended"], answer["availableUntil"]) == (False, one["endsAt"])
    world.admin("nodes/uncordon", nodeId=world.nodes[0].id)
    assert extend(world, one["id"], by=1).data["extended"] is True


@pytest.mark.clause("EXT-3", "a lost node reaches no further")
def test_on_a_lost_node(world: World, pool: str, clock: Clock):
    one = running(world, pool)
    Node.objects.update(state="lost", lost_at=clock.now)
    assert extend(world, one["id"], by=1).data["availableUntil"] == one["endsAt"]


@pytest.mark.clause("EXT-3", "devices kept for another count")
def test_what_is_kept_for_another(world: World, pool: str):
    one = running(world, pool, 2)
    position = one["placement"][0]["devices"][1]["position"]
    other = made(world, pool, 7)
    assert other["state"] == "pending"
    kept = [{"nodeId": world.nodes[0].id, "first": position, "count": 1, "from": one["endsAt"] + 400}]
    Reservation.objects.filter(id=other["id"]).update(claim=kept)
    assert extend(world, one["id"], by=1000).data["availableUntil"] == one["endsAt"] + 400
    Reservation.objects.filter(id=other["id"]).update(claim=None)


@pytest.mark.clause("EXT-4", "an until already reached: extended false, no decision")
def test_until_already_reached(world: World, pool: str):
    one = running(world, pool)
    before, asked = stored(one["id"]), decisions()
    for until in (0, one["startsAt"], one["endsAt"] - 1, one["endsAt"]):
        answer = extend(world, one["id"], until=until).data
        assert (answer["extended"], answer["reservation"]) == (False, one)
        assert "availableUntil" not in answer
    assert (stored(one["id"]), decisions()) == (before, asked)


@pytest.mark.clause("EXT-4", "a retried until is safe, a repeated by extends again, idempotencyKey does not replay")
def test_repeated(world: World, pool: str):
    one = running(world, pool)
    until = one["endsAt"] + 1000
    assert [extend(world, one["id"], until=until).data["extended"] for _ in range(2)] == [True, False]
    for _ in range(2):
        assert extend(world, one["id"], by=1000).data["extended"] is True
    assert shown(world, one["id"])["endsAt"] == until + 2000
    extend(world, one["id"], by=1000, idempotencyKey="k").refused_at("idempotencyKey")


@pytest.mark.clause("EXT-7", "an archived pool or withdrawn offer: INVALID_STATE with details.reason")
@pytest.mark.clause("POL-3", "placed and later ones cannot be extended")
@pytest.mark.parametrize(
    ("method", "fields", "reason"),
    [("pools/archive", {}, "pool-archived"), ("pools/withdrawOffer", {"toTenantId": "acme"}, "offer-withdrawn")],
)
def test_in_a_closed_pool(world: World, pool: str, method: str, fields: Any, reason: str):
    one = running(world, pool)
    world.admin(method, poolId=pool, **fields).data  # noqa: B018
    before, asked = stored(one["id"]), decisions()
    extend(world, one["id"], by=1000).refused("INVALID_STATE", reason=reason)
    assert (stored(one["id"]), decisions()) == (before, asked)
    # One that asks for nothing is answered all the same.
    assert extend(world, one["id"], until=one["endsAt"]).data["extended"] is False


@pytest.mark.clause("EXT-7", "the pool's limits on the total: INVALID_INPUT")
@pytest.mark.parametrize("field", ["until", "by"])
def test_limit_on_the_total(world: World, field: str):
    pool = world.offered_pool(policy={"maxDurationHours": 3})
    one = running(world, pool)
    before, asked = stored(one["id"]), decisions()

    def longer(ms: int) -> dict[str, int]:
        return {"by": ms} if field == "by" else {"until": one["endsAt"] + ms}

    assert "3 hours" in extend(world, one["id"], **longer(2 * HOUR + 1)).refused_at(field)
    assert (stored(one["id"]), decisions()) == (before, asked)
    assert extend(world, one["id"], **longer(2 * HOUR)).data["extended"] is True
    extend(world, one["id"], **({"by": 2**53 - 1} if field == "by" else {"until": 2**53 - 1})).refused_at(field)


@pytest.mark.clause("EXT-7", "it charges no quota, twice and to its end")
@pytest.mark.clause("EXT-1", "twice: the end is the last one, nothing ends at an old time")
def test_extended_twice_and_waited(world: World, clock: Clock):
    pool = world.offered_pool(quota=8)
    one = running(world, pool, 8)
    quota = Quota.objects.get(tenant_id="acme", resource="gpu")
    assert (quota.used, quota.max) == (8, 8)
    extend(world, one["id"], by="PT1H")
    extend(world, one["id"], by="PT1H")
    end = one["endsAt"] + 2 * HOUR
    for _ in range(2):
        clock.advance(hours=1)
        reconcilers.reconcile_tick()
        quota.refresh_from_db()
        assert (shown(world, one["id"])["state"], quota.used) == ("active", 8)
    clock.set(end - 1)
    reconcilers.reconcile_tick()
    assert shown(world, one["id"])["state"] == "active"
    clock.set(end)
    reconcilers.reconcile_tick()
    done = shown(world, one["id"])
    assert (done["state"], done["reason"], done["releasedAt"]) == ("released", "ended", end)
    quota.refresh_from_db()
    assert quota.used == 0
    assert Booking.objects.get().billed.upper == end


@pytest.mark.clause("EXT-7", "it never preempts")
def test_it_does_not_preempt(world: World, pool: str):
    one = running(world, pool, 8)
    spot = made(world, pool, 8, startsAt=one["endsAt"], spot=True)
    assert spot["state"] == "placed"
    answer = extend(world, one["id"], by=1000).data
    assert (answer["extended"], answer["availableUntil"]) == (False, one["endsAt"])
    assert shown(world, spot["id"])["state"] == "placed"


@pytest.mark.clause("PRE-2", "one whose end preemption has moved cannot be extended")
def test_cut_short_by_preemption(world: World, pool: str):
    one = running(world, pool, spot=True, durationSeconds=36_000)
    cut = one["startsAt"] + HOUR
    claimant = world.gil.api("reservations/create", **request(pool, 8, startsAt=cut)).data["reservation"]
    assert shown(world, one["id"])["endsAt"] == cut
    answer = extend(world, one["id"], by=1000).data
    assert (answer["extended"], answer["availableUntil"]) == (False, cut)
    assert claimant["state"] in ("placed", "pending")


@pytest.mark.clause("EXT-1", "what has run out is not revived")
def test_after_its_end(world: World, pool: str, clock: Clock):
    one = running(world, pool)
    clock.set(one["endsAt"])
    # The tick is late.
    extend(world, one["id"], by=1000).refused("INVALID_STATE", state="active")
    reconcilers.reconcile_tick()
    assert shown(world, one["id"])["releasedAt"] == one["endsAt"]


@pytest.mark.clause("EXT-1", "what has run out is not revived: a lapsed lease")
def test_after_its_lease(world: World, pool: str, clock: Clock):
    one = running(world, pool, leaseSeconds=30)
    clock.advance(seconds=30)
    extend(world, one["id"], by=1000).refused("INVALID_STATE", reason="lease-lapsed")


@pytest.mark.clause("EXT-6", "a re-placement keeps the extension")
@pytest.mark.parametrize("fixed", [True, False])
def test_placed_anew(world: World, clock: Clock, fixed: bool):
    pool = world.offered_pool(nodes=2)
    start = clock.now + 60_000
    window = {"endsAt": start + HOUR} if fixed else {"durationSeconds": 3600}
    asked = request(pool, 8, startsAt=start, binding="node") | window
    if fixed:
        del asked["durationSeconds"]
    one = world.ann.api("reservations/create", **asked).data["reservation"]
    extend(world, one["id"], by=HOUR)
    clock.set(start)
    reconcilers.reconcile_tick()
    clock.advance(seconds=301)
    Node.objects.update(last_heartbeat_at=clock.now)
    reconcilers.reconcile_tick()
    reconcilers.placement_tick()
    anew = shown(world, one["id"])
    assert anew["state"] in ("placed", "binding")
    assert anew["endsAt"] == (start + 2 * HOUR if fixed else anew["startsAt"] + 2 * HOUR)
    assert anew["requested"] == one["requested"]


@pytest.mark.clause("GET-1", "operation of an extension")
def test_the_operation(world: World, pool: str, clock: Clock):
    one = running(world, pool)
    at = clock.advance(seconds=5)
    extend(world, one["id"], by=1000)
    clock.advance(seconds=5)
    got = world.ann.api("reservations/get", reservationId=one["id"]).data["operation"]
    assert got == {
        "kind": "extend",
        "status": "done",
        "step": "extend",
        "attempts": 1,
        "startedAt": at,
        "finishedAt": at,
    }


@pytest.mark.clause("API-5", "who may extend")
def test_who_may(world: World, pool: str, clock: Clock):
    one = running(world, pool)
    before = stored(one["id"])
    # A viewer may see it and not change it; a person without any role may not even see it.
    blind = world.person(world.acme, "blind")
    asked: list[dict[str, Any]] = [{"by": 1000}, {"until": 0}]
    for fields in asked:
        expected = {"by": "ACCESS_DENIED", "until": "OK"}[next(iter(fields))]
        seen = world.vic.api("reservations/extend", reservationId=one["id"], **fields)
        assert seen.body.get("error", {"code": "OK"})["code"] == expected
        blind.api("reservations/extend", reservationId=one["id"], **fields).refused("ACCESS_DENIED")
        blind.api("reservations/extend", reservationId="res_none", **fields).refused("NOT_FOUND")
        world.gil.api("reservations/extend", reservationId=one["id"], **fields).refused("NOT_FOUND")
    assert stored(one["id"]) == before
    world.bob.api("reservations/extend", reservationId=one["id"], by=1000).refused("ACCESS_DENIED")
    assert world.acme.api("reservations/extend", reservationId=one["id"], by=1000).data["extended"] is True


@pytest.mark.clause("API-5", "whoever may not see it learns nothing from refusals either")
def test_a_stranger_learns_no_state(world: World, pool: str):
    one = running(world, pool)
    world.ann.api("reservations/release", reservationId=one["id"])
    blind = world.person(world.acme, "blind")
    before = Decision.objects.filter(outcome="deny").count()
    blind.api("reservations/extend", reservationId=one["id"], by=1).refused("ACCESS_DENIED")
    assert Decision.objects.filter(outcome="deny").count() == before + 1


@pytest.mark.clause("API-5", "who may read but not extend is refused, whatever state it is in")
def test_a_reader_is_refused_in_every_state(world: World, pool: str):
    one = running(world, pool)
    denied = {"by": 1}, {"by": 365 * 24 * HOUR}, {"until": one["endsAt"] + 1}
    for fields in denied:
        world.vic.api("reservations/extend", reservationId=one["id"], **fields).refused("ACCESS_DENIED")
    world.ann.api("reservations/release", reservationId=one["id"])
    for fields in (*denied, {"until": 0}):
        world.vic.api("reservations/extend", reservationId=one["id"], **fields).refused("ACCESS_DENIED")
        world.ann.api("reservations/extend", reservationId=one["id"], **fields).refused("INVALID_STATE")


@pytest.mark.clause("EXT-3", "as many queries for a gang as for one node")
def test_queries_do_not_grow_with_the_gang(world: World):
    pool = world.offered_pool(nodes=5, gpus=2)
    counted = []
    for nodes in (1, 4):
        one = running(world, pool, 1, nodes=nodes)
        extend(world, one["id"], by=1000)
        with CaptureQueriesContext(connection) as queries:
            assert extend(world, one["id"], by=1000).data["extended"] is True
        counted.append(len(queries))
    assert counted[0] == counted[1] <= 50
