"""What the chapters are told with: the people, the ground, and how somebody asks, follows and gives back."""

import contextlib
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from computeplatform.demo.client import Api, Caller, Deviation, Refused, until
from computeplatform.demo.telling import Teller, clock, state

HOUR = 3_600
HOUR_MS = 1_000 * HOUR
# How long the platform may take for anything; on an idle machine each takes well under a second.
PATIENCE = 20.0
FEWEST_NODES = 3


@dataclass(frozen=True)
class Platform:
    """What the story is given to begin with: the platform's administrator and a pool with nodes."""

    tenant_id: str
    token: str
    pool_id: str


@dataclass(frozen=True)
class Ground:
    """Where the story plays: so many free nodes with so many GPUs each."""

    pool_id: str
    nodes: int
    gpus: int
    names: Mapping[str, str]


def free_ground(operator: Caller, pool_id: str, wanted: int) -> Ground:
    """The pool's free nodes, once there are so many; raises Deviation if there never are."""

    def free_nodes() -> list[Any]:
        found = operator("nodes/list", poolId=pool_id, limit=200)["nodes"]
        ready = [n for n in found if n["state"] == "ready" and n["devices"] and not n["cordoned"] and not n["taints"]]
        return [node for node in ready if not node["allocations"]]

    free = until(free_nodes, lambda nodes: len(nodes) >= wanted, seconds=PATIENCE, what=f"{wanted} free nodes")
    gpus = min(len(node["devices"]) for node in free)
    return Ground(pool_id, len(free), gpus, {node["id"]: node["name"] for node in free})


