"""Get and list (GET-1, LST-1 … LST-3)."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from computeplatform.clock import compute_now
from iam.models import Decision
from reservations.models import Reservation
from tests.reservations.test_ending import PEOPLE
from tests.support.api import Api, settle
from tests.support.world import HOUR, World, request


def create(api: Api, pool: str, gpus: int = 1, **changed: Any) -> dict[str, Any]:
    return api("reservations/create", **request(pool, gpus, **changed)).data["reservation"]


def listed(api: Api, **fields: Any) -> list[str]:
    return [r["id"] for r in api("reservations/list", **fields).data["reservations"]]


@pytest.mark.clause("GET-1", "reservation and operation")
def test_what_is_done_for_a_reservation(world: World, pool: str, clock):
    made = create(world.ann.api, pool, 8, startsAt=clock.now + HOUR)

    def operation() -> dict[str, Any]:
        return world.ann.api("reservations/get", reservationId=made["id"]).data["operation"]

    created = {"kind": "create", "attempts": 1, "startedAt": made["createdAt"]}
    assert operation() == created | {"status": "waiting", "step": "start", "nextTryAt": made["startsAt"]}
    started = clock.advance(hours=1)
    settle()
    assert operation() == created | {"status": "done", "step": "bind", "finishedAt": started}
    ended = clock.advance(hours=1)
    settle()
    assert operation() == {
        "kind": "end",
        "attempts": 1,
        "status": "done",
        "step": "release",
        "startedAt": ended,
        "finishedAt": ended,
        "reason": "ended",
    }


@pytest.mark.clause("GET-1", "the next try of one that waits")
def test_when_a_pending_one_is_tried_next(world: World, pool: str, clock):
    create(world.ann.api, pool, 8)
    made = create(world.ann.api, pool, 8)
    settle()
    clock.advance(seconds=10)
    operation = world.ann.api("reservations/get", reservationId=made["id"]).data["operation"]
    assert (operation["status"], operation["step"]) == ("waiting", "place")
    assert operation["nextTryAt"] == clock.now + 20_000


@pytest.mark.clause("GET-1", "a draft: NOT_FOUND, like an id that does not exist")
@pytest.mark.clause("API-5", "without the permission: ACCESS_DENIED; another tenant's: NOT_FOUND")
@pytest.mark.parametrize(("who", "code"), PEOPLE)
def test_who_may_read_it(world: World, pool: str, who: str, code: str | None):
    made = create(world.ann.api, pool)
    person = getattr(world, who)
    answer = getattr(person, "api", person)("reservations/get", reservationId=made["id"])
    if who == "vic":
        code = None  # a viewer reads
    if code is None:
        assert answer.data["reservation"]["id"] == made["id"]
    else:
        answer.refused(code)


@pytest.mark.clause("LST-1", "newest first, drafts skipped")
def test_newest_first_without_drafts(world: World, clock):
    pool = world.offered_pool(quota=3)
    made = []
    for _ in range(3):
        clock.advance(seconds=1)
        made.append(create(world.ann.api, pool)["id"])
    world.ann.api("reservations/create", **request(pool)).refused("QUOTA_EXCEEDED")
    assert listed(world.ann.api) == made[::-1]


@pytest.mark.clause("LST-1", "equal times are ordered by id")
def test_equal_times_are_ordered_by_id(world: World, pool: str):
    made = [create(world.ann.api, pool)["id"] for _ in range(4)]
    assert listed(world.ann.api) == sorted(made, reverse=True)


@pytest.mark.clause("LST-1", "filters state and poolId")
def test_filters(world: World, pool: str):
    other = world.offered_pool(name="other")
    here = [create(world.ann.api, pool, 8)["id"] for _ in range(2)]
    there = create(world.ann.api, other)["id"]
    assert listed(world.ann.api, poolId=other) == [there]
    assert listed(world.ann.api, poolId="pool_none") == []
    assert listed(world.ann.api, state="pending") == [here[1]]
    assert set(listed(world.ann.api, state=["pending", "placed"])) == {*here, there}
    assert listed(world.ann.api, state=["pending"], poolId=other) == []
    assert world.ann.api("reservations/list", state="draft").refused_at("state")
    assert world.ann.api("reservations/list", state=["pending", "draft"]).refused_at("state.1")


@pytest.mark.clause("LST-1", "limit and cursor")
@pytest.mark.clause("LST-3", "no repeat, no skip while others come and go")
@pytest.mark.parametrize("scope", ["mine", "all"])
def test_pages_neither_repeat_nor_skip(world: World, pool: str, scope: str):
    made = {create(world.ann.api, pool)["id"] for _ in range(7)}
    seen: list[str] = []
    cursor: dict[str, str] = {}
    for turn in range(5):
        page = world.ann.api("reservations/list", limit=2, scope=scope, **cursor).data
        seen += [r["id"] for r in page["reservations"]]
        # Between the calls one is created, and one that was shown ends.
        create(world.ann.api, pool, startsAt=compute_now() + (turn + 1) * HOUR)
        world.ann.api("reservations/release", reservationId=seen[0])
        if "nextCursor" not in page:
            break
        assert len(page["reservations"]) == 2
        cursor = {"cursor": page["nextCursor"]}
    assert [r for r in seen if r in made] == sorted(made, reverse=True)
    assert len(seen) == len(set(seen))


@pytest.mark.clause("LST-1", "limit 1-200")
@pytest.mark.parametrize("limit", [0, 201, 1.5, "2"])
def test_limits_out_of_range(world: World, limit: Any):
    assert world.ann.api("reservations/list", limit=limit).refused_at("limit")


@pytest.mark.clause("LST-1", "default 50; nextCursor while more remain, and always good as cursor")
@pytest.mark.parametrize("scope", ["mine", "all"])
def test_fifty_at_a_time(world: World, pool: str, scope: str):
    made = [create(world.ann.api, pool, startsAt=compute_now() + turn * HOUR)["id"] for turn in range(51)]
    first = world.ann.api("reservations/list", scope=scope).data
    assert len(first["reservations"]) == 50
    rest = world.ann.api("reservations/list", scope=scope, cursor=first["nextCursor"]).data
    assert [r["id"] for r in (*first["reservations"], *rest["reservations"])] == sorted(made, reverse=True)
    assert "nextCursor" not in rest
    # What ends meanwhile is still a place in the list.
    world.ann.api("reservations/cancel", reservationId=first["nextCursor"])
    assert world.ann.api("reservations/list", scope=scope, cursor=first["nextCursor"]).data == rest


@pytest.mark.clause("LST-1", "an unknown, foreign or draft cursor")
def test_cursors_that_are_none(world: World, clock):
    pool = world.offered_pool(quota=1)
    foreign = create(world.gil.api, pool)["id"]
    asked = request(pool, 2)
    world.ann.api("reservations/create", **asked).refused("QUOTA_EXCEEDED")
    draft_id = Reservation.objects.get(idempotency_key=asked["idempotencyKey"]).id
    for cursor in ("res_none", foreign, draft_id, "gAAAAA"):
        assert world.ann.api("reservations/list", cursor=cursor).refused_at("cursor")


@pytest.mark.clause("LST-2", "scope mine: the caller's own")
@pytest.mark.clause("LST-2", "scope all: only those that may be read")
def test_scopes(world: World, pool: str):
    anns = create(world.ann.api, pool)["id"]
    bobs = create(world.bob.api, pool)["id"]
    create(world.gil.api, pool)
    assert listed(world.ann.api) == [anns]
    assert listed(world.acme.api) == []
    assert set(listed(world.acme.api, scope="all")) == {anns, bobs}
    assert set(listed(world.vic.api, scope="all")) == {anns, bobs}
    assert listed(world.bob.api, scope="all") == [bobs]


@pytest.mark.clause("LST-2", "refused on the tenant: ACCESS_DENIED in either scope")
@pytest.mark.parametrize("scope", ["mine", "all"])
def test_without_the_permission_there_is_no_list(world: World, scope: str):
    nobody = world.person(world.acme, "nobody")
    nobody.api("reservations/list", scope=scope).refused("ACCESS_DENIED")


@pytest.mark.clause("LST-2", "rows of a list are not audited")
def test_rows_are_not_audited(world: World, pool: str):
    create(world.bob.api, pool)
    before = Decision.objects.count()
    listed(world.ann.api, scope="all")
    assert Decision.objects.count() == before


@pytest.mark.clause("LST-2", "hidden rows are scanned past; the mark is opaque and good as cursor")
def test_hidden_rows_shorten_no_page(world: World, pool: str, clock, monkeypatch: pytest.MonkeyPatch):
    mine = []
    for turn in range(4):
        clock.advance(seconds=1)
        mine.append(create(world.ann.api, pool)["id"])
        if turn < 3:
            clock.advance(seconds=1)
            create(world.bob.api, pool)
    first = world.ann.api("reservations/list", scope="all", limit=2).data
    assert [r["id"] for r in first["reservations"]] == [mine[3], mine[2]]
    # Where a call may look at few rows only, it stops at a hidden one and still says where to go on.
    monkeypatch.setattr("reservations.queries.listing.SCAN_LIMIT", 2)
    page = world.ann.api("reservations/list", scope="all", limit=2).data
    assert [r["id"] for r in page["reservations"]] == [mine[3]]
    assert not page["nextCursor"].startswith("res_")
    rest = world.ann.api("reservations/list", scope="all", limit=2, cursor=page["nextCursor"]).data
    assert [r["id"] for r in rest["reservations"]] == [mine[2]]
    world.gil.api("reservations/list", scope="all", cursor=page["nextCursor"]).refused_at("cursor")


@pytest.mark.parametrize("count", [1, 12])
def test_a_list_asks_the_database_no_more_for_more_rows(world: World, pool: str, count: int):
    for _ in range(count):
        create(world.ann.api, pool, startsAt=compute_now() + HOUR)
    for scope in ("mine", "all"):
        with CaptureQueriesContext(connection) as queries:
            assert len(listed(world.ann.api, scope=scope)) == count
        assert len(queries) <= 4
