"""One simulated machine: what it is, what it holds, and how it follows an answer (NOD-8). No network, no clock.

The state is all that a node remembers; whatever is reported has been stored before, so a killed process comes back as
the node that it was.
"""

import json
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from computeplatform.simulator.orders import Orders

BOUND = "bound"
WITHDRAWING = "withdrawing"
WITHDRAWN = "withdrawn"

# A device is held until its withdrawal is complete, and only then another allocation can have it.
_HOLDING = (BOUND, WITHDRAWING)


@dataclass(frozen=True)
class Hardware:
    """What the machine is and never changes by itself: GPUs, and the amounts of its host that can be booked.

    ``mig`` are the profiles of the instances that every GPU is divided into, by their place; ``slots`` how many
    workloads may share one.
    """

    node_id: str
    token: str = field(repr=False)
    positions: int
    model: str
    memory_mib: int
    host: Mapping[str, int]
    mig: tuple[str, ...] = ()
    slots: int | None = None

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> "Hardware":
        """One entry of the nodes file: ``{nodeId, token, positions | gpus, model?, memoryMiB?, host?, mig?, slots?}``.

        ``mig`` is a list of profiles, such as seven times ``1g.10gb``; ``slots`` a number.
        """
        return cls(
            node_id=entry["nodeId"],
            token=entry["token"],
            positions=entry["positions"] if "positions" in entry else entry["gpus"],
            model=entry.get("model", "h100-sxm-80g"),
            memory_mib=entry.get("memoryMiB", 81_920),
            host=entry.get("host", {}),
            mig=tuple(entry.get("mig", ())),
            slots=entry.get("slots"),
        )

    def devices(self, sick: Collection[int] = ()) -> list[dict[str, Any]]:
        """The devices as a report lists them; a uuid belongs to the node and the place for ever."""
        return [self._device(position, "unhealthy" if position in sick else "ok") for position in range(self.positions)]

    def _device(self, position: int, health: str) -> dict[str, Any]:
        device: dict[str, Any] = {
            "position": position,
            "uuid": self._uuid("GPU", str(position)),
            "model": self.model,
            "memoryMiB": self.memory_mib,
            "health": health,
        }
        if self.mig:
            device["mig"] = [
                {"uuid": self._uuid("MIG", f"{position}/{index}"), "profile": profile, "index": index}
                for index, profile in enumerate(self.mig)
            ]
        if self.slots is not None:
            device["slots"] = self.slots
        return device

    def _uuid(self, kind: str, place: str) -> str:
        return f"{kind}-{uuid.uuid5(uuid.NAMESPACE_URL, f'{self.node_id}/{place}')}"


@dataclass
class Holding:
    """What the node holds, or held, for one reservation: devices as it was told of them, ``until`` epoch milliseconds.

    ``pods`` are the workloads on them, which have to go before the devices are let go of.
    """

    state: str
    devices: list[dict[str, Any]]
    resources: dict[str, int]
    until: int
    generation: int | None = None
    pods: int = 0


@dataclass
class State:
    """What survives a killed process: only a reboot of the machine makes another ``boot_id``."""

    boot_id: str
    session: int | None = None
    sequence: int = 0
    heartbeat_seconds: int = 10
    holdings: dict[str, Holding] = field(default_factory=dict)
    reboots: int = 0

    @classmethod
    def load(cls, path: Path) -> "State":
        """What the node remembers; a node that remembers nothing has just been booted."""
        try:
            stored = json.loads(path.read_text())
        except FileNotFoundError:
            return cls(boot_id=f"boot-{uuid.uuid4()}")
        # A node of an earlier version has written other members.
        known = Holding.__dataclass_fields__
        holdings = {
            name: Holding(**({"devices": []} | {key: value for key, value in held.items() if key in known}))
            for name, held in stored.pop("holdings").items()
        }
        return cls(**stored, holdings=holdings)

    def save(self, path: Path) -> None:
        """Replace the file as a whole, so that no kill leaves half of it."""
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(asdict(self), indent=1))
        temporary.replace(path)


