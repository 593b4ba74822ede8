"""The numbers that keep bookings apart."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.domain import units

BASE = units.unit_base(3)


@pytest.mark.parametrize(
    ("position", "run"), [(0, (BASE, BASE + 256)), (1, (BASE + 256, BASE + 512)), (63, (BASE + 16_128, BASE + 16_384))]
)
def test_units_of_a_position(position, run):
    assert units.units_of(BASE, position) == run


@pytest.mark.parametrize(("first", "count"), [(0, 0), (0, -1), (-1, 1), (64, 1), (63, 2), (0, 65)])
def test_no_run_outside_the_node(first, count):
    with pytest.raises(ValueError, match="positions"):
        units.run_of(BASE, first, count)


@pytest.mark.parametrize(
    ("lower", "upper", "positions"),
    [
        (BASE, BASE + 256, [0]),
        (BASE, BASE + 257, [0, 1]),
        (BASE + 300, BASE + 301, [1]),  # a slice of one GPU
        (BASE, BASE, []),
        (BASE - 256, BASE, []),  # the node before
        (BASE - 1, BASE + 1, [0]),
        (BASE + 16_384, BASE + 16_640, []),  # the node after
        (BASE + 16_383, BASE + 20_000, [63]),
        (0, 10**12, list(range(64))),
    ],
)
def test_positions_that_a_run_touches(lower, upper, positions):
    assert list(units.positions_in(BASE, lower, upper)) == positions


@given(first=st.integers(0, 63), count=st.integers(1, 64), number=st.integers(1, 10**9))
@pytest.mark.clause("NOD-4", "a node's span of units is its own")
def test_a_run_names_its_positions_and_stays_in_its_node(first, count, number):
    base = units.unit_base(number)
    if first + count > 64:
        return
    lower, upper = units.run_of(base, first, count)
    assert list(units.positions_in(base, lower, upper)) == list(range(first, first + count))
    assert units.places_of(lower, upper) == units.positions_in(base, lower, upper)
    assert base <= lower < upper <= units.unit_base(number + 1)
    assert (lower, upper) == (units.units_of(base, first)[0], units.units_of(base, first + count - 1)[1])
