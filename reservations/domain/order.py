"""Who is next among those that wait (REC-3): higher priority, then the tenant that holds least, then the older."""

import heapq
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Waiting:
    """One that waits; ``devices`` is how many it would hold."""

    id: str
    tenant_id: str
    priority: int
    created_at: int
    devices: int


Rank = tuple[int, int, int, str]


def rank(item: Waiting, held: Mapping[str, int]) -> Rank:
    """The lower, the sooner it is its turn."""
    return -item.priority, held.get(item.tenant_id, 0), item.created_at, item.id


class WaitingOrder:
    """Yields who is next; ``took`` tells it of a placement, which counts against that tenant from then on."""

    def __init__(self, waiting: Sequence[Waiting], held: Mapping[str, int]) -> None:
        self._held = defaultdict(int, held)
        self._queues: dict[int, dict[str, deque[Waiting]]] = defaultdict(lambda: defaultdict(deque))
        for item in sorted(waiting, key=lambda w: (w.created_at, w.id)):
            self._queues[item.priority][item.tenant_id].append(item)

    def took(self, item: Waiting) -> None:
        """``item`` was placed."""
        self._held[item.tenant_id] += item.devices

    def __iter__(self) -> Iterator[Waiting]:
        for priority in sorted(self._queues, reverse=True):
            yield from self._of_equals(self._queues[priority])

    def _of_equals(self, queues: Mapping[str, deque[Waiting]]) -> Iterator[Waiting]:
        heap = [(self._held[tenant], queue[0].created_at, queue[0].id, tenant) for tenant, queue in queues.items()]
        heapq.heapify(heap)
        while heap:
            *_, tenant = heapq.heappop(heap)
            queue = queues[tenant]
            yield queue.popleft()
            # What this tenant holds may have grown while its item was placed, so its place is found anew.
            if queue:
                heapq.heappush(heap, (self._held[tenant], queue[0].created_at, queue[0].id, tenant))