class Machine:
    """The node's software: composes reports and follows answers. ``orders`` are the faults in force."""

    def __init__(self, hardware: Hardware, state: State) -> None:
        self.hardware = hardware
        self.state = state
        self.orders = Orders()

    def obey(self, orders: Orders) -> list[str]:
        """Take the faults that are ordered; returns in words what was done at once."""
        self.orders = orders
        if orders.reboot <= self.state.reboots:
            return []
        self.state.reboots = orders.reboot
        self.state.boot_id = f"boot-{uuid.uuid4()}"
        self.state.session, self.state.sequence = None, 0
        self.state.holdings.clear()
        return ["boots again and holds nothing"]

    def report(self) -> dict[str, Any]:
        """The next message; complete, so that it says everything even if all before were lost."""
        self.state.sequence += 1
        message: dict[str, Any] = {
            "tenantId": "platform",
            "nodeId": self.hardware.node_id,
            "bootId": self.state.boot_id,
            "sequence": self.state.sequence,
            "software": {"name": "bcd-simulator", "version": "0.1.0"},
            "devices": self.hardware.devices(self.orders.sick),
            "allocations": [_reported(name, held) for name, held in sorted(self.state.holdings.items())],
        }
        if self.hardware.host:
            message["host"] = dict(self.hardware.host)
        if self.state.session is not None:
            message["session"] = self.state.session
        return message

    def follow(self, answer: Mapping[str, Any], *, now: int) -> list[str]:
        """Do what the answer asks, as far as it can be done now; returns in words what was done.

        A stale answer obliges to nothing but to open a new session. The first answer of a session is followed as well:
        what is wanted does not depend on whether our report was read.
        """
        if answer.get("stale"):
            self.state.session = None
            return ["opens a new session"]
        self.state.session = answer["session"]
        self.state.heartbeat_seconds = answer["heartbeatSeconds"]
        told = {item["reservationId"]: item for item in answer["allocations"]}
        done = [*self._finish(told), *self._let_go(told)]
        for name, item in told.items():
            if item["desired"] == BOUND:
                done += self._bind(name, item, now=now)
        return done

    def enforce_ends(self, *, now: int) -> list[str]:
        """Withdraw what has reached its end: the node's own duty while it cannot reach the server."""
        done = []
        for name, held in self.state.holdings.items():
            if held.state in _HOLDING and held.until <= now and self._withdraw(name, held):
                done.append(f"withdraws {name} at its end")
        return done

    def _withdraw(self, name: str, held: Holding) -> bool:
        """Let go of it at once, unless its pods stay; True if anything has changed."""
        before = held.state
        if self.orders.sticks(name):
            held.state = WITHDRAWING
        else:
            held.state, held.pods = WITHDRAWN, 0
        return held.state != before

    def _finish(self, told: Mapping[str, Any]) -> list[str]:
        """What was being withdrawn is withdrawn by now; what is withdrawn and no longer asked about is forgotten."""
        done = []
        for name, held in list(self.state.holdings.items()):
            if held.state == WITHDRAWING:
                if self._withdraw(name, held):
                    done.append(f"has withdrawn {name}")
            elif held.state == WITHDRAWN and name not in told:
                del self.state.holdings[name]
        return done

    def _let_go(self, told: Mapping[str, Any]) -> list[str]:
        done = []
        for name, item in told.items():
            held = self.state.holdings.get(name)
            if held is None and item["desired"] == WITHDRAWN:
                # Never bound here: that is what the server wants to hear.
                self.state.holdings[name] = Holding(WITHDRAWN, [], {}, 0)
                done.append(f"has nothing of {name}")
            elif held is not None and held.state == BOUND and not self._still_wanted(held, item):
                held.state = WITHDRAWING
                done.append(f"withdraws {name}")
        return done

    @staticmethod
    def _still_wanted(held: Holding, item: Mapping[str, Any]) -> bool:
        return bool(item["desired"] == BOUND and item["devices"] == held.devices)

    def _bind(self, name: str, item: Mapping[str, Any], *, now: int) -> list[str]:
        held = self.state.holdings.get(name)
        if held is not None and held.state == BOUND:
            held.until, held.resources, held.generation = item["until"], item["resources"], item.get("generation")
            return []
        if (held is not None and held.state == WITHDRAWING) or item["until"] <= now:
            return []
        if not self._free(item["devices"]) or not self._fits(item["resources"]):
            return []
        self.state.holdings[name] = Holding(
            state=BOUND,
            devices=item["devices"],
            resources=item["resources"],
            until=item["until"],
            generation=item.get("generation"),
            pods=1,
        )
        return [f"binds {name} on {', '.join(str(device['position']) for device in item['devices'])}"]

    def _free(self, wanted: Sequence[Mapping[str, Any]]) -> bool:
        """Whether the devices are here and let go of."""
        held = [d for one in self.state.holdings.values() if one.state in _HOLDING for d in one.devices]
        return all(
            position < self.hardware.positions
            and self._shareable(
                [d for d in held if d["position"] == position], [d for d in wanted if d["position"] == position]
            )
            for position in {d["position"] for d in wanted}
        )

    def _shareable(self, held: Sequence[Mapping[str, Any]], wanted: Sequence[Mapping[str, Any]]) -> bool:
        """Whether a GPU can serve both: whole it serves one, by instances each of them once, by slots so many."""
        classes = {device["class"] for device in (*held, *wanted)}
        if classes == {"slot"}:
            return len(held) + len(wanted) <= (self.hardware.slots or 0)
        if classes == {"mig"}:
            return not {d["uuid"] for d in held} & {d["uuid"] for d in wanted}
        return not held

    def _fits(self, resources: Mapping[str, int]) -> bool:
        """Whether the host has these amounts left beside those of what is held (HST-1)."""
        limits = {
            "vcpuMilli": 1000 * self.hardware.host["vcpu"] if "vcpu" in self.hardware.host else None,
            "memoryMiB": self.hardware.host.get("memoryMiB"),
            "hugepages1Gi": self.hardware.host.get("hugepages1Gi"),
        }
        holding = [held for held in self.state.holdings.values() if held.state in _HOLDING]
        for name, amount in resources.items():
            limit = limits.get(name)
            if limit is not None and amount + sum(held.resources.get(name, 0) for held in holding) > limit:
                return False
        return True


def _reported(name: str, held: Holding) -> dict[str, Any]:
    said = {"reservationId": name, "state": held.state, "holders": held.pods}
    return said if held.generation is None else said | {"generation": held.generation}
