"""Why a demand does not fit: the contract's reasons, with the numbers in words (CRE-14)."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from reservations.domain.demands import Demand, Shortfall
from reservations.domain.hosts import FOREVER, NOTHING, Amounts, Host, peak

NEVER_FITS = "NeverFits"
NODES_UNAVAILABLE = "NodesUnavailable"
HOST_RESOURCES_SHORT = "HostResourcesShort"
FRAGMENTED = "Fragmented"
NO_FREE_DEVICES = "NoFreeDevices"
BEHIND_HEAD = "BehindQueueHead"
AWAITING_PREEMPTION = "AwaitingPreemption"

_NAMES = ("vCPU", "GiB", "pages of 1 GiB")
_UNITS = (1000, 1024, 1)


def never_fits(demand: Demand, hosts: Collection[Host]) -> Shortfall:
    """More than the pool could ever give."""
    sizes = [host.devices.bit_count() for host in hosts]
    text = f"the pool has {len(sizes)} nodes, the largest with {max(sizes, default=0)}"
    if sum(size >= demand.count for size in sizes) >= demand.nodes:
        able = [host.capacity for host in hosts if host.devices.bit_count() >= demand.count]
        most = Amounts(*(max(amounts) for amounts in zip(*able, strict=True)))
        text += f"; a node has at most {_amounts(most, demand.need)}"
    elif demand.nodes == 1 and sum(sizes) >= demand.count:
        text += "; a gang over several nodes can be asked for with 'nodes'"
    return Shortfall(demand, NEVER_FITS, f"{_needs(demand)}; {text}")


def behind_head(demand: Demand, head_starts_at: int) -> Shortfall:
    """It would fit, but would delay the first in line (REC-9). Whose that is, is not told."""
    text = f"that many are free, but the first in line starts on them at {_time(head_starts_at)}"
    return Shortfall(demand, BEHIND_HEAD, f"{_needs(demand)}; {text}")


def shared(failure: Shortfall, demand: Demand) -> Shortfall:
    """The explanation of a smaller demand, told of this one."""
    message = f"{_needs(demand)};{failure.message.partition(';')[2]}"
    return replace(failure, demand=demand, message=message)


def explain(demand: Demand, hosts: Sequence[tuple[Host, int]]) -> Shortfall:
    """Why it does not fit now, though it could another time. ``hosts``: each with what of it is taken in the window."""
    # Maintenance takes every grain that a node could ever have.
    open_hosts = [host for host, taken in hosts if taken >= 0]
    if sum(host.bookable.bit_count() >= demand.count for host in open_hosts) < demand.nodes:
        return _unavailable(demand, [host for host, _ in hosts], len(hosts) - len(open_hosts))
    free = [((host.bookable & ~taken).bit_count(), host) for host, taken in hosts]
    ready = [host for count, host in free if count >= demand.count]
    if len(ready) >= demand.nodes:
        return _host_short(demand, ready)
    most, freest = max(free, key=lambda pair: (pair[0], pair[1].id))
    total = sum(count for count, _ in free)
    reason = FRAGMENTED if total >= demand.count * demand.nodes else NO_FREE_DEVICES
    if demand.nodes == 1:
        text = f"the freest node has {most}{_until(freest, demand)}"
    else:
        text = f"{len(ready)} of {len(free)} nodes have that many free"
    if reason == FRAGMENTED:
        text += f"; {total} are free in all"
    return Shortfall(demand, reason, f"{_needs(demand)}; {text}")


def _unavailable(demand: Demand, hosts: Sequence[Host], resting: int) -> Shortfall:
    away = sum(host.devices != host.bookable for host in hosts)
    told = []
    if away or not resting:
        told.append(f"{away} of {len(hosts)} nodes take no bookings or have unhealthy devices just now")
    if resting:
        told.append(f"{resting} of {len(hosts)} nodes have maintenance in that time")
    text = ", and ".join(told)
    return Shortfall(demand, NODES_UNAVAILABLE, f"{_needs(demand)}; {text}")


def _host_short(demand: Demand, ready: Sequence[Host]) -> Shortfall:
    """Devices are free, but not so much of the host beside them."""
    text = f"{len(ready)} nodes have the {demand.resource} free, "
    if demand.need == NOTHING:
        text += "but report less of their hosts than is booked on them"
    else:
        left = zip(*(_left(host, demand) for host in ready), strict=True)
        best = Amounts(*(max((0, *amounts)) for amounts in left))
        text += f"none with more than {_amounts(best, demand.need)} left"
    return Shortfall(demand, HOST_RESOURCES_SHORT, f"{_needs(demand, amounts=True)}; {text}")


def awaiting_preemption(demand: Demand, *, victims: int, when: str) -> Shortfall:
    """Spot work makes way for it, ``when`` in words; whose that is, is not told (PRE-2)."""
    way = "1 spot reservation makes way" if victims == 1 else f"{victims} spot reservations make way"
    return Shortfall(demand, AWAITING_PREEMPTION, f"{_needs(demand)}; {way} for it {when}")


def _left(host: Host, demand: Demand) -> list[int]:
    used = peak(host.used, demand.starts_at, demand.ends_at)
    return [most - amount for most, amount in zip(host.capacity, used, strict=True)]


def _needs(demand: Demand, *, amounts: bool = False) -> str:
    where = "on one node" if demand.nodes == 1 else f"on each of {demand.nodes} nodes"
    beside = f" with {_amounts(demand.need, demand.need)}" if amounts and demand.need != NOTHING else ""
    return f"needs {demand.count} {demand.resource}{beside} {where}"


def _amounts(amounts: Amounts, asked: Amounts) -> str:
    """The amounts of what is asked for, in whole units where they are whole."""
    shown = [
        f"{amount / unit:.3f}".rstrip("0").rstrip(".") + f" {name}"
        for amount, wanted, unit, name in zip(amounts, asked, _UNITS, _NAMES, strict=True)
        if wanted
    ]
    return " and ".join(shown) or "nothing"


def _until(host: Host, demand: Demand) -> str:
    """When the host's free devices next change: the first end of a booking in the window. A claim has none (PRE-2)."""
    ends = [end for _, begin, end in host.busy if begin < demand.ends_at and demand.starts_at < end < FOREVER]
    return f" until {_time(min(ends))}" if ends else ""


def _time(moment: int) -> str:
    return f"{datetime.fromtimestamp(moment / 1000, tz=UTC):%Y-%m-%d %H:%M} UTC"
