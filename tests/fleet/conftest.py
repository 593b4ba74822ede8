"""Builders for the fleet's tests."""

from typing import Any

import pytest
from django.db import transaction

from fleet.contracts import AllocatedDevice, NewAllocation
from fleet.models import Allocation
from fleet.operations import allocations
from tests.support.world import Founded, World


class Desire:
    """What reservations does to a node, without a reservation: the fleet does not look at any."""

    def __init__(self, node_id: str, pool_id: str) -> None:
        self.node_id, self.pool_id = node_id, pool_id

    def plan(self, *names: str, position: int = 0, **changed: Any) -> None:
        with transaction.atomic():
            allocations.plan([self.new(name, position=position, **changed) for name in names])

    def new(self, name: str, *, position: int = 0, **changed: Any) -> NewAllocation:
        values: dict[str, Any] = {
            "tenant_id": "acme",
            "binding": "node",
            "devices": (AllocatedDevice(position, f"GPU-{position}", "gpu"),),
            "resources": {"vcpuMilli": 1500, "memoryMiB": 4096},
            "until": 10**15,
        } | changed
        return NewAllocation(reservation_id=name, pool_id=self.pool_id, node_id=self.node_id, **values)

    def bind(self, *names: str) -> int:
        with transaction.atomic():
            return allocations.bind(names, now=1)

    def withdraw(self, *names: str) -> int:
        with transaction.atomic():
            return allocations.withdraw(names, now=1)

    def until(self, name: str, instant: int) -> int:
        with transaction.atomic():
            return allocations.until({name: instant})

    @staticmethod
    def rows() -> dict[str, tuple[str, str]]:
        """Reservation id to (desired, observed)."""
        return {row.reservation_id: (row.desired, row.observed) for row in Allocation.objects.all()}


@pytest.fixture
def committed_world(_founded, transactional_db):
    """The same world for tests of several connections: what they write is committed, and truncated at the end."""
    return World(_founded if _founded.stands() else Founded.now())


@pytest.fixture
def site(world):
    """A pool with one node of 8 GPUs that has reported once, and the hand on its desired state.

    What the tests ask of the node has no reservation behind it, so nothing may be left when the invariants are read.
    """
    pool_id = world.pool()
    node = world.node(pool_id)
    yield node, Desire(node.id, pool_id)
    Allocation.objects.all().delete()
