"""A small world to test in: the platform, two tenants with their people, a pool, nodes that can report."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from computeplatform.clock import compute_now
from iam.models import Tenant
from iam.operations.bootstrap import ensure_platform
from tests.support.api import Answer, Api

_keys = count(1)
HOUR = 3_600_000


def fresh_key() -> str:
    """An idempotency key that no other call has used."""
    return f"key-{next(_keys)}"


@dataclass
class Person:
    """A principal with a key."""

    id: str
    api: Api


class Session(Api):
    """A caller in a delegated session, and where it comes from."""

    def __init__(self, token: str, session: dict[str, Any]) -> None:
        super().__init__(token, session["tenantId"])
        self.session_id: str = session["id"]
        self.delegation_id: str = session["delegationId"]
        self.agent_id: str = session["agentId"]
        self.user_id: str = session["userId"]


@dataclass
class SimNode:
    """A node's software, as far as a test needs it: it reports what it is told, unless the test has it report less."""

    id: str
    name: str
    api: Api
    gpus: int
    session: int | None = None
    sequence: int = 0
    boot_id: str = "boot-1"
    # What it holds: reservation id to the state that it reports.
    holds: dict[str, str] = field(default_factory=dict)
    # How many pods use what it holds, by reservation; it withdraws nothing while there are any.
    pods: dict[str, int] = field(default_factory=dict)
    # The profiles of the MIG instances on each GPU by their place, or how many slots it has; what its host reports.
    mig: tuple[str, ...] = ()
    slots: int | None = None
    host: dict[str, int] | None = field(default_factory=lambda: {"vcpu": 128, "memoryMiB": 1048576, "hugepages1Gi": 0})

    def sync(self, **changed: Any) -> dict[str, Any]:
        """Report once; the first sync opens the session and is repeated, so that its report counts."""
        answer = self._post(**changed)
        if self.session is None or answer.get("stale"):
            self.session = answer["session"]
            answer = self._post(**changed)
        return answer

    def follow(self) -> None:
        """Do what it is told: bind what is desired bound, withdraw what is desired withdrawn, and report that."""
        for told in self.sync()["allocations"]:
            name, desired = told["reservationId"], told["desired"]
            if desired == "bound" and told["binding"] in ("node", "kubernetes"):
                self.holds[name] = "bound"
            elif desired == "withdrawn":
                self.holds[name] = "withdrawing" if self.pods.get(name) else "withdrawn"
        self.sync()
        self.holds = {k: v for k, v in self.holds.items() if v != "withdrawn"}

    def _post(self, **changed: Any) -> dict[str, Any]:
        self.sequence += 1
        report: dict[str, Any] = {
            "nodeId": self.id,
            "bootId": self.boot_id,
            "sequence": self.sequence,
            "software": {"version": "1.0.0"},
            "devices": [self.device(position) for position in range(self.gpus)],
            "allocations": [
                {"reservationId": k, "state": v, "holders": self.pods.get(k, 0)} for k, v in sorted(self.holds.items())
            ],
        }
        if self.host is not None:
            report["host"] = self.host
        if self.session is not None:
            report["session"] = self.session
        return self.api("nodes/sync", **(report | changed)).data

    def device(self, position: int, **changed: Any) -> dict[str, Any]:
        """A GPU as it reports it."""
        shown = {
            "position": position,
            "uuid": f"GPU-{self.name}-{position}",
            "model": "h100-sxm-80g",
            "memoryMiB": 81920,
            "health": "ok",
        }
        if self.mig:
            shown["mig"] = [
                {"uuid": f"MIG-{self.name}-{position}-{index}", "profile": profile, "index": index}
                for index, profile in enumerate(self.mig)
            ]
        if self.slots is not None:
            shown["slots"] = self.slots
        return shown | changed


@dataclass(frozen=True)
class Founded:
    """Who there is before a test begins: principal ids and tokens by name."""

    people: dict[str, tuple[str, str, str]]

    @classmethod
    def now(cls) -> "Founded":
        """Found the platform, the tenants acme and globex, and their people, through the API."""
        token = ensure_platform(now=compute_now()).token
        assert token
        people = {"admin": ("", token, "platform")}
        admin = Api(token, "platform")
        for tenant in ("acme", "globex"):
            made = admin.iam("tenants/create", id=tenant, name=tenant.title(), admin={"name": "root"}).data
            people[tenant] = (made["admin"]["id"], made["token"], tenant)
        for tenant, name, role in (
            ("acme", "ann", "reserver"),
            ("acme", "bob", "reserver"),
            ("acme", "vic", "viewer"),
            ("globex", "gil", "reserver"),
        ):
            person = new_person(Api(people[tenant][1], tenant), name, role)
            people[name] = (person.id, person.api.token, tenant)
        return cls(people)

    def stands(self) -> bool:
        """Whether it is in the database: a test with transactions of its own empties the tables."""
        return Tenant.objects.filter(id="globex").exists()


