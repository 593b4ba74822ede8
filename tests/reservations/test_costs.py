"""What a create costs in queries: a small constant, whatever else there is (DESIGN §6)."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from computeplatform.clock import compute_now
from fleet.queries import pool_nodes
from reservations.operations.admission import admit_pool
from reservations.operations.lifecycle import advance_due
from reservations.operations.placing import place_pending
from tests.support.world import HOUR, World, request


class Crashed(Exception):
    """The call's web process died."""


def leave_drafts(world: World, pool: str, count: int) -> None:
    """Drafts whose calls are unanswered."""

    def die() -> None:
        raise Crashed

    world.ann.api.work = die
    for _ in range(count):
        with pytest.raises(Crashed):
            world.ann.api("reservations/create", **request(pool, startsAt=compute_now() + HOUR))


def statements(queries: CaptureQueriesContext) -> int:
    """Statements that read or write."""
    return sum(not q["sql"].startswith(("SAVEPOINT", "RELEASE")) for q in queries.captured_queries)


def test_a_call_costs_few_queries(world: World, pool: str):
    world.ann.api("reservations/create", **request(pool))
    with CaptureQueriesContext(connection) as queries:
        assert world.ann.api("reservations/create", **request(pool)).data
    # Two looks of the web process and one pass of the worker, with what the test itself asks.
    assert statements(queries) <= 35


@pytest.mark.parametrize("drafts", [1, 12])
def test_admission_costs_the_same_for_many_as_for_one(world: World, drafts: int):
    pool = world.offered_pool(nodes=3)
    leave_drafts(world, pool, drafts)
    pool_nodes(pool)  # a worker has read them before
    with CaptureQueriesContext(connection) as queries:
        report = admit_pool(pool, now=compute_now())
    assert (report.decided, report.admitted) == (drafts, drafts)
    assert statements(queries) <= 24


@pytest.mark.parametrize("waiting", [1, 12])
def test_a_retry_costs_the_same_for_many_as_for_one(world: World, pool: str, clock, waiting: int):
    world.ann.api("reservations/create", **request(pool, 8))
    for _ in range(waiting):
        world.ann.api("reservations/create", **request(pool, 1))
    clock.advance(hours=1)
    with CaptureQueriesContext(connection) as queries:
        assert place_pending(pool_id=pool, now=clock.now) == min(waiting, 8)
    assert statements(queries) <= 14


@pytest.mark.parametrize("due", [1, 12])
def test_the_reconciler_costs_the_same_for_many_as_for_one(world: World, clock, due: int):
    pool = world.offered_pool(nodes=2)
    for _ in range(due):
        world.ann.api("reservations/create", **request(pool, startsAt=clock.now + HOUR))
    clock.advance(hours=1)
    with CaptureQueriesContext(connection) as queries:
        assert advance_due(now=clock.now).moved == due
    assert statements(queries) <= 9
