"""What a reservation is charged and what it would cost (QTA-1, QTA-3)."""

from decimal import ROUND_UP, Decimal

HOUR_MS = Decimal(3_600_000)
_PLACES = Decimal("0.0001")


def device_resource(device_class: str, profile: str) -> str:
    """The quota resource of a device: ``gpu``, ``mig:<profile>`` or ``slot``."""
    return f"mig:{profile}" if device_class == "mig" else device_class


def amounts(*, device_class: str, profile: str, count: int, nodes: int) -> dict[str, int]:
    """Resource to amount, over the whole gang."""
    return {device_resource(device_class, profile): count * nodes}


def estimated_cost(*, per_device_hour: Decimal | None, devices: int, milliseconds: int) -> Decimal:
    """The price of the window, rounded up to four places; 0 where the pool has no price."""
    if per_device_hour is None:
        return Decimal(0)
    return (per_device_hour * devices * milliseconds / HOUR_MS).quantize(_PLACES, rounding=ROUND_UP)
