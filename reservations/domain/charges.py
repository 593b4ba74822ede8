"""What a reservation is charged and what it would cost (QTA-1, QTA-3, HST-5)."""

from collections.abc import Mapping
from decimal import ROUND_UP, Decimal, localcontext

from reservations.domain.hosts import NOTHING, Amounts

HOUR_MS = Decimal(3_600_000)
MIB_PER_GIB = 1_024
MILLI = 1_000
_PLACES = Decimal("0.0001")
# The dearest price, amounts and window that there can be come to 29 digits; in between nothing may be rounded.
_DIGITS = 60


def device_resource(device_class: str, profile: str) -> str:
    """The quota resource of a device: ``gpu``, ``mig:<profile>`` or ``slot``."""
    return f"mig:{profile}" if device_class == "mig" else device_class


def amounts(
    *, device_class: str, profile: str, count: int, nodes: int, booked: Amounts = NOTHING, share: Amounts = NOTHING
) -> dict[str, int]:
    """Resource to amount, over the whole gang: the devices, and what is ``booked`` above the ``share`` on each node.

    The excess is summed over the gang and rounded up to whole units; hugepages count as memory (HST-5).
    """
    excess = {
        "vcpu": _up((booked.vcpu_milli - share.vcpu_milli) * nodes, MILLI),
        "memoryGiB": _up((memory_with_pages(booked) - memory_with_pages(share)) * nodes, MIB_PER_GIB),
    }
    charged = {name: amount for name, amount in excess.items() if amount > 0}
    return {device_resource(device_class, profile): count * nodes} | charged


def totals(booked: Amounts, nodes: int) -> dict[str, int]:
    """Host amounts over the gang in whole units, rounded up (CRE-7)."""
    return {
        "vcpu": _up(booked.vcpu_milli * nodes, MILLI),
        "memoryGiB": _up(booked.memory_mib * nodes, MIB_PER_GIB),
        "hugepages1Gi": booked.hugepages_1gi * nodes,
    }


def memory_with_pages(booked: Amounts) -> int:
    """MiB of memory, 1 GiB pages counted in."""
    return booked.memory_mib + booked.hugepages_1gi * MIB_PER_GIB


def estimated_cost(
    price: Mapping[str, str] | None, *, devices: int, nodes: int = 1, booked: Amounts = NOTHING, milliseconds: int
) -> Decimal:
    """The price of the window, rounded up to four places; 0 where there is no price.

    ``price`` is the policy's wire form, ``devices`` over the whole gang, ``booked`` on each of its ``nodes``.
    """
    if price is None:
        return Decimal(0)
    with localcontext(prec=_DIGITS):
        vcpu = Decimal(booked.vcpu_milli * nodes) / MILLI
        memory = Decimal(memory_with_pages(booked) * nodes) / MIB_PER_GIB
        hourly = (
            Decimal(price["perDeviceHour"]) * devices
            + Decimal(price.get("perVcpuHour", 0)) * vcpu
            + Decimal(price.get("perGiBHour", 0)) * memory
        )
        return (hourly * milliseconds / HOUR_MS).quantize(_PLACES, rounding=ROUND_UP)


def _up(amount: int, unit: int) -> int:
    return -(-amount // unit)
