"""What the tests of the operators' pages share: a world with a row of everything, and operators who are signed in."""

from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client

from computeplatform.api.calls import system_actor
from computeplatform.beat import write_schedule
from computeplatform.clock import compute_now
from computeplatform.events.outbox import stamp
from computeplatform.models import ServiceGap
from fleet.operations.taints import set_taint
from iam.operations.audit import seal
from iam.operations.bootstrap import ensure_operator
from reservations.models import Downtime
from tests.support.api import Api, settle
from tests.support.world import HOUR, World, fresh_key, request

BY = system_actor("test")
PASSWORD = "a-long-password"


def grow(world: World) -> str:
    """A pool with three nodes and six reservations in all sorts of states, and the rest of what there can be."""
    pool_id = world.offered_pool(nodes=3, idempotencyKey=fresh_key())
    for person, gpus, changed in (
        (world.ann, 8, {"binding": "node"}),
        (world.bob, 4, {"name": "train"}),
        (world.gil, 8, {"nodes": 1, "labels": {"team": "ml"}}),
        (world.gil, 8, {}),
        (world.ann, 64, {}),
    ):
        person.api("reservations/create", **request(pool_id, gpus, **changed)).data  # noqa: B018 - asserts success
    over = world.bob.api("reservations/create", **request(pool_id, 1)).data["reservation"]["id"]
    settle()
    world.bob.api("reservations/release", reservationId=over).data  # noqa: B018
    set_taint([world.nodes[-1].id], "Updating", by=BY, now=0, until=4_000_000_000_000)
    now = compute_now()
    maintenance: dict[str, Any] = {"from": now + HOUR, "until": now + 2 * HOUR}
    world.admin("nodes/maintenance", nodeId=world.nodes[-1].id, reason="new fans", **maintenance).data  # noqa: B018
    Downtime.objects.create(reservation_id=over, began_at=now, ended_at=now + 1)
    ServiceGap.objects.get_or_create(began_at=now, ended_at=now + 1)
    name = f"rules-{pool_id[5:12]}"
    text = 'forbid (principal, action == Compute::Action::"compute:pools:create", resource);'
    world.acme.api.iam("policies/put", name=name, text=text).data  # noqa: B018
    delegate(world, pool_id)
    stamp()
    return pool_id


def delegate(world: World, pool_id: str) -> None:
    """An agent of ann's with a session, whose request waits to be confirmed."""
    create = "compute:reservations:create"
    agent = world.ann.api.iam("agents/create", name="bot").data["agent"]["id"]
    token = world.ann.api.iam("keys/create", principalId=agent).data["token"]
    granted = world.ann.api.iam("delegations/grant", agentId=agent, scopes=["compute:*"], confirm=[create]).data
    delegation_id = granted["delegation"]["id"]
    session = Api(token, "acme").iam("delegations/assume", delegationId=delegation_id).data["token"]
    Api(session, "acme")("reservations/create", **request(pool_id, 1)).refused("CONFIRMATION_REQUIRED")


@pytest.fixture
def peopled(world: World) -> World:
    """The world with a row of every model that has a page."""
    write_schedule()
    seal(now=compute_now(), limit=10_000)
    grow(world)
    return world


@pytest.fixture
def operator(world: World, clock: Any) -> Client:
    """Signed in as an operator who stands for a fleet administrator of the platform."""
    return sign_in("op", administrator(world), clock.now)


@pytest.fixture
def onlooker(world: World) -> Client:
    """Signed in, with every right that Django has, and without a principal."""
    client = Client()
    client.force_login(get_user_model().objects.create_superuser("eve", "eve@example.org", PASSWORD))
    return client


def administrator(world: World, *roles: str, name: str = "olga") -> str:
    """A new user of the platform, by default a fleet administrator; returns its id."""
    made = world.admin.iam("principals/create", kind="user", name=name, roles=list(roles or ["fleet-admin"])).data
    return str(made["principal"]["id"])


def sign_in(username: str, principal_id: str, now: int, **client: Any) -> Client:
    """A browser of that operator."""
    ensure_operator(username=username, password=PASSWORD, principal_id=principal_id, by=BY, now=now)
    browser = Client(**client)
    browser.force_login(get_user_model().objects.get(username=username))
    return browser
