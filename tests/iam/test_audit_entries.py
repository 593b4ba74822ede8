"""What becomes an entry of the audit log, asked of every method that there is (IAM-7)."""

from typing import Any

import pytest
from prometheus_client import REGISTRY

from computeplatform.api.methods import Method, methods
from computeplatform.clock import compute_now
from iam.models import Decision
from tests.iam.auditing import undone
from tests.kernel.test_isolation import INPUTS
from tests.support.api import Answer, Api
from tests.support.world import HOUR, World, request

# Mutations that are only counted where they are allowed; all the others are entries.
COUNTED = {"nodes/sync"}
# Methods that ask nobody.
UNDECIDED = {"session/whoami"}
# Where the platform's administrator calls, and not the tenant's.
PLATFORM = {"nodes", "pools", "quotas", "tenants"}
# A scope that covers no method so far.
ELSEWHERE = ["compute:webhooks:admin"]


class Scene:
    """One of everything that a method can name, and who may call what."""

    def __init__(self, world: World) -> None:
        pool = world.offered_pool(nodes=2)
        now, node = compute_now(), world.nodes[0].id
        period: dict[str, Any] = {"from": now + HOUR, "until": now + 2 * HOUR}
        maintenance = world.admin("nodes/maintenance", nodeId=node, **period).data["maintenance"]["id"]
        self.agent_id = world.ann.api.iam("agents/create", name="bot").data["agent"]["id"]
        grant = {"agentId": self.agent_id, "scopes": ["*"], "confirm": ["compute:reservations:create"]}
        delegation = world.ann.api.iam("delegations/grant", **grant).data["delegation"]["id"]
        agent = self._key(world.ann.api, self.agent_id)
        session = Api(agent.iam("delegations/assume", delegationId=delegation).data["token"], "acme")
        asked = session("reservations/create", **request(pool)).refused("CONFIRMATION_REQUIRED")
        world.acme.api.iam("policies/put", name="p", text=INPUTS["policies/put"]["text"])
        self.ids = {
            "pool_x": pool,
            "node_x": node,
            "mnt_x": maintenance,
            "res_x": world.ann.api("reservations/create", **request(pool)).data["reservation"]["id"],
            "usr_x": world.bob.id,
            "key_x": world.acme.api.iam("keys/list", principalId=world.bob.id).data["keys"][0]["id"],
            "agt_x": self.agent_id,
            "dlg_x": delegation,
            "cnf_x": asked["details"]["confirmationId"],
            "dec_x": Decision.objects.filter(tenant_id="acme").latest("at", "id").id,
        }
        # Where another time is meant than any.
        self.instead = {"pools/availability": {"from": now, "to": now + HOUR}}
        admin_id = world.admin.iam("session/whoami").data["principal"]["id"]
        # By method or its group: who may, and the same principal with a key that may nothing of it.
        self.callers = {
            "nodes/sync": (world.nodes[0].api, world.nodes[1].api),
            "delegations/assume": (agent, self._key(world.acme.api, self.agent_id, scopes=ELSEWHERE)),
            "confirmations/decide": (world.ann.api, self._key(world.acme.api, world.ann.id, scopes=ELSEWHERE)),
            "": (world.acme.api, self._key(world.acme.api, world.acme.id, scopes=ELSEWHERE)),
            **dict.fromkeys(PLATFORM, (world.admin, self._key(world.admin, admin_id, scopes=ELSEWHERE))),
        }

    @staticmethod
    def _key(admin: Api, principal_id: str, **key: Any) -> Api:
        return Api(admin.iam("keys/create", principalId=principal_id, **key).data["token"], admin.tenant_id)

    def call(self, method: Method, *, permitted: bool) -> Answer:
        """Call it with everything in place, by somebody who may or may not."""
        found = self.callers.get(method.id) or self.callers.get(method.group) or self.callers[""]
        given = {k: self.ids.get(v, v) if isinstance(v, str) else v for k, v in INPUTS[method.id].items()}
        given |= self.instead.get(method.id, {})
        return found[0 if permitted else 1](method.id, service=method.service, **given)


def counted(action: str, outcome: str) -> float:
    """How many decisions of that kind this process has counted."""
    return REGISTRY.get_sample_value("iam_decisions_total", {"action": action, "outcome": outcome}) or 0


def entries() -> dict[str, str]:
    """Every entry's outcome, by its id."""
    return dict(Decision.objects.values_list("id", "outcome"))


@pytest.fixture
def scene(world: World) -> Scene:
    return Scene(world)


@pytest.mark.clause("IAM-7", "all mutations and all denials are entries")
@pytest.mark.clause("IAM-7", "allowed reads and nodes/sync are only counted")
def test_every_method_leaves_what_it_should(scene: Scene) -> None:
    wrong = {}
    for method in methods():
        if method.id in UNDECIDED:
            continue
        assert method.action, method.id
        for permitted, outcome in ((True, "allow"), (False, "deny")):
            with undone():
                before, there = counted(method.action, outcome), entries()
                answer = scene.call(method, permitted=permitted)
                code = "" if answer.status == 200 else answer.error["code"]
                recorded = not permitted or (method.kind == "mutation" and method.id not in COUNTED)
                expected = ([outcome] if recorded else [], 1, True)
                fits = code == "ACCESS_DENIED" if not permitted else code in ("", "INVALID_STATE", "CONFLICT")
                left = [one for id_, one in entries().items() if id_ not in there]
                found = (left, counted(method.action, outcome) - before, fits)
                if found != expected:
                    wrong[method.id, outcome] = (*found, answer.body)
    assert wrong == {}, "\n".join(f"{k}: {v}" for k, v in wrong.items())


def test_what_asks_nobody_leaves_nothing(scene: Scene) -> None:
    assert {m.id for m in methods() if m.action is None} == UNDECIDED
    before = Decision.objects.count()
    scene.callers[""][1].iam("session/whoami").data  # noqa: B018 - asserts success
    assert Decision.objects.count() == before


@pytest.mark.clause("IAM-7", "rows of a list are neither")
def test_the_rows_of_a_list_are_neither_recorded_nor_counted(world: World) -> None:
    pool = world.offered_pool()
    for _ in range(3):
        world.ann.api("reservations/create", **request(pool)).data  # noqa: B018 - asserts success
    read = "compute:reservations:read"
    for person, shown in ((world.acme, 3), (world.ann, 3), (world.bob, 0)):
        entries, allowed, denied = Decision.objects.count(), counted(read, "allow"), counted(read, "deny")
        rows = person.api("reservations/list", scope="all").data["reservations"]
        assert len(rows) == shown
        assert (Decision.objects.count(), counted(read, "allow"), counted(read, "deny")) == (
            entries,
            allowed + 1,
            denied,
        )


@pytest.mark.clause("IAM-7", "decisions/explain is neither")
def test_what_is_explained_is_neither_recorded_nor_counted(world: World) -> None:
    action, asking = "compute:pools:create", "iam:decisions:read"
    question = {"principalId": world.bob.id, "action": action, "resource": {"type": "compute-tenant", "id": "acme"}}
    entries, before = Decision.objects.count(), [counted(action, "deny"), counted(asking, "allow")]
    decided = world.acme.api.iam("decisions/explain", question=question).data["decision"]
    assert (decided["outcome"], "id" in decided) == ("deny", False)
    assert Decision.objects.count() == entries
    # Only that it was asked is counted.
    assert [counted(action, "deny"), counted(asking, "allow")] == [before[0], before[1] + 1]