def new_person(admin: Api, name: str, *roles: str, kind: str = "user", **key: Any) -> Person:
    """A new principal of the administrator's tenant, with a key."""
    made = admin.iam("principals/create", kind=kind, name=name, roles=list(roles)).data["principal"]
    token = admin.iam("keys/create", principalId=made["id"], **key).data["token"]
    return Person(made["id"], Api(token, admin.tenant_id))


class World:
    """Built through the API alone, as an operator and two tenants would."""

    def __init__(self, founded: Founded) -> None:
        people = {name: Person(id_, Api(token, tenant)) for name, (id_, token, tenant) in founded.people.items()}
        self.admin = people["admin"].api
        self.acme = people["acme"]
        self.globex = people["globex"]
        self.ann = people["ann"]
        self.bob = people["bob"]
        self.vic = people["vic"]
        self.gil = people["gil"]
        self.nodes: list[SimNode] = []

    def person(self, admin: Person, name: str, *roles: str, kind: str = "user", **key: Any) -> Person:
        """A new principal of the admin's tenant, with a key."""
        return new_person(admin.api, name, *roles, kind=kind, **key)

    def agent(
        self, sponsor: Person, name: str = "robot", *, key: dict[str, Any] | None = None, **fields: Any
    ) -> Person:
        """An agent of this sponsor, with a key; ``key`` are fields of ``keys/create``."""
        made = sponsor.api.iam("agents/create", name=name, **fields).data["agent"]
        token = sponsor.api.iam("keys/create", principalId=made["id"], **(key or {})).data["token"]
        return Person(made["id"], Api(token, sponsor.api.tenant_id))

    def session(
        self,
        agent: Person,
        user: Person,
        scopes: Sequence[str] = ("compute:*",),
        confirm: Sequence[str] = (),
        *,
        assume: dict[str, Any] | None = None,
        **grant: Any,
    ) -> Session:
        """The user grants a delegation, and the agent assumes it; ``assume`` are fields of that second call."""
        fields = {"agentId": agent.id, "scopes": list(scopes), "confirm": list(confirm), **grant}
        granted = user.api.iam("delegations/grant", **fields).data["delegation"]
        return self.assume(agent, granted["id"], **(assume or {}))

    def assume(self, agent: Person, delegation_id: str, **fields: Any) -> Session:
        """Another session of a delegation that is there."""
        assumed = agent.api.iam("delegations/assume", delegationId=delegation_id, **fields).data
        return Session(assumed["token"], assumed["session"])

    def pool(self, name: str = "h100", *, owner: Api | None = None, **fields: Any) -> str:
        """A pool of whole GPUs, by default the platform's; returns its id."""
        shape = {"name": name, "region": "eu-north", "gpuModel": "h100-sxm-80g", "deviceClass": "gpu"}
        policy = {"tenantRoot": "/srv/tenants"}
        made = (owner or self.admin)("pools/create", **({**shape, "policy": policy} | fields)).data
        return str(made["pool"]["id"])

    def offer(self, pool_id: str, to: str, *, owner: Api | None = None, gpu: int = 1_000, **fields: Any) -> Answer:
        """Offer the pool to a tenant."""
        return (owner or self.admin)("pools/offer", poolId=pool_id, toTenantId=to, resources={"gpu": gpu}, **fields)

    def node(self, pool_id: str, *, gpus: int = 8, **of: Any) -> SimNode:
        """A node of the pool that has reported its devices; ``mig``, ``slots`` and ``host`` as SimNode has them."""
        name = f"node-{len(self.nodes) + 1}"
        made = self.admin("nodes/register", name=name, poolId=pool_id, positions=max(gpus, 1)).data
        node = SimNode(made["node"]["id"], name, Api(made["token"], "platform"), gpus, **of)
        self.nodes.append(node)
        node.sync()
        return node

    def offered_pool(self, *, nodes: int = 1, gpus: int = 8, quota: int = 1_000, **fields: Any) -> str:
        """A pool with nodes, offered to both tenants."""
        pool_id = self.pool(**fields)
        for tenant in ("acme", "globex"):
            self.offer(pool_id, tenant, gpu=quota)
        for _ in range(nodes):
            self.node(pool_id, gpus=gpus)
        return pool_id


def request(pool_id: str, gpus: int = 1, **changed: Any) -> dict[str, Any]:
    """A valid create, an hour from now on."""
    return {
        "poolId": pool_id,
        "devices": {"class": "gpu", "count": gpus},
        "durationSeconds": 3600,
        "idempotencyKey": fresh_key(),
    } | changed
