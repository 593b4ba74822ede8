"""Host amounts of what is carried on: never more than the node has, whoever has booked them in advance (HST-1)."""

import pytest

from reservations.models import Booking
from tests.reservations.test_holding import MINUTE, cluster, conditions, create, let_go, run
from tests.support.api import settle
from tests.support.clock import Clock
from tests.support.world import World

__all__ = ["cluster"]


@pytest.mark.clause("REL-2", "host resources stay booked too")
def test_host_amounts_are_held_and_carried_on(world: World, cluster: str, clock: Clock):
    made = run(world, cluster, 2, resources={"vcpu": 100, "memoryGiB": 100})
    end = made["endsAt"]
    clock.set(end)
    settle()
    settle()
    row = Booking.objects.get(reservation_id=made["id"])
    assert (row.vcpu_milli, row.during.upper) == (100_000, end + 5 * MINUTE)
    let_go(world, world.nodes[0], cluster, made["id"])


@pytest.mark.clause("HST-1", "carried-on devices leave the host to whoever has booked it")
@pytest.mark.clause("REL-3", "the devices go on where only the host is needed by an advance booking")
def test_the_devices_go_on_without_the_host(world: World, cluster: str, clock: Clock):
    world.admin("pools/update", poolId=cluster, policy={"perGpu": {"vcpu": 1, "memoryGiB": 1}})
    made = run(world, cluster, 2, resources={"vcpu": 100, "memoryGiB": 100})
    end, node = made["endsAt"], world.nodes[0]
    # Whoever comes at the end gets the other two devices, since these are booked from three minutes later on.
    later = create(world, cluster, 2, startsAt=end + 3 * MINUTE)
    next_ = create(world, cluster, 2, resources={"vcpu": 100, "memoryGiB": 100}, startsAt=end)
    assert later["placement"] == made["placement"] != next_["placement"]
    clock.set(end)
    settle()
    settle()
    rows = Booking.objects.filter(reservation_id=made["id"]).order_by("during")
    assert [(row.during.upper, row.vcpu_milli) for row in rows] == [(end, 100_000), (end + 3 * MINUTE, 0)]
    assert [row.billed.isempty for row in rows] == [False, True]
    clock.advance(seconds=181)
    settle()
    assert "DevicesHeld" in conditions(world, made["id"])
    assert set(conditions(world, later["id"])) == {"DevicesHeldByPrevious"}
    assert conditions(world, next_["id"]) == {}
    let_go(world, node, cluster, made["id"])
    assert conditions(world, made["id"]) == {}
    assert Booking.objects.filter(reservation_id=made["id"]).latest("during").during.upper == end + 3 * MINUTE
