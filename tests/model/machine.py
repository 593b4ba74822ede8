"""Random calls, ticks, moves of the clock, reports of nodes and deaths of workers, against the real database."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from django.db import transaction
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from computeplatform.clock import compute_now
from computeplatform.invariants import violations
from fleet import reconcilers as fleet
from reservations import queries, reconcilers
from reservations.operations.admission import admit_decided, decide_drafts
from tests.model.reference import BOOKED, LIVE, Reference
from tests.support.api import Api
from tests.support.clock import Clock
from tests.support.world import SimNode, World, fresh_key

GPUS = 4
QUOTA = 9
whole = st.integers(0, 10_000)


REQUESTS = st.fixed_dictionaries(
    {
        "of_globex": st.booleans(),
        "count": st.integers(1, GPUS),
        "nodes": st.sampled_from([1, 1, 1, 2]),
        "spot": st.booleans(),
        "length": st.sampled_from([30, 120, 900]),
        "later": st.sampled_from([None, None, 40, 300]),
        "binding": st.sampled_from(["hold", "node", "kubernetes"]),
        "lease": st.sampled_from([None, None, 60]),
        "priority": st.sampled_from([None, 10, 50]),
        "dies": st.sampled_from([None, None, None, "before", "decided"]),
    }
)


class Died(Exception):
    """A worker is gone in the middle of what it did."""


def dying(work: Callable[[], object]) -> None:
    """Do the work in a transaction that is never committed: all that a killed worker leaves of one."""
    with suppress(Died), transaction.atomic():
        work()
        raise Died


def tick() -> None:
    """What the loops do each second."""
    fleet.silence_tick()
    reconcilers.admission_tick()
    reconcilers.reconcile_tick()


class Platform(RuleBasedStateMachine):
    """One pool of two nodes with four GPUs, owned by acme and offered to globex, and the people of both."""

    world: World
    clock: Clock

    def __init__(self) -> None:
        super().__init__()
        self._before = transaction.savepoint()
        self._began = self.clock.now
        self.model = Reference()
        self.keys: dict[str, tuple[Api, dict[str, Any], str]] = {}
        world = self.world
        policy = {"tenantRoot": "/srv", "kubernetes": {"cluster": "c"}, "nodeLostGraceSeconds": 60}
        self.pool = world.pool(f"model-{fresh_key()}", owner=world.acme.api, policy=policy)
        world.offer(self.pool, "globex", owner=world.acme.api, gpu=QUOTA)
        self.nodes = [world.node(self.pool, gpus=GPUS) for _ in range(2)]
        self.silent: set[str] = set()
        self.sick: dict[str, set[int]] = {}

    def teardown(self) -> None:
        transaction.savepoint_rollback(self._before)
        self.clock.set(self._began)
        self.world.nodes.clear()

    # --- Callers ------------------------------------------------------------------------------------------------------

    @initialize(asked=st.lists(REQUESTS, min_size=2, max_size=5))
    def some_are_there(self, asked: list[dict[str, Any]]) -> None:
        for one in asked:
            self.create(**one)

    # A rule is chosen as often as any other, and without reservations there is no story: so there are two of these.
    @rule(asked=REQUESTS)
    def ask(self, asked: dict[str, Any]) -> None:
        self.create(**asked)

    @rule(asked=st.lists(REQUESTS, min_size=2, max_size=3))
    def ask_more(self, asked: list[dict[str, Any]]) -> None:
        for one in asked:
            self.create(**one)

    def create(self, of_globex: bool, dies: str | None, **of: Any) -> None:
        caller = self.world.gil.api if of_globex else self.world.ann.api
        asked = self._request(of_globex=of_globex, **of)
        fits = self._foreseen(caller.tenant_id, asked)
        caller.work = {None: caller.work, "before": lambda: None, "decided": self._decide_only}[dies]
        try:
            answer = caller("reservations/create", **asked)
        finally:
            caller.work = Api("", "").work
        got = answer.body["data"]["reservation"]["state"] if answer.status == 200 else answer.error["code"]
        self.keys[asked["idempotencyKey"]] = (caller, asked, got)
        assert got in ({"UNAVAILABLE"} if dies else fits), (asked, answer.body)

    @rule(which=whole)
    @precondition(lambda self: self.keys)
    def ask_again(self, which: int) -> None:
        """The same key: what is stored, or, of a draft that rests, another try."""
        key = sorted(self.keys)[which % len(self.keys)]
        caller, asked, was = self.keys[key]
        before = len(self.model.claims)
        answer = caller("reservations/create", **asked)
        if was in LIVE:
            assert answer.data["reservation"]["id"] in self.model.claims
            self._look()
            assert len(self.model.claims) == before
        elif answer.status == 200:
            self.keys[key] = (caller, asked, answer.data["reservation"]["state"])
        else:
            assert answer.error["code"] in ("QUOTA_EXCEEDED", "INVALID_INPUT"), answer.body

    @rule(which=whole, how=st.sampled_from(["release", "cancel"]))
    @precondition(lambda self: self.model.claims)
    def end(self, which: int, how: str) -> None:
        name, caller = self._one(which)
        was = self.model.claims[name].shown["state"]
        answer = caller(f"reservations/{how}", reservationId=name)
        if how == "release":
            assert answer.data["reservation"]["state"] in ("released", "cancelled")
        elif was in ("pending", "placed", "cancelled"):
            assert answer.data["reservation"]["state"] == "cancelled"
        else:
            answer.refused("INVALID_STATE")

    @rule(which=whole, by=st.sampled_from([1, 60_000, 600_000]))
    @precondition(lambda self: self.model.claims)
    def extend(self, which: int, by: int) -> None:
        name, caller = self._one(which)
        before = self.model.claims[name].shown
        answer = caller("reservations/extend", reservationId=name, by=by)
        if before["state"] not in BOOKED:
            answer.refused("INVALID_STATE")
        elif answer.status == 200 and answer.data["extended"]:
            shown = answer.data["reservation"]
            assert shown["endsAt"] == before["endsAt"] + by
            self.model.extended(shown)
        elif answer.status == 200:
            assert before["endsAt"] <= answer.data["availableUntil"] < before["endsAt"] + by
        else:
            answer.refused("INVALID_STATE")

    @rule(which=whole)
    @precondition(lambda self: self.model.claims)
    def renew(self, which: int) -> None:
        name, caller = self._one(which)
        before = self.model.claims[name].shown
        answer = caller("reservations/renew", reservationId=name)
        if before["state"] not in BOOKED or "leaseSeconds" not in before:
            answer.refused("INVALID_STATE")
        elif answer.status == 200:
            assert answer.data["reservation"]["version"] == before["version"]
            self.model.renewed(answer.data["reservation"], now=self.clock.now)
        else:
            # It had lapsed, and no tick has come by yet.
            answer.refused("INVALID_STATE")

    # --- Time and workers ---------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([1, 9, 35, 130, 1_000]))
    def time_passes(self, seconds: int) -> None:
        self.clock.advance(seconds=seconds)
        self._nodes_report()
        tick()
        self._nothing_is_overdue()

    @rule()
    def workers_place_what_waits(self) -> None:
        """After it nothing waits that could have been placed and has nobody before it."""
        tick()
        reconcilers.placement_tick()
        reconcilers.placement_tick()
        self._look()
        waiting = [self.model.claims[name].shown for name in self.model.in_state("pending")]
        if len(waiting) == 1:
            [one] = waiting
            room = self.model.fits(one, self._bookable(), now=self.clock.now)
            assert not room, f"it waits and there is room for it: {one}"

    @rule(what=st.sampled_from([tick, reconcilers.placement_tick, 40, 400]))
    def misfortune(self, what: Callable[[], None] | int) -> None:
        """A worker dies in the middle of a pass, or all of our service is away for some seconds."""
        if not isinstance(what, int):
            dying(what)
            return
        self.clock.outage(seconds=what)
        self.model.lost_time()
        tick()
        self._nothing_is_overdue()
        self._nodes_report()

    # --- Nodes --------------------------------------------------------------------------------------------------------

    @rule(
        which=st.integers(0, 1),
        what=st.sampled_from(
            ["silent", "speaks", "speaks", "reboots", "sick", "well", "pods", "no pods", "cordon", "uncordon", "drain"]
        ),
    )
    def node(self, which: int, what: str) -> None:
        node = self.nodes[which]
        match what:
            case "silent":
                self.silent.add(node.id)
                return
            case "speaks":
                self.silent.discard(node.id)
            case "reboots":
                node.boot_id, node.sequence, node.session = f"boot-{fresh_key()}", 0, None
                node.holds, node.pods = {}, {}
            case "sick":
                self.sick[node.id] = {0}
            case "well":
                self.sick.pop(node.id, None)
            case "pods":
                node.pods = {name: 1 for name, state in node.holds.items() if state == "bound"}
            case "no pods":
                node.pods = {}
            case _:
                assert self.world.admin(f"nodes/{what}", nodeId=node.id).data
        self._nodes_report()

    # --- What holds ---------------------------------------------------------------------------------------------------

    @invariant()
    def all_is_well(self) -> None:
        self._look()
        for tenant in ("acme", "globex"):
            assert self._used(tenant) == self.model.used(tenant), tenant
        assert violations([self.pool]) == []

    def _look(self) -> None:
        seen = []
        for api, scope in self._readers():
            seen += api("reservations/list", limit=200, poolId=self.pool, scope=scope).data["reservations"]
        assert list(self.model.look(seen, now=self.clock.now)) == []

    def _nothing_is_overdue(self) -> None:
        self._look()
        assert list(self.model.overdue(now=self.clock.now)) == []

    def _used(self, tenant_id: str) -> int:
        asked = {} if tenant_id == "acme" else {"ofTenantId": tenant_id}
        rows = self.world.acme.api("quotas/list", poolId=self.pool, **asked).data["quotas"]
        return next(row["used"] for row in rows if row["resource"] == "gpu" and row["tenantId"] == tenant_id)

    def _one(self, which: int) -> tuple[str, Api]:
        name = sorted(self.model.claims)[which % len(self.model.claims)]
        return name, self._owner(name)

    def _owner(self, name: str) -> Api:
        of_acme = self.model.claims[name].shown["tenantId"] == "acme"
        return (self.world.ann if of_acme else self.world.gil).api

    def _readers(self) -> list[tuple[Api, str]]:
        """Who between them sees everything, each with a scope of lists."""
        return [(self.world.ann.api, "mine"), (self.world.gil.api, "mine")]

    def _request(self, *, of_globex: bool, count: int, nodes: int, spot: bool, length: int, later: int | None,
                 binding: str, lease: int | None, priority: int | None) -> dict[str, Any]:  # fmt: skip
        asked: dict[str, Any] = {
            "poolId": self.pool,
            "devices": {"class": "gpu", "count": count},
            "nodes": nodes,
            "spot": spot,
            "durationSeconds": length,
            "binding": "node" if of_globex and binding == "kubernetes" else binding,
            "idempotencyKey": fresh_key(),
        }
        if later is not None:
            asked["startsAt"] = self.clock.now + later * 1000
        if lease is not None:
            asked["leaseSeconds"] = lease
        if priority is not None:
            asked["priority"] = priority
        return asked

    def _foreseen(self, tenant_id: str, asked: dict[str, Any]) -> set[str]:
        """What the model says of a create: one outcome where it knows, several where others wait or spot work is."""
        self._look()
        devices = asked["devices"]["count"] * asked["nodes"]
        if tenant_id == "globex" and self.model.used("globex") + devices > QUOTA:
            return {"QUOTA_EXCEEDED"}
        would = {"requested": asked, "devices": asked["devices"], "nodes": asked["nodes"]}
        bookable = self._bookable()
        if not self.model.fits(would, bookable, now=self.clock.now, without_spot=not asked["spot"]):
            return {"pending"}
        if self.model.fits(would, bookable, now=self.clock.now) and not self.model.in_state("pending"):
            return {"placed"}
        return {"placed", "pending"}

    def _bookable(self) -> dict[str, int]:
        """The nodes that take bookings, with the positions of their healthy devices."""
        found = {}
        for node in self.world.admin("nodes/list", poolId=self.pool).data["nodes"]:
            if node["state"] == "ready" and not node["cordoned"] and not node["taints"]:
                found[node["id"]] = sum(1 << d["position"] for d in node["devices"] if d["health"] == "ok")
        return found

    def _nodes_report(self) -> None:
        for node in self.nodes:
            if node.id not in self.silent:
                self._report(node)

    def _report(self, node: SimNode) -> None:
        if sick := self.sick.get(node.id):
            node.sync(devices=[node.device(p, health="unhealthy" if p in sick else "ok") for p in range(GPUS)])
        else:
            node.follow()

    @staticmethod
    def _decide_only() -> None:
        """A worker that dies between the decision and the rest."""
        now = compute_now()
        for pool_id in queries.pools_with_open_drafts(now=now, called_before=now):
            decide_drafts(pool_id=pool_id, now=now)
            dying(lambda pool_id=pool_id: admit_decided(pool_id=pool_id, now=now))  # type: ignore[misc]
