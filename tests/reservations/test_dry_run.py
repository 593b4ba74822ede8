"""Create with ``dryRun``: what would happen, and nothing happens (CRE-19)."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from fleet.models import Pool
from iam.models import Decision
from reservations import reconcilers
from reservations.models import Reservation
from tests.support.api import Answer, Api, settle
from tests.support.world import HOUR, World, request

FORBID = 'forbid (principal, action == Compute::Action::"compute:reservations:create", resource);'
PRICED = {"price": {"perDeviceHour": "2.20", "currency": "EUR"}}

Left = Callable[..., dict[str, int]]


def create(api: Api, pool: str, gpus: int = 1, **changed: Any) -> dict[str, Any]:
    return api("reservations/create", **request(pool, gpus, **changed)).data["reservation"]


def tried(api: Api, pool: str, gpus: int = 1, **changed: Any) -> dict[str, Any]:
    answer = dry(api, pool, gpus, **changed).data
    assert set(answer) == {"dryRun"}
    return answer["dryRun"]


def dry(api: Api, pool: str, gpus: int = 1, **changed: Any) -> Answer:
    return api("reservations/create", **request(pool, gpus, dryRun=True, **changed))


@pytest.mark.clause("CRE-19", "answers decision, charge, estimated cost and placement")
@pytest.mark.clause("CRE-19", "stores nothing but the audit entry")
def test_what_would_be_placed(world: World, clock, left: Left):
    pool = world.offered_pool(policy=PRICED)
    create(world.gil.api, pool, 3)
    before = left()
    found = tried(world.ann.api, pool, 4, durationSeconds=7200)
    after = left()
    assert after.pop("decisions") == before.pop("decisions") + 1
    assert after == before
    devices = found.pop("placement")
    assert found == {
        "decision": "allow",
        "outcome": "placed",
        "charge": {"gpu": 4},
        "estimatedCost": "17.60",
        "currency": "EUR",
        "resources": found["resources"],
        "startsAt": clock.now,
        "endsAt": clock.now + 2 * HOUR,
    }
    made = create(world.ann.api, pool, 4, durationSeconds=7200)
    assert made["placement"] == devices
    assert (made["resources"], made["estimatedCost"]) == (found["resources"], found["estimatedCost"])


@pytest.mark.clause("CRE-19", "stores nothing but the audit entry")
def test_it_writes_its_decision_and_locks_nothing(world: World, pool: str, redis_client):
    tried(world.ann.api, pool)  # that the key was used is noted once a minute
    with CaptureQueriesContext(connection) as asked:
        tried(world.ann.api, pool)
    said = [q["sql"] for q in asked]
    writes = [sql for sql in said if any(word in sql for word in ("INSERT", "UPDATE", "DELETE", "NO KEY", "pg_notify"))]
    assert len(writes) == 1
    assert writes[0].startswith('INSERT INTO "iam_decision"')
    assert not redis_client.keys("compute:wake:*")


@pytest.mark.clause("CRE-19", "the audit entry says that it was a dry run")
def test_its_decision_is_told_apart(world: World, pool: str):
    tried(world.ann.api, pool)
    entry = Decision.objects.filter(action="compute:reservations:create").latest("at")
    assert (entry.outcome, entry.principal_id, entry.context["dryRun"]) == ("allow", world.ann.id, True)
    assert entry.attributes["gpuCount"] == 1


@pytest.mark.clause("CRE-19", "the reason and the earliest start")
def test_what_would_be_pending(world: World, pool: str, clock, left: Left):
    create(world.gil.api, pool, 5)
    before = left()
    found = tried(world.ann.api, pool, 8)
    assert (found["decision"], found["outcome"], found["reason"]) == ("allow", "pending", "NoFreeDevices")
    assert found["message"].startswith("needs 8 gpu on one node; the freest node has 3")
    assert found["earliestStart"] == {"startsAt": clock.now + HOUR, "endsAt": clock.now + 2 * HOUR}
    assert "placement" not in found
    assert "startsAt" not in found
    assert left() == before | {"decisions": before["decisions"] + 1}
    earlier = create(world.ann.api, pool, 8, startsAt=clock.now + HOUR - 1)
    assert earlier["state"] == "pending"
    world.ann.api("reservations/cancel", reservationId=earlier["id"])
    assert create(world.ann.api, pool, 8, startsAt=clock.now + HOUR)["state"] == "placed"


@pytest.mark.clause("CRE-19", "the earliest start of a fixed window lies before its end")
def test_the_earliest_start_of_a_fixed_window(world: World, pool: str, clock):
    create(world.gil.api, pool, 8)
    asked = {"durationSeconds": None, "dryRun": True}
    fixed = {k: v for k, v in (request(pool, 8) | asked).items() if v is not None}
    late = world.ann.api("reservations/create", **fixed, endsAt=clock.now + 3 * HOUR).data["dryRun"]
    assert late["earliestStart"] == {"startsAt": clock.now + HOUR, "endsAt": clock.now + 3 * HOUR}
    never = world.ann.api("reservations/create", **fixed, endsAt=clock.now + HOUR).data["dryRun"]
    assert never["outcome"] == "pending"
    assert "earliestStart" not in never


@pytest.mark.clause("CRE-19", "no earliest start past startBefore")
def test_what_could_not_start_in_time(world: World, pool: str, clock):
    create(world.gil.api, pool, 8)
    found = tried(world.ann.api, pool, 8, startBefore=clock.now + HOUR)
    assert found["outcome"] == "pending"
    assert "earliestStart" not in found
    assert "earliestStart" in tried(world.ann.api, pool, 8, startBefore=clock.now + HOUR + 1)


@pytest.mark.clause("CRE-19", "what never fits has no earliest start")
def test_what_never_fits(world: World, pool: str):
    found = tried(world.ann.api, pool, 9)
    assert (found["outcome"], found["reason"]) == ("pending", "NeverFits")
    assert "earliestStart" not in found


@pytest.mark.clause("CRE-19", "it sees the first in line as placement does")
def test_what_would_stand_behind_the_first_in_line(world: World, pool: str, clock):
    create(world.gil.api, pool, 4, durationSeconds=3600)
    clock.advance(seconds=1)
    create(world.ann.api, pool, 8)
    clock.advance(seconds=1)
    found = tried(world.ann.api, pool, 4, durationSeconds=2 * 3600)
    assert (found["outcome"], found["reason"]) == ("pending", "BehindQueueHead")
    assert create(world.ann.api, pool, 4, durationSeconds=2 * 3600)["conditions"][0]["reason"] == "BehindQueueHead"
    short = tried(world.ann.api, pool, 4, durationSeconds=1800)
    assert short["outcome"] == "placed"
    assert create(world.ann.api, pool, 4, durationSeconds=1800)["state"] == "placed"


@pytest.mark.clause("CRE-19", "it sees preemption as placement does")
def test_what_would_preempt(world: World, pool: str, clock):
    spot = create(world.gil.api, pool, 8, spot=True)
    settle()
    found = tried(world.ann.api, pool, 4)
    assert (found["outcome"], found["startsAt"]) == ("placed", clock.now)
    assert world.gil.api("reservations/get", reservationId=spot["id"]).data["reservation"]["state"] == "active"
    made = create(world.ann.api, pool, 4)
    assert (made["state"], made["placement"]) == ("placed", found["placement"])
    # Spot work preempts nobody.
    assert tried(world.ann.api, pool, 8, spot=True)["outcome"] == "pending"


@pytest.mark.clause("CRE-19", "a refusal is part of the answer, without its reasons")
def test_a_denial_is_part_of_the_answer(world: World, pool: str, left: Left):
    assert world.acme.api.iam("policies/put", name="none", text=FORBID).status == 200
    before = left()
    found = tried(world.ann.api, pool)
    assert set(found) == {"decision", "outcome", "refusal"}
    assert (found["decision"], found["outcome"]) == ("deny", "refused")
    assert set(found["refusal"]) == {"code", "message", "fix"}
    assert found["refusal"]["code"] == "ACCESS_DENIED"
    assert left() == before | {"decisions": before.get("decisions", 0) + 1}
    entry = Decision.objects.filter(action="compute:reservations:create").latest("at")
    assert (entry.outcome, entry.reason) == ("deny", "forbidden")


@pytest.mark.clause("CRE-19", "a key whose dry run was denied is not refused")
def test_a_denied_dry_run_leaves_the_key_alone(world: World, pool: str):
    asked = request(pool)
    world.acme.api.iam("policies/put", name="none", text=FORBID)
    assert world.ann.api("reservations/create", **asked, dryRun=True).data["dryRun"]["decision"] == "deny"
    world.acme.api.iam("policies/delete", name="none")
    assert world.ann.api("reservations/create", **asked).data["reservation"]["state"] == "placed"


@pytest.mark.clause("CRE-19", "QUOTA_EXCEEDED is part of the answer")
def test_a_quota_that_does_not_suffice(world: World, left: Left):
    pool = world.offered_pool(quota=3, policy=PRICED)
    create(world.ann.api, pool, 2)
    before = left()
    found = tried(world.ann.api, pool, 2)
    assert found["refusal"].pop("message")
    assert found["refusal"].pop("fix")
    assert found == {
        "decision": "allow",
        "outcome": "refused",
        "refusal": {
            "code": "QUOTA_EXCEEDED",
            "details": {"resource": "gpu", "requested": 2, "used": 2, "max": 3},
        },
        "charge": {"gpu": 2},
        "estimatedCost": "4.40",
        "currency": "EUR",
        "resources": found["resources"],
    }
    assert left() == before | {"decisions": before["decisions"] + 1}
    assert tried(world.ann.api, pool, 1)["outcome"] == "placed"


@pytest.mark.clause("CRE-19", "SPEND_LIMIT_REACHED is part of the answer")
@pytest.mark.clause("CRE-13", "an estimated cost above maxCost")
def test_a_cost_above_the_limit(world: World):
    pool = world.offered_pool(policy=PRICED)
    found = tried(world.ann.api, pool, 4, maxCost="8.79")
    assert found["outcome"] == "refused"
    assert found["refusal"]["code"] == "SPEND_LIMIT_REACHED"
    assert found["refusal"]["details"]["reason"] == "max-cost"
    assert tried(world.ann.api, pool, 4, maxCost="8.80")["outcome"] == "placed"


@pytest.mark.clause("CRE-19", "it neither reads nor claims the key")
def test_the_key_is_left_alone(world: World, pool: str):
    used = request(pool, 2)
    made = world.ann.api("reservations/create", **used).data["reservation"]
    other = used | {"devices": {"class": "gpu", "count": 3}, "dryRun": True}
    assert world.ann.api("reservations/create", **other).data["dryRun"]["charge"] == {"gpu": 3}
    assert world.ann.api("reservations/create", **used).data["reservation"]["id"] == made["id"]
    fresh = request(pool, 1)
    assert "dryRun" in world.ann.api("reservations/create", **fresh, dryRun=True).data
    assert not Reservation.objects.filter(idempotency_key=fresh["idempotencyKey"]).exists()
    changed = fresh | {"devices": {"class": "gpu", "count": 4}}
    assert world.ann.api("reservations/create", **changed).data["reservation"]["devices"]["count"] == 4


@pytest.mark.clause("CRE-19", "dryRun false is a create")
def test_false_is_a_create(world: World, pool: str):
    asked = request(pool)
    made = world.ann.api("reservations/create", **asked, dryRun=False).data["reservation"]
    assert world.ann.api("reservations/create", **asked).data["reservation"]["id"] == made["id"]


@pytest.mark.clause("CRE-19", "what is wrong with the request stays an error")
@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"devices": {"class": "mig", "count": 1, "profile": "1g.10gb"}}, "INVALID_INPUT"),
        ({"priority": 51}, "INVALID_INPUT"),
        ({"startsAt": 1}, "INVALID_INPUT"),
        ({"endsAt": 2**52}, "INVALID_INPUT"),
        ({"idempotencyKey": ""}, "INVALID_INPUT"),
        ({"binding": "vm"}, "UNSUPPORTED"),
        ({"poolId": "pool_none"}, "NOT_FOUND"),
    ],
)
def test_what_is_refused_before_the_decision(world: World, pool: str, left: Left, changed: dict[str, Any], code: str):
    world.ann.api("reservations/create", **(request(pool, dryRun=True) | changed)).refused(code)
    assert left() == {}


@pytest.mark.clause("CRE-19", "NOT_FOUND for a foreign and an archived pool")
def test_pools_that_are_not_there(world: World, clock, left: Left):
    hidden, archived = world.pool(name="hidden"), world.offered_pool(name="archived")
    Pool.objects.filter(id=archived).update(archived_at=clock.now)
    for pool in (hidden, archived):
        dry(world.ann.api, pool).refused("NOT_FOUND")
    assert left() == {}


@pytest.mark.clause("CRE-19", "a pool with its own placer")
def test_where_the_pools_placer_places(world: World, clock):
    pool = world.offered_pool(policy={"placer": "pool-lease"})
    waiting = create(world.ann.api, pool, 6)
    clock.advance(seconds=1)
    found = tried(world.bob.api, pool, 4)
    assert found["queued"] is True
    # What is queued and has not had its turn is the first in line.
    assert (found["outcome"], found["reason"]) == ("pending", "BehindQueueHead")
    reconcilers.place(pool_id=pool)
    assert world.ann.api("reservations/get", reservationId=waiting["id"]).data["reservation"]["state"] == "placed"
    assert tried(world.bob.api, pool, 2)["outcome"] == "placed"


@pytest.mark.clause("CRE-19", "it waits for nothing")
def test_it_is_not_parked(world: World, pool: str):
    create(world.gil.api, pool, 8)
    parked: list[int] = []
    ann = Api(world.ann.api.token, "acme", work=lambda: parked.append(1), looks=3)
    assert tried(ann, pool, 8, wait={"timeoutMs": 30_000})["outcome"] == "pending"
    assert parked == []
