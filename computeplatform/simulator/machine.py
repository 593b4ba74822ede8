"""One simulated machine: what it is, what it holds, and how it follows an answer (NOD-8). No network, no clock.

The state is all that a node remembers; whatever is reported has been stored before, so a killed process comes back as
the node that it was.
"""

import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

BOUND = "bound"
WITHDRAWING = "withdrawing"
WITHDRAWN = "withdrawn"

# A device is held until its withdrawal is complete, and only then another allocation can have it.
_HOLDING = (BOUND, WITHDRAWING)


@dataclass(frozen=True)
class Hardware:
    """What the machine is and never changes by itself: GPUs, and the amounts of its host that can be booked."""

    node_id: str
    token: str = field(repr=False)
    positions: int
    model: str
    memory_mib: int
    host: Mapping[str, int]

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> "Hardware":
        """One entry of the nodes file: ``{nodeId, token, positions | gpus, model?, memoryMiB?, host?}``."""
        return cls(
            node_id=entry["nodeId"],
            token=entry["token"],
            positions=entry["positions"] if "positions" in entry else entry["gpus"],
            model=entry.get("model", "h100-sxm-80g"),
            memory_mib=entry.get("memoryMiB", 81_920),
            host=entry.get("host", {}),
        )

    def devices(self) -> list[dict[str, Any]]:
        """The devices as a report lists them; a uuid belongs to the node and the position for ever."""
        return [
            {
                "position": position,
                "uuid": f"GPU-{uuid.uuid5(uuid.NAMESPACE_URL, f'{self.node_id}/{position}')}",
                "model": self.model,
                "memoryMiB": self.memory_mib,
                "health": "ok",
            }
            for position in range(self.positions)
        ]


@dataclass
class Holding:
    """What the node holds, or held, for one reservation. ``until`` is epoch milliseconds."""

    state: str
    positions: list[int]
    resources: dict[str, int]
    until: int


@dataclass
class State:
    """What survives a killed process: only a reboot of the machine makes another ``boot_id``."""

    boot_id: str
    session: int | None = None
    sequence: int = 0
    heartbeat_seconds: int = 10
    holdings: dict[str, Holding] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> "State":
        """What the node remembers; a node that remembers nothing has just been booted."""
        try:
            stored = json.loads(path.read_text())
        except FileNotFoundError:
            return cls(boot_id=f"boot-{uuid.uuid4()}")
        holdings = {name: Holding(**held) for name, held in stored.pop("holdings").items()}
        return cls(**stored, holdings=holdings)

    def save(self, path: Path) -> None:
        """Replace the file as a whole, so that no kill leaves half of it."""
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(asdict(self), indent=1))
        temporary.replace(path)


class Machine:
    """The node's software: composes reports and follows answers."""

    def __init__(self, hardware: Hardware, state: State) -> None:
        self.hardware = hardware
        self.state = state

    def report(self) -> dict[str, Any]:
        """The next message; complete, so that it says everything even if all before were lost."""
        self.state.sequence += 1
        message: dict[str, Any] = {
            "tenantId": "platform",
            "nodeId": self.hardware.node_id,
            "bootId": self.state.boot_id,
            "sequence": self.state.sequence,
            "software": {"name": "bcd-simulator", "version": "0.1.0"},
            "devices": self.hardware.devices(),
            "allocations": [
                {"reservationId": name, "state": held.state, "holders": 1 if held.state in _HOLDING else 0}
                for name, held in sorted(self.state.holdings.items())
            ],
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
            if held.state in _HOLDING and held.until <= now:
                held.state = WITHDRAWN
                done.append(f"withdraws {name} at its end")
        return done

    def _finish(self, told: Mapping[str, Any]) -> list[str]:
        """What was being withdrawn is withdrawn by now; what is withdrawn and no longer asked about is forgotten."""
        done = []
        for name, held in list(self.state.holdings.items()):
            if held.state == WITHDRAWING:
                held.state = WITHDRAWN
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
        return item["desired"] == BOUND and _positions(item) == held.positions

    def _bind(self, name: str, item: Mapping[str, Any], *, now: int) -> list[str]:
        held = self.state.holdings.get(name)
        if held is not None and held.state == BOUND:
            held.until, held.resources = item["until"], item["resources"]
            return []
        if (held is not None and held.state == WITHDRAWING) or item["until"] <= now:
            return []
        if not self._free(_positions(item)) or not self._fits(item["resources"]):
            return []
        self.state.holdings[name] = Holding(BOUND, _positions(item), item["resources"], item["until"])
        return [f"binds {name} on {', '.join(map(str, _positions(item)))}"]

    def _free(self, positions: Iterable[int]) -> bool:
        held = {p for holding in self.state.holdings.values() if holding.state in _HOLDING for p in holding.positions}
        return all(p not in held and p < self.hardware.positions for p in positions)

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


def _positions(item: Mapping[str, Any]) -> list[int]:
    return sorted(device["position"] for device in item["devices"])
