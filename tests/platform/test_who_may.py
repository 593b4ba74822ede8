"""Every method, and what it answers to whom: the owner, a colleague, an agent in the owner's name, a stranger from
another tenant, and the platform's operator (API-5, IAM-1, IAM-4, IAM-5).

Whose a row is: ``ann`` and ``bob`` reserve, ``root`` administers the tenant, ``fleet`` the platform, ``robot`` is
ann's agent in its own name and ``node`` the software of a node. The colleague is bob, on the platform somebody who
reserves there. The agent has a session of the owner's with every scope. The stranger administers another tenant, the
operator the platform and its fleet; both call in their own tenant and name the same objects.
"""

from dataclasses import dataclass
from typing import Any

import pytest
from django.db import transaction

from computeplatform.api.methods import methods
from iam.models import Decision
from tests.support.api import Api
from tests.support.confirming import must_confirm
from tests.support.world import HOUR, Person, World, request

TABLE = """
method                      whose  owner     colleague agent     stranger  operator
agents/create               ann    answer    answer    denied    answer    answer
agents/list                 ann    answer    denied    answer    nothing   nothing
agents/resume               ann    answer    denied    denied    nothing   nothing
agents/suspend              ann    answer    denied    answer    nothing   nothing
agents/suspendAll           ann    answer    denied    answer    nothing   nothing
confirmations/decide        ann    answer    denied    denied    nothing   nothing
confirmations/list          root   answer    denied    answer    answer    answer
decisions/explain           root   answer    denied    answer    nothing   nothing
decisions/list              root   answer    denied    answer    answer    answer
delegations/assume          robot  answer    denied    denied    nothing   nothing
delegations/grant           ann    answer    answer    denied    nothing   nothing
delegations/list            ann    answer    denied    answer    nothing   nothing
delegations/revoke          ann    answer    denied    answer    nothing   nothing
events/list                 root   answer    denied    answer    answer    answer
keys/create                 ann    answer    denied    denied    nothing   nothing
keys/get                    ann    answer    denied    answer    nothing   nothing
keys/list                   ann    answer    denied    answer    nothing   nothing
keys/revoke                 ann    answer    denied    answer    nothing   nothing
keys/rotate                 ann    answer    denied    denied    nothing   nothing
nodes/assign                fleet  answer    denied    answer    nothing   answer
nodes/cancelMaintenance     fleet  answer    denied    answer    nothing   answer
nodes/cordon                fleet  answer    denied    answer    nothing   answer
nodes/drain                 fleet  answer    denied    answer    nothing   answer
nodes/get                   fleet  answer    denied    answer    nothing   answer
nodes/list                  fleet  answer    denied    answer    denied    answer
nodes/maintenance           fleet  answer    denied    answer    nothing   answer
nodes/register              fleet  answer    denied    denied    denied    answer
nodes/remove                fleet  answer    denied    answer    nothing   answer
nodes/sync                  node   answer    denied    denied    nothing   denied
nodes/uncordon              fleet  answer    denied    answer    nothing   answer
policies/delete             root   answer    denied    denied    nothing   nothing
policies/get                root   answer    denied    answer    nothing   nothing
policies/list               root   answer    denied    answer    answer    answer
policies/put                root   answer    denied    denied    answer    answer
policies/test               root   answer    denied    answer    answer    answer
policies/validate           root   answer    denied    answer    answer    answer
pools/archive               root   answer    denied    answer    nothing   nothing
pools/availability          root   answer    answer    answer    nothing   nothing
pools/create                root   answer    denied    answer    answer    answer
pools/get                   root   answer    answer    answer    nothing   nothing
pools/list                  root   answer    answer    answer    answer    answer
pools/offer                 root   answer    denied    answer    nothing   nothing
pools/update                root   answer    denied    answer    nothing   nothing
pools/withdrawOffer         root   answer    denied    answer    nothing   nothing
principals/create           root   answer    denied    denied    answer    answer
principals/get              root   answer    denied    answer    nothing   nothing
principals/list             root   answer    denied    answer    answer    answer
principals/resume           root   answer    denied    denied    nothing   nothing
principals/suspend          root   answer    denied    answer    nothing   nothing
principals/update           root   answer    denied    denied    nothing   nothing
quotas/list                 root   answer    answer    answer    answer    answer
quotas/set                  root   answer    denied    answer    nothing   nothing
reservations/cancel         ann    answer    denied    answer    nothing   nothing
reservations/create         ann    answer    answer    answer    answer    answer
reservations/extend         ann    answer    denied    answer    nothing   nothing
reservations/get            ann    answer    denied    answer    nothing   nothing
reservations/list           ann    answer    answer    answer    answer    answer
reservations/release        ann    answer    denied    answer    nothing   nothing
reservations/renew          ann    answer    denied    answer    nothing   nothing
session/whoami              ann    answer    answer    answer    answer    answer
tenants/create              fleet  answer    denied    answer    denied    answer
tenants/list                fleet  answer    denied    answer    denied    answer
tenants/resume              fleet  answer    denied    answer    denied    answer
tenants/suspend             fleet  answer    denied    answer    denied    answer
"""

