"""Looking for room in a pool's future (POL-2). Reads alone: nothing is locked."""

from collections.abc import Sequence
from dataclasses import dataclass

from computeplatform.api.calls import Call
from fleet.contracts import PoolView
from reservations.domain import availability as rules
from reservations.domain.demands import Shortfall
from reservations.domain.requests import ReservationRequest
from reservations.operations.creating import per_gpu
from reservations.operations.drafts import new_draft
from reservations.operations.waiting import demand_of, outlook


@dataclass(frozen=True)
class Availability:
    """Where it fits first, the windows in which it fits, how many devices are free when; and why it fits nowhere."""

    earliest: tuple[int, int] | None
    windows: Sequence[tuple[int, int]]
    free: Sequence[tuple[int, int, int]]
    shortfall: Shortfall | None


def available(*, call: Call, pool: PoolView, request: ReservationRequest, until: int) -> Availability:
    """Where a sliding request that may start at ``starts_at`` fits, windows ending by ``until``.

    It is looked at as a create would be that the caller sends now, with the priority it would get.
    """
    row = new_draft(call=call, key="", request=request, digest="", pool=pool, per_gpu=per_gpu(pool))
    demand = demand_of(row, now=call.now)
    length = demand.ends_at - demand.starts_at
    seen = outlook(pool, row, now=call.now, ends_at=until)
    starts = seen.placer.start_ranges(demand, before=until - length + 1, limit=rules.MOST_WINDOWS)
    free = seen.placer.free_over_time(starts_at=demand.starts_at, ends_at=until)
    found = None if starts else seen.placer.try_place(demand, behind=seen.behind)
    return Availability(
        earliest=(starts[0][0], starts[0][0] + length) if starts else None,
        windows=rules.windows(starts, length),
        free=rules.condensed(free, rules.MOST_STRETCHES),
        shortfall=found if isinstance(found, Shortfall) else None,
    )
