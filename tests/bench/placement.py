"""One request into a pool of 1,000 nodes with 8 GPUs: the pure rule, without the database."""

import random
import statistics
import time
from collections.abc import Iterator

from reservations.domain.placement import Busy, Demand, Host, Placer
from tests.bench.samples import Samples

HOUR = 3_600_000
NODES = 1_000
ROUNDS = 5
REQUESTS = 100


def measure() -> Iterator[Samples]:
    """With more and more bookings in the window."""
    for bookings in (0, 1_000, 10_000):
        samples = Samples(f"place one request, {NODES} nodes, {bookings} bookings")
        hosts = pool(bookings)
        for _ in range(ROUNDS):
            durations = []
            placer = Placer(hosts)
            for number in range(REQUESTS):
                demand = Demand(f"r{number}", 1 + number % 8, 1, 0, HOUR)
                begun = time.perf_counter()
                placer.place(demand)
                durations.append((time.perf_counter() - begun) * 1000)
            samples.p50.append(statistics.median(durations))
            samples.p99.append(statistics.quantiles(durations, n=100, method="inclusive")[98])
        yield samples


def pool(bookings: int) -> list[Host]:
    """Hosts with bookings spread over a day, the same in every run."""
    chance = random.Random(1)
    busy: list[list[Busy]] = [[] for _ in range(NODES)]
    for _ in range(bookings):
        start = chance.randrange(24) * HOUR
        busy[chance.randrange(NODES)].append(Busy(1 << chance.randrange(8), start, start + HOUR))
    return [Host(f"node-{i:04}", 0xFF, 0xFF, tuple(taken)) for i, taken in enumerate(busy)]
