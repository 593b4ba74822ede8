"""When a request could start within 30 days, in a pool of 1,000 nodes with 8 GPUs: the pure rule (POL-2)."""

import random
import time
from collections.abc import Iterator

from reservations.domain.placement import Busy, Demand, Host, Placer
from tests.bench.samples import Samples

HOUR = 3_600_000
MONTH = 30 * 24 * HOUR
NODES = 1_000
ROUNDS = 5


def measure() -> Iterator[Samples]:
    """With more and more bookings in the 30 days: the first start alone, and all windows with the free devices."""
    for bookings in (1_000, 10_000, 100_000):
        placer = Placer(full_until_the_end(bookings))
        # A whole node for two hours: nearly everywhere something is in the way.
        demand = Demand("r", 8, 1, 0, 2 * HOUR)
        first = Samples(f"earliest start in 30 days, {NODES} nodes, {bookings} bookings")
        windows = Samples(f"10 windows and free devices, {NODES} nodes, {bookings} bookings")
        for _ in range(ROUNDS):
            begun = time.perf_counter()
            placer.earliest(demand, before=MONTH)
            first.p50.append((time.perf_counter() - begun) * 1000)
            begun = time.perf_counter()
            placer.start_ranges(demand, before=MONTH, limit=10)
            placer.free_over_time(starts_at=0, ends_at=MONTH)
            windows.p50.append((time.perf_counter() - begun) * 1000)
        yield first
        yield windows


def full_until_the_end(bookings: int) -> list[Host]:
    """Every node has one device booked for the whole time but the last day, and others now and then."""
    chance = random.Random(2)
    busy: list[list[Busy]] = [[Busy(1, 0, MONTH - 24 * HOUR)] for _ in range(NODES)]
    for _ in range(bookings - NODES):
        start = chance.randrange(30 * 24) * HOUR
        busy[chance.randrange(NODES)].append(Busy(1 << chance.randrange(8), start, start + HOUR))
    return [Host(f"node-{i:04}", 0xFF, 0xFF, tuple(taken)) for i, taken in enumerate(busy)]