OUTCOMES = {"answer": None, "denied": "ACCESS_DENIED", "nothing": "NOT_FOUND"}
COLUMNS = ("owner", "colleague", "agent", "stranger", "operator")


@dataclass
class Scene:
    """Who calls, by whose row it is and by column; and the input of every method."""

    callers: dict[str, dict[str, Api]]
    inputs: dict[str, dict[str, Any]]

    def outcome(self, method: str, service: str, api: Api) -> str:
        """What a call comes to; nothing of it stays. A denial has its entry in the audit log, and nothing else has."""
        with transaction.atomic():
            answer = api(method, service=service, **self.inputs[method])
            entries = Decision.objects.filter(outcome="deny", request_id=answer.headers["X-Request-Id"]).count()
            transaction.set_rollback(True)
        code = None if answer.status == 200 else answer.error["code"]
        assert entries == (code == "ACCESS_DENIED"), f"{method}: {code} with {entries} denials"
        return next((word for word, known in OUTCOMES.items() if known == code), f"{code}")


@pytest.fixture
def scene(world: World, clock: Any) -> Scene:
    world.admin.iam("tenants/create", id="initech", name="Initech", admin={"name": "root"}).data  # noqa: B018
    operator = Person(world.admin.iam("session/whoami").data["principal"]["id"], world.admin)
    clerk = world.person(operator, "clerk", "reserver")
    pool = world.offered_pool(nodes=2)
    robot = world.agent(world.ann, boundary=["*"])
    sessions = {
        "ann": world.session(robot, world.ann, scopes=["*"]),
        "root": world.session(world.agent(world.acme, boundary=["*"]), world.acme, scopes=["*"]),
        "fleet": world.session(world.agent(operator, boundary=["*"]), operator, scopes=["*"]),
    }
    node = world.nodes[0]
    owners = {
        "ann": world.ann,
        "root": world.acme,
        "fleet": operator,
        "robot": robot,
        "node": Person(node.id, node.api),
    }
    callers = {
        whose: {
            "owner": owner.api,
            "colleague": clerk.api if whose in ("fleet", "node") else world.bob.api,
            "agent": sessions[{"robot": "ann", "node": "fleet"}.get(whose, whose)],
            "stranger": world.globex.api,
            "operator": world.admin,
        }
        for whose, owner in owners.items()
    }
    inputs = reservations(world, pool, clock.now) | pools(world, clock.now) | nodes(world, operator, pool, clock.now)
    inputs |= people(world, robot, sessions["ann"].delegation_id, pool) | tenants()
    return Scene(callers, inputs)


def reservations(world: World, pool: str, now: int) -> dict[str, dict[str, Any]]:
    asked = request(pool, startsAt=now + HOUR, leaseSeconds=3600)
    mine = {"reservationId": world.ann.api("reservations/create", **asked).data["reservation"]["id"]}
    named = {f"reservations/{name}": mine for name in ("cancel", "get", "release", "renew")}
    return named | {
        "reservations/create": request(pool),
        "reservations/extend": mine | {"by": HOUR},
        "reservations/list": {"scope": "all"},
        "events/list": {},
    }


def pools(world: World, now: int) -> dict[str, dict[str, Any]]:
    """Of a pool that acme owns and lends to a third tenant."""
    own = world.pool(name="own", owner=world.acme.api)
    world.offer(own, "initech", owner=world.acme.api).data  # noqa: B018
    named, to = {"poolId": own}, {"poolId": own, "toTenantId": "initech"}
    days = {"from": now + HOUR, "to": now + 2 * HOUR}
    return {
        "pools/archive": named,
        "pools/availability": named | days | {"devices": {"class": "gpu", "count": 1}, "durationSeconds": 1},
        "pools/create": {"name": "new", "region": "eu", "gpuModel": "h100", "deviceClass": "gpu"},
        "pools/get": named,
        "pools/list": {},
        "pools/offer": to | {"resources": {"gpu": 1}},
        "pools/update": named | {"name": "other"},
        "pools/withdrawOffer": to,
        "quotas/list": {},
        "quotas/set": to | {"resource": "gpu", "max": 1},
    }


