"""Agents suspended with ``endReservations``: all that they have reserved ends (OPS-4)."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from computeplatform.api.calls import Actor
from computeplatform.clock import compute_now
from computeplatform.models import Event
from iam.operations.agents import resume_agent
from quotas.models import Charge, Quota
from reservations import reconcilers
from reservations.models import Reservation
from reservations.operations import closing
from reservations.operations.admission import decide_drafts
from tests.reservations.conftest import event_types
from tests.support.api import Api
from tests.support.clock import Clock
from tests.support.confirming import Asking, draft, must_confirm
from tests.support.world import HOUR, Person, World, request


class Stopped(Exception):
    """The call's process died."""


@pytest.fixture
def robot(world: World) -> Person:
    """An agent of ann's that may also reserve in its own name."""
    made = world.agent(world.ann, "robot")
    assert world.acme.api.iam("principals/update", principalId=made.id, roles=["reserver"]).status == 200
    return made


def create(api: Api, pool: str, gpus: int = 1, **changed: Any) -> str:
    return str(api("reservations/create", **request(pool, gpus, **changed)).data["reservation"]["id"])


def suspend(world: World, robot: Person, **fields: Any) -> None:
    assert world.ann.api.iam("agents/suspend", agentId=robot.id, **fields).status == 200


def states(*ids: str) -> list[tuple[str, str]]:
    return [(row.state, row.reason) for row in map(draft, ids)]


@pytest.mark.clause("OPS-4", "pending ones are cancelled, others released, reason agent-suspended")
@pytest.mark.clause("OPS-4", "what the agent reserved, in delegated sessions too")
def test_all_that_it_has_ends(world: World, robot: Person, clock: Clock):
    pool, other = world.offered_pool(nodes=2), world.offered_pool(name="other")
    session = world.session(robot, world.ann)
    active, binding = create(robot.api, pool), create(session, pool, binding="node")
    reconcilers.reconcile_tick()
    placed = create(session, pool, startsAt=clock.now + HOUR)
    theirs = create(world.ann.api, pool, 8)
    pending = create(session, pool, 8)
    elsewhere = create(session, other, 2)
    second = world.session(world.agent(world.ann, "second"), world.ann)
    untouched = create(second, pool)
    ended = create(session, pool)
    session("reservations/release", reservationId=ended).data  # noqa: B018
    before = [row.state for row in map(draft, (active, binding, placed, pending, elsewhere))]
    assert before == ["active", "binding", "placed", "pending", "placed"]
    suspend(world, robot, endReservations=True)
    assert [row.state for row in map(draft, (active, binding, placed, pending, elsewhere))] == before
    clock.advance(seconds=1)
    reconcilers.reconcile_tick()
    released, cancelled = ("released", "agent-suspended"), ("cancelled", "agent-suspended")
    assert states(active, binding, placed, pending, elsewhere) == [
        released, released, released, cancelled, released,
    ]  # fmt: skip
    assert states(ended) == [("released", "release")]
    assert [row.state for row in map(draft, (theirs, untouched))] == ["active", "active"]
    for one in (active, binding, placed, pending, elsewhere):
        assert not Charge.objects.filter(reservation_id=one, refunded_at=None).exists()
        assert draft(one).ended_at == clock.now
        told = Event.objects.filter(subject_id=one).latest("position")
        assert (told.reason, told.actor_id) == ("agent-suspended", "system:capacity.reservations")
    assert Quota.objects.get(tenant_id="acme", pool_id=pool, resource="gpu").used == 9
    # Once: the next tick has nothing to do.
    events = Event.objects.count()
    reconcilers.reconcile_tick()
    assert Event.objects.count() == events


@pytest.mark.clause("OPS-4", "suspended without endReservations, what it has goes on; asked again with it, it ends")
def test_only_where_it_was_asked_for(world: World, robot: Person, pool: str):
    one = create(robot.api, pool)
    suspend(world, robot)
    reconcilers.reconcile_tick()
    assert states(one) == [("active", "")]
    suspend(world, robot, endReservations=True)
    reconcilers.reconcile_tick()
    assert states(one) == [("released", "agent-suspended")]


