"""The rules about devices that are held: pure, so tables and properties."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservations.domain.holding import (
    CARRY_ON,
    FREE,
    LONGEST,
    STEP,
    WAIT,
    HeldBooking,
    Part,
    Taken,
    Word,
    carried,
    step_end,
    what_is_due,
)

END = 1_000_000_000


def booking(edge: int = END, *, units: tuple[int, int] = (0, 1024), devices: int = 4, stuck: bool = False):
    return HeldBooking(units, devices, edge, END, stuck)


PODS = Word(2, END - 5)
IDLE = Word(0, END - 5)


@pytest.mark.clause("REL-3", "when a step is due")
@pytest.mark.parametrize(
    ("held", "word", "now", "due"),
    [
        (booking(), PODS, END - 1, WAIT),
        (booking(), PODS, END, CARRY_ON),
        (booking(END + STEP, stuck=True), PODS, END + STEP - 1, WAIT),
        (booking(END + STEP, stuck=True), PODS, END + STEP, CARRY_ON),
        (booking(END + LONGEST, stuck=True), PODS, END + LONGEST, WAIT),
        (booking(END + LONGEST, stuck=True), PODS, END + 2 * LONGEST, WAIT),
        (booking(), None, END - 1, FREE),
        (booking(END + LONGEST, stuck=True), None, END + 2 * LONGEST, FREE),
        (booking(), Word(2, END - 5, lost_at=END - 5), END - 1, FREE),
        (booking(), IDLE, END, CARRY_ON),
    ],
)
def test_what_is_due(held, word, now, due):
    assert what_is_due(held, word, now=now) == due


@pytest.mark.clause("REL-3", "5-minute steps, for at most 24 hours")
@given(st.integers(0, 3 * LONGEST))
def test_steps(late):
    end = step_end(planned_until=END, now=END + late)
    assert (end - END) % STEP == 0
    assert end - END <= LONGEST
    assert end > END + late or end == END + LONGEST
    assert end - STEP <= END + late


TAKEN = st.lists(
    st.builds(
        lambda first, count, since: Taken((first * 64, (first + count) * 64), END + since),
        st.integers(0, 20),
        st.integers(1, 6),
        st.integers(0, STEP + 1_000),
    ),
    max_size=5,
)


@pytest.mark.clause("REL-3", "a run is split; every device goes on until somebody has booked it")
@given(st.integers(1, 8), TAKEN)
def test_parts_are_the_run_and_end_where_others_begin(devices, taken):
    held = booking(units=(0, devices * 128), devices=devices)
    parts = carried(held, taken, until=END + STEP)
    assert [part.units[0] for part in parts] == [0, *(part.units[1] for part in parts[:-1])]
    assert parts[-1].units[1] == devices * 128
    assert sum(part.devices for part in parts) == devices
    for one, other in pairwise(parts):
        assert one.until != other.until, "no more parts than needed"
    for part in parts:
        assert part.devices * 128 == part.units[1] - part.units[0]
        assert END <= part.until <= END + STEP
        for other in taken:
            if other.units[0] < part.units[1] and part.units[0] < other.units[1]:
                assert other.since >= part.until
        reached = [t.since for t in taken if t.units[0] < part.units[1] and part.units[0] < t.units[1]]
        assert part.until == min([END + STEP, *reached]), "as far as its devices are free"


def test_a_run_whose_devices_are_not_of_one_size_stays_whole():
    held = booking(units=(0, 100), devices=3)
    assert carried(held, [Taken((0, 1), END + 7)], until=END + STEP) == [Part((0, 100), 3, END + 7)]
