"""Units: the numbers by which the database keeps bookings apart (DESIGN §4).

Every node owns a span of 64 positions x 256 units for ever. A GPU is a run of 256 units at its position, and its MIG
instances and slots are runs inside it; so the devices of a node are adjacent, and a replaced GPU takes the units of
the one before. All ranges are half-open ``[lower, upper)``.
"""

POSITIONS_PER_NODE = 64
UNITS_PER_POSITION = 256
UNITS_PER_NODE = POSITIONS_PER_NODE * UNITS_PER_POSITION

# What a pool of each class books at a time, its grain: a whole position, one of the eight places of MIG instances on a
# GPU, or one of its slots.
UNITS_PER_GRAIN = {"gpu": UNITS_PER_POSITION, "mig": 32, "slot": 1}
MIG_PLACES = UNITS_PER_POSITION // UNITS_PER_GRAIN["mig"]
SLOTS = UNITS_PER_POSITION // UNITS_PER_GRAIN["slot"]


def unit_base(number: int) -> int:
    """The first unit of the node with this number (1, 2, …, from a database sequence)."""
    return number * UNITS_PER_NODE


def units_of(base: int, position: int) -> tuple[int, int]:
    """The units of the GPU at ``position`` (0-63) of the node whose span starts at ``base``."""
    return run_of(base, position, 1)


def run_of(base: int, first_position: int, count: int) -> tuple[int, int]:
    """The units of ``count`` GPUs side by side from ``first_position`` on; they have to fit into the node's span."""
    if first_position < 0 or count < 1 or first_position + count > POSITIONS_PER_NODE:
        raise ValueError(f"no {count} positions from {first_position} on in a node")
    lower = base + first_position * UNITS_PER_POSITION
    return lower, lower + count * UNITS_PER_POSITION


def positions_in(base: int, lower: int, upper: int) -> range:
    """The positions that a run touches, as far as they lie in the node's span; empty for an empty run."""
    lower, upper = max(lower, base), min(upper, base + UNITS_PER_NODE)
    if lower >= upper:
        return range(0)
    return range((lower - base) // UNITS_PER_POSITION, (upper - base - 1) // UNITS_PER_POSITION + 1)


def places_of(lower: int, upper: int) -> range:
    """The positions that a run touches, whatever node it is on: every span begins at a multiple of its length."""
    base = lower - lower % UNITS_PER_NODE
    return positions_in(base, lower, upper)


def units_of_grains(base: int, first: int, count: int, size: int) -> tuple[int, int]:
    """The units of ``count`` grains of ``size`` units side by side from the node's grain ``first`` on."""
    if first < 0 or count < 1 or (first + count) * size > UNITS_PER_NODE:
        raise ValueError(f"no {count} grains of {size} units from {first} on in a node")
    lower = base + first * size
    return lower, lower + count * size


def grains_touched(base: int, lower: int, upper: int, size: int) -> int:
    """The grains that a run of units touches, as bits: a whole GPU covers its instances and slots, and one of these
    touches the GPU. 0 for a run outside the node's span, and for an empty one."""
    lower, upper = max(lower - base, 0), min(upper - base, UNITS_PER_NODE)
    if lower >= upper:
        return 0
    first, after = lower // size, (upper - 1) // size + 1
    return (1 << after) - (1 << first)