@pytest.mark.clause("OPS-4", "suspendAll with endReservations")
def test_all_agents(world: World, robot: Person, pool: str):
    second = world.session(world.agent(world.bob, "second"), world.bob)
    ids = [create(robot.api, pool), create(second, pool)]
    own = create(world.bob.api, pool)
    assert world.acme.api.iam("agents/suspendAll", endReservations=True).data == {"suspended": 2}
    reconcilers.reconcile_tick()
    assert states(*ids, own) == [("released", "agent-suspended")] * 2 + [("active", "")]


@pytest.mark.clause("OPS-4", "by level: what is admitted late ends too, until the agent is resumed")
def test_by_level(world: World, robot: Person, pool: str):
    # It is decided before the suspension, and admitted after it.
    asked = request(pool)

    def decide_and_stop() -> None:
        decide_drafts(pool_id=pool, now=compute_now())
        raise Stopped

    with pytest.raises(Stopped):
        Api(robot.api.token, "acme", work=decide_and_stop)("reservations/create", **asked)
    suspend(world, robot, endReservations=True)
    reconcilers.reconcile_tick()
    late = Reservation.objects.get()
    reconcilers.admit(pool_id=pool)
    assert draft(late.id).state == "placed"
    reconcilers.reconcile_tick()
    assert states(late.id) == [("released", "agent-suspended")]
    world.ann.api.iam("agents/resume", agentId=robot.id).data  # noqa: B018
    again = create(robot.api, pool)
    reconcilers.reconcile_tick()
    assert states(again) == [("active", "")]


@pytest.mark.clause("OPS-4", "an agent that is resumed meanwhile keeps what is left")
def test_resumed_before_the_tick(world: World, robot: Person, pool: str, clock: Clock):
    one = create(robot.api, pool)
    suspend(world, robot, endReservations=True)
    assert closing.pools_with_ending_agents() == [pool]
    by = Actor(world.ann.id)
    resume_agent(tenant_id="acme", agent_id=robot.id, is_admin=False, by=by, now=clock.now)
    assert closing.end_of_agents(pool, now=clock.now) == 0
    assert states(one) == [("placed", "")]


@pytest.mark.clause("OPS-4", "what has run out has ended by itself, at its own time")
def test_what_has_run_out(world: World, robot: Person, pool: str, clock: Clock):
    one = create(robot.api, pool)
    reconcilers.reconcile_tick()
    suspend(world, robot, endReservations=True)
    clock.advance(hours=1, seconds=5)
    reconcilers.reconcile_tick()
    row = draft(one)
    assert (row.state, row.reason, row.ended_at) == ("released", "ended", row.ends_at)


@pytest.mark.clause("OPS-4", "freed capacity wakes what waits")
def test_others_get_their_turn(
    world: World, robot: Person, pool: str, redis_client: Any, django_capture_on_commit_callbacks: Any
):
    one = create(robot.api, pool, 8)
    waiting = create(world.gil.api, pool, 8)
    suspend(world, robot, endReservations=True)
    redis_client.flushdb()
    with django_capture_on_commit_callbacks(execute=True):
        reconcilers.reconcile_tick()
    assert redis_client.exists(f"compute:wake:placement:{pool}")
    reconcilers.place(pool_id=pool)
    assert [draft(one).state, draft(waiting).state] == ["released", "placed"]
    assert event_types(waiting) == ["pending", "placed"]


@pytest.mark.clause("OPS-4", "a draft that waits for a confirmation is no reservation yet: it lapses")
def test_what_waits_for_a_confirmation(asking: Asking, pool: str, clock: Clock):
    details = must_confirm(asking.create(request(pool)))
    suspend(asking.world, asking.agent, endReservations=True)
    reconcilers.reconcile_tick()
    assert draft(details["reservationId"]).state == "awaiting-confirmation"
    clock.set(details["expiresAt"])
    reconcilers.reconcile_tick()
    assert draft(details["reservationId"]).state == "denied"


@pytest.mark.clause("OPS-4", "as many statements for many reservations as for few")
def test_in_bulk(world: World, robot: Person):
    counted = []
    for number in (1, 6):
        pool = world.offered_pool(name=f"pool-{number}")
        for _ in range(number):
            create(robot.api, pool)
        suspend(world, robot, endReservations=True)
        with CaptureQueriesContext(connection) as queries:
            assert closing.end_of_agents(pool, now=1 + Reservation.objects.latest("created_at").created_at) == number
        counted.append(len(queries))
        world.ann.api.iam("agents/resume", agentId=robot.id).data  # noqa: B018
    assert counted[0] == counted[1]