class Scene:
    """Who acts, where, and what has come of it so far."""

    acme_admin: Caller
    globex_admin: Caller
    ann: Caller
    gil: Caller
    training: Any  # ann's first reservation, as it was last seen; it runs until the end

    def __init__(self, api: Api, teller: Teller, operator: Caller, ground: Ground) -> None:
        self.api, self.teller, self.operator, self.ground = api, teller, operator, ground
        self.names: dict[str, str] = {}  # of people and reservations, by id
        self.expected: dict[str, list[str]] = {}  # what must have happened to ann's reservations, by id
        self._run = secrets.token_hex(3)
        self._made: dict[str, Caller] = {}  # whose the reservations are that are to be given back, by id

    # --- People -------------------------------------------------------------------------------------------------------

    def tenant(self, name: str, title: str) -> Caller:
        """A new tenant and its administrator; where the name is taken, with a suffix."""
        admin = {"name": f"{name}-admin"}
        self.teller.call("platform", "tenants/create", name)
        try:
            made = self.operator.iam("tenants/create", id=name, name=title, admin=admin)
        except Refused as refusal:
            if refusal.error["code"] != "CONFLICT":
                raise
            made = self.operator.iam("tenants/create", id=f"{name}-{self._run}", name=title, admin=admin)
        return Caller(self.api, admin["name"], made["tenant"]["id"], made["token"])

    def reserver(self, admin: Caller, name: str, group: str) -> Caller:
        """A new user who may reserve, with a key."""
        self.teller.call(admin.name, "principals/create, keys/create", name)
        made = admin.iam("principals/create", kind="user", name=name, roles=["reserver"], groups=[group])["principal"]
        token = admin.iam("keys/create", principalId=made["id"], name="laptop")["token"]
        return Caller(self.api, name, admin.tenant_id, token)

    # --- Asking -------------------------------------------------------------------------------------------------------

    def whole_nodes(self, nodes: int = 1, **more: Any) -> dict[str, Any]:
        """A request for nodes with all their GPUs, bound by the nodes themselves."""
        return self.gpus(self.ground.gpus, nodes=nodes, binding="node", **more)

    def gpus(self, count: int, *, hours: int = 2, nodes: int = 1, **more: Any) -> dict[str, Any]:
        """A request for so many GPUs on each of so many nodes."""
        asked = {"poolId": self.ground.pool_id, "devices": {"class": "gpu", "count": count}}
        return asked | {"nodes": nodes, "durationSeconds": hours * HOUR} | more

    def create(self, caller: Caller, name: str, asked: dict[str, Any]) -> Any:
        """Create, tell what was answered, and remember to give it back."""
        self.tell_request(caller, name, asked)
        started = time.monotonic()
        made = self.send(caller, name, asked)["reservation"]
        took = 1_000 * (time.monotonic() - started)
        self.remember(caller, name, made, f"answered in {took:.0f} ms")
        return made

    def send(self, caller: Caller, name: str, asked: dict[str, Any]) -> Any:
        """The call itself; of one name it is always the same key."""
        return caller("reservations/create", idempotencyKey=f"{name}-{self._run}", name=name, **asked)

    def remember(self, caller: Caller, name: str, made: Any, words: str) -> None:
        """Tell what a create has answered, and note whose it is."""
        if made["id"] not in self.names:
            self._made[made["id"]] = caller
            self.names[made["id"]] = name
            if caller is self.ann:
                self.expected[made["id"]] = []
        where = f" on {self.places(made)}" if "placement" in made else ""
        self.teller.answer(f"{state(made['state'])}{where}  [dim]{made['id']}, {words}[/]")

    def refused(self, caller: Caller, name: str, code: str, asked: dict[str, Any]) -> Refused:
        """Create what is to be refused, and tell how."""
        self.tell_request(caller, name, asked)
        key = f"{name}-{self._run}"
        refusal = caller.refused("reservations/create", code, idempotencyKey=key, name=name, **asked)
        self.teller.refusal(refusal.status, refusal.error)
        return refusal

    def tell_request(self, caller: Caller, name: str, asked: dict[str, Any]) -> None:
        """What is asked for, in words."""
        gang = f" on each of {asked['nodes']} nodes" if asked["nodes"] > 1 else ""
        gpus = f"{asked['devices']['count']} GPU{'s' if asked['devices']['count'] > 1 else ''}"
        words = f"{name}: {gpus}{gang} for {asked['durationSeconds'] // HOUR} hours"
        for member in ("startsAt", "spot", "priority", "resources", "leaseSeconds", "wait", "dryRun"):
            words += f", {member}{_shown(member, asked[member])}" if member in asked else ""
        self.teller.call(caller.name, "reservations/create", words)

    # --- Following ----------------------------------------------------------------------------------------------------

    def follow(self, caller: Caller, made: Any, goal: str) -> Any:
        """Look until the reservation is there; tell each state on the way with what the platform does meanwhile.

        Each look is held by the server until there is something new to see. What happens to ann's is expected again
        from the events.
        """
        late = time.monotonic() + PATIENCE
        seen, found = made, None
        while seen["state"] != goal or found is None:
            if time.monotonic() > late:
                raise Deviation(f"after {PATIENCE:.0f} s {made['name']} is not {goal}. Last seen: {seen}")
            wait = {"until": "changed", "version": seen["version"], "timeoutMs": 0 if seen["state"] == goal else 5_000}
            found = caller("reservations/get", reservationId=made["id"], wait=wait)
            before, seen, operation = seen["state"], found["reservation"], found["operation"]
            if seen["state"] != before:
                words = f"operation {operation['kind']}: {operation['status']}, step {operation['step']}"
                where = f" on {self.places(seen)}" if seen["state"] == "placed" else ""
                self.teller.answer(f"{state(seen['state'])}{where}  [dim]{words}[/]")
        return found

    def happened(self, made: Any, *kinds: str) -> None:
        """These events of ann's reservation must be found at the end, after those noted before."""
        self.expected[made["id"]] += kinds

    def places(self, reservation: Any) -> str:
        """The names of the nodes that it is placed on."""
        return listed({part["nodeId"]: self.ground.names.get(part["nodeId"], "?") for part in reservation["placement"]})

    def quota(self, caller: Caller, resource: str = "gpu") -> Any:
        """What the caller's tenant may use of the pool, and uses."""
        rows = caller("quotas/list", poolId=self.ground.pool_id)["quotas"]
        return next(row for row in rows if row["resource"] == resource)

    @property
    def ann_id(self) -> str:
        """ann's principal."""
        return next(id_ for id_, name in self.names.items() if name == self.ann.name)

    # --- Giving back --------------------------------------------------------------------------------------------------

    def release(self, made: Any) -> Any:
        """Its owner releases it, whatever became of it meanwhile."""
        caller = self._made.pop(made["id"])
        released = caller("reservations/release", reservationId=made["id"])["reservation"]
        expect(released["state"] == "released", f"after release {made['name']} is {released['state']}")
        if caller is self.ann:
            self.happened(made, "released")
        return released

    def forget(self, made: Any) -> None:
        """It has ended by itself: there is nothing to give back."""
        self._made.pop(made["id"])

    def cancel(self, made: Any) -> None:
        """Its owner cancels what has not started."""
        caller = self._made.pop(made["id"])
        self.teller.call(caller.name, "reservations/cancel", made["name"])
        cancelled = caller("reservations/cancel", reservationId=made["id"])["reservation"]
        expect(cancelled["state"] == "cancelled", f"after cancel {made['name']} is {cancelled['state']}")
        self.teller.answer(state("cancelled"))
        if caller is self.ann:
            self.happened(made, "cancelled")

    @contextlib.contextmanager
    def taken_back_by(self, method: str, words: str, **fields: Any) -> Iterator[None]:
        """What the operator has done is taken back by this call, also where the story breaks off before."""
        try:
            yield
        finally:
            self.teller.call("platform", method, words)
            self.operator(method, **fields)

    def give_back(self) -> None:
        """Whatever a story that broke off has left: a server that goes on must not be left with it."""
        for reservation_id, caller in self._made.items():
            with contextlib.suppress(Deviation, Refused):
                caller("reservations/release", reservationId=reservation_id)


def _shown(member: str, value: Any) -> str:
    """A member of a request; of one that is true, its name says it."""
    if isinstance(value, dict):
        return " " + ", ".join(f"{name} {amount}" for name, amount in value.items())
    return "" if value is True else f" {clock(value) if member == 'startsAt' else value}"


def listed(names: Mapping[str, str]) -> str:
    """The names in order."""
    return ", ".join(sorted(names.values()))


def expect(holds: object, otherwise: str) -> None:
    """Raise Deviation unless it is so."""
    if not holds:
        raise Deviation(otherwise)
