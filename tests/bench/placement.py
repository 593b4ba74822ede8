"""The pure rules in a pool of 1,000 nodes with 8 GPUs, without the database: one request, a pass over all that waits,
and the earliest start in 30 days."""

import random
import statistics
import time
from collections.abc import Callable, Iterator

from reservations.domain.demands import Assignment, Demand
from reservations.domain.hosts import FOREVER, Amounts, Busy, Host, Use
from reservations.domain.line import InLine, Line
from reservations.domain.order import Waiting, WaitingOrder
from reservations.domain.placement import Placer
from tests.bench.samples import Samples

HOUR = 3_600_000
DAY = 24 * HOUR
NODES = 1_000
GPUS = 8
ROUNDS = 5
REQUESTS = 100
WAITING = 10_000
SHARE = Amounts(16_000, 131_072)
HOST = Amounts(GPUS * 16_000, GPUS * 131_072)


def measure() -> Iterator[Samples]:
    """With more and more bookings in the 30 days."""
    for bookings in (0, 1_000, 10_000, 100_000):
        hosts = pool(bookings)
        what = f"{NODES} nodes, {bookings} bookings"
        yield _timed(f"place one request, {what}", lambda hosts=hosts: _requests(hosts))  # type: ignore[misc]
        yield _timed(f"earliest start in 30 days, {what}", lambda hosts=hosts: _searches(hosts))  # type: ignore[misc]
        yield _timed(f"a pass over {WAITING} that wait, {what}", lambda hosts=hosts: _passes(hosts))  # type: ignore[misc]


def pool(bookings: int) -> list[Host]:
    """Hosts with bookings spread over 30 days, none of them twice on one GPU at a time; the same in every run."""
    chance = random.Random(1)
    free_from = [[chance.randrange(2 * HOUR) for _ in range(GPUS)] for _ in range(NODES)]
    busy: list[list[Busy]] = [[] for _ in range(NODES)]
    longest = 2 * 30 * DAY * NODES * GPUS // max(bookings, NODES * GPUS)
    for _ in range(bookings):
        node, gpu = chance.randrange(NODES), chance.randrange(GPUS)
        start = free_from[node][gpu] + chance.choice((0, 0, 0, chance.randrange(HOUR)))
        end = free_from[node][gpu] = start + chance.randrange(HOUR, max(2 * HOUR, longest))
        busy[node].append(Busy(1 << gpu, start, end))
    every = (1 << GPUS) - 1
    return [
        Host(f"node-{i:04}", every, every, taken, HOST, [Use(b, e, SHARE) for _, b, e in taken])
        for i, taken in enumerate(busy)
    ]


def _timed(name: str, run: Callable[[], Iterator[float]]) -> Samples:
    samples = Samples(name)
    for _ in range(ROUNDS):
        durations = list(run())
        samples.p50.append(statistics.median(durations))
        most = statistics.quantiles(durations, n=100, method="inclusive")[98] if len(durations) > 1 else durations[0]
        samples.p99.append(most)
    return samples


def _requests(hosts: list[Host]) -> Iterator[float]:
    """As admission does: a snapshot of the window, one request, and the next one finds another snapshot."""
    for number in range(REQUESTS):
        count = 1 + number % GPUS
        demand = Demand(f"r{number}", count, 1, 0, HOUR, need=_need(count))
        seen = [host._replace(busy=[b for b in host.busy if b.starts_at < HOUR]) for host in hosts]
        begun = time.perf_counter()
        Placer(seen).place(demand)
        yield (time.perf_counter() - begun) * 1000


def _searches(hosts: list[Host]) -> Iterator[float]:
    """Short and long, small and large, on one node and on many."""
    for hours in (1, 24, 240):
        for count, nodes in ((1, 1), (GPUS, 1), (GPUS, 16)):
            demand = Demand("r", count, nodes, 0, hours * HOUR, need=_need(count))
            placer = Placer(hosts)
            begun = time.perf_counter()
            placer.earliest(demand, before=30 * DAY)
            yield (time.perf_counter() - begun) * 1000


def _passes(hosts: list[Host]) -> Iterator[float]:
    """Of five tenants, of every size, for one to 72 hours, a tenth of them later."""
    chance = random.Random(2)
    entries = []
    for number in range(WAITING):
        count = chance.choice((1, 1, 2, 4, 8))
        start = chance.choice((0,) * 9 + (chance.randrange(DAY),))
        demand = Demand(f"r{number}", count, chance.choice((1, 1, 1, 2)), start, start + chance.randrange(1, 72) * HOUR)
        waiting = Waiting(demand.id, f"t{number % 5}", chance.choice((40, 50, 60)), number, count * demand.nodes)
        entries.append(InLine(waiting, demand, FOREVER))
    begun = time.perf_counter()
    by_id = {entry.waiting.id: entry for entry in entries}
    line = Line(Placer(hosts), (), dict, before=4 * DAY, in_order=True)
    order = WaitingOrder([entry.waiting for entry in entries], {})
    for item in order:
        found = line.place(item, by_id[item.id].demand)
        if isinstance(found, Assignment):
            order.took(item)
            line.took(item, found)
        else:
            line.joins(by_id[item.id])
    yield (time.perf_counter() - begun) * 1000


def _need(count: int) -> Amounts:
    return Amounts(count * SHARE.vcpu_milli, count * SHARE.memory_mib)
