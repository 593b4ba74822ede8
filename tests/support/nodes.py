"""Nodes that fail: what tests of lost nodes and sick devices do to the simulated ones."""

from collections.abc import Collection
from typing import Any

from fleet import reconcilers as fleet
from reservations import reconcilers
from tests.support.clock import Clock
from tests.support.world import SimNode, World


def on(world: World, reservation: dict[str, Any]) -> list[SimNode]:
    """The nodes on which the reservation is placed."""
    ids = [part["nodeId"] for part in reservation["placement"]]
    return [node for id_ in ids for node in world.nodes if node.id == id_]


def tick() -> None:
    """What the loops do in a second: judge silence, then whatever follows from it."""
    fleet.silence_tick()
    reconcilers.reconcile_tick()


def pass_time(clock: Clock, *alive: SimNode, seconds: int, step: int = 10) -> None:
    """Time goes on; these nodes report in every step, the others are silent."""
    for _ in range(seconds // step):
        clock.advance(seconds=step)
        for node in alive:
            node.follow()
        tick()


def lose(world: World, clock: Clock, *gone: SimNode, seconds: int = 30) -> int:
    """Ten seconds from now these nodes fall silent, and are lost; returns their last contact."""
    at = clock.advance(seconds=10)
    for node in world.nodes:
        node.sync()
    pass_time(clock, *(node for node in world.nodes if node not in gone), seconds=seconds)
    return at


def fall_sick(node: SimNode, *positions: int, health: str = "unhealthy") -> None:
    """The node reports these devices so, and the others well."""
    node.sync(devices=devices(node, positions, health))


def devices(node: SimNode, positions: Collection[int], health: str = "unhealthy") -> list[dict[str, Any]]:
    """The node's devices, these with that health."""
    return [node.device(p, health=health) if p in positions else node.device(p) for p in range(node.gpus)]


def condition(reservation: dict[str, Any], type_: str) -> dict[str, Any] | None:
    """The condition of that type, if there is one."""
    return next((one for one in reservation["conditions"] if one["type"] == type_), None)