def nodes(world: World, operator: Person, pool: str, now: int) -> dict[str, dict[str, Any]]:
    spare = {"nodeId": operator.api("nodes/register", name="spare", positions=8).data["node"]["id"]}
    used = {"nodeId": world.nodes[0].id}
    days: dict[str, Any] = {"from": now + 100 * HOUR, "until": now + 101 * HOUR}
    planned = operator.api("nodes/maintenance", **used, **days).data["maintenance"]["id"]
    report: dict[str, Any] = {"bootId": "b", "sequence": 1, "software": {"version": "1"}}
    return {
        "nodes/assign": spare | {"poolId": pool},
        "nodes/cancelMaintenance": used | {"maintenanceId": planned},
        "nodes/cordon": used,
        "nodes/drain": used,
        "nodes/get": used,
        "nodes/list": {},
        "nodes/maintenance": used | {"from": now + 200 * HOUR, "until": now + 201 * HOUR},
        "nodes/register": {"name": "new", "positions": 8},
        "nodes/remove": spare,
        "nodes/sync": used | report | {"devices": [], "allocations": []},
        "nodes/uncordon": used,
    }


def people(world: World, robot: Person, delegation: str, pool: str) -> dict[str, dict[str, Any]]:
    key = {"keyId": world.acme.api.iam("keys/create", principalId=world.ann.id).data["key"]["id"]}
    asking = world.session(robot, world.ann, confirm=["compute:reservations:create"])
    pending = must_confirm(asking("reservations/create", **request(pool)))["confirmationId"]
    text = 'forbid (principal, action, resource) when { resource.tenantId == "nobody" };'
    world.acme.api.iam("policies/put", name="rules", text=text).data  # noqa: B018
    entry = Decision.objects.filter(tenant_id="acme").order_by("id")[0].id
    agent, granted, vic = {"agentId": robot.id}, {"delegationId": delegation}, {"principalId": world.vic.id}
    return {
        "agents/create": {"name": "new"},
        "agents/list": {"sponsorId": world.ann.id},
        "agents/resume": agent,
        "agents/suspend": agent,
        "agents/suspendAll": {"sponsorId": world.ann.id},
        "confirmations/decide": {"confirmationId": pending, "approve": True},
        "confirmations/list": {"scope": "all"},
        "decisions/explain": {"decisionId": entry},
        "decisions/list": {},
        "delegations/assume": granted,
        "delegations/grant": agent | {"scopes": ["*"]},
        "delegations/list": {"userId": world.ann.id},
        "delegations/revoke": granted,
        "keys/create": {"principalId": robot.id},
        "keys/get": key,
        "keys/list": {"principalId": world.ann.id},
        "keys/revoke": key,
        "keys/rotate": key,
        "policies/delete": {"name": "rules"},
        "policies/get": {"name": "rules"},
        "policies/list": {},
        "policies/put": {"name": "new", "text": text},
        "policies/test": {"text": text},
        "policies/validate": {"text": text},
        "principals/create": {"kind": "user", "name": "new"},
        "principals/get": vic,
        "principals/list": {},
        "principals/resume": vic,
        "principals/suspend": vic,
        "principals/update": vic | {"name": "other"},
        "session/whoami": {},
    }


def tenants() -> dict[str, dict[str, Any]]:
    return {
        "tenants/create": {"id": "new", "name": "New"},
        "tenants/list": {},
        "tenants/resume": {"id": "initech"},
        "tenants/suspend": {"id": "initech"},
    }


def rows() -> dict[str, list[str]]:
    """Method to whose it is and the five outcomes."""
    lines = [line.split() for line in TABLE.strip().splitlines()]
    assert lines[0] == ["method", "whose", *COLUMNS]
    return {method: rest for method, *rest in lines[1:]}


def test_the_table_has_every_method_and_no_other():
    assert list(rows()) == [m.id for m in sorted(methods(), key=lambda m: m.id)]


@pytest.mark.clause("API-5", "every method: owner, colleague, agent, stranger, operator")
@pytest.mark.clause("IAM-5", "what a delegated session may, method by method")
@pytest.mark.clause("IAM-4", "no administrator of one tenant is one of another")
def test_who_may_what(scene: Scene):
    declared, expected = {m.id: m for m in methods()}, rows()
    found = {}
    for name, (whose, *_) in expected.items():
        callers = scene.callers[whose]
        found[name] = [whose, *(scene.outcome(name, declared[name].service, callers[column]) for column in COLUMNS)]
    assert found == expected
