"""The earliest start is what trying every millisecond would find, for devices, host amounts and gangs alike."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservations.domain.demands import Assignment, Demand, Kept
from reservations.domain.earliest import _by_bits, _by_levels, earliest_start, free_over_time, start_ranges
from reservations.domain.hosts import NOTHING, Amounts, Busy, Host, Use
from reservations.domain.masks import ALL
from reservations.domain.placement import Placer

FULL = 0b1111
windows = st.tuples(st.integers(0, 30), st.integers(1, 12)).map(lambda w: (w[0], w[0] + w[1]))
amounts = st.builds(Amounts, st.integers(0, 4), st.integers(0, 4), st.integers(0, 2))
busies = st.builds(lambda mask, w: Busy(mask, *w), st.integers(1, FULL) | st.just(ALL), windows)
uses = st.builds(lambda w, a: Use(w[0], w[1], a), windows, amounts)
hosts = st.lists(
    st.tuples(st.integers(0, FULL), st.lists(busies, max_size=5), amounts, st.lists(uses, max_size=4)),
    min_size=1,
    max_size=4,
).map(lambda rows: [Host(f"n{i}", FULL, b, tuple(busy), c, tuple(used)) for i, (b, busy, c, used) in enumerate(rows)])
demands = st.builds(
    lambda count, nodes, w, need, slides: Demand("r", count, nodes, w[0], w[1], need=need, slides=slides),
    st.integers(1, 4),
    st.integers(1, 3),
    windows,
    st.just(NOTHING) | amounts,
    st.booleans(),
)
END = 50


def fits(nodes: list[Host], demand: Demand, start: int) -> bool:
    at = demand.at(start)
    if at.ends_at <= start:
        return False
    return sum(h.free(start, at.ends_at, demand.need).bit_count() >= demand.count for h in nodes) >= demand.nodes


def by_trying(nodes: list[Host], demand: Demand) -> list[int]:
    return [start for start in range(demand.starts_at, END) if fits(nodes, demand, start)]


@pytest.mark.clause("POL-2", "the earliest start, and when it fits")
@given(hosts, demands)
def test_it_finds_every_start_at_which_the_demand_fits(nodes: list[Host], demand: Demand):
    tried = by_trying(nodes, demand)
    ranges = start_ranges(nodes, demand, before=END)
    assert [start for first, last in ranges for start in range(first, last + 1)] == tried
    assert all(after - last > 1 for (_, last), (after, _) in itertools.pairwise(ranges)), "ranges are maximal"
    assert earliest_start(nodes, demand, before=END) == (tried[0] if tried else None)
    assert start_ranges(nodes, demand, before=END, limit=1) == ranges[:1]


@given(hosts, demands)
def test_device_by_device_and_all_at_once_find_the_same(nodes: list[Host], demand: Demand):
    before = END if demand.slides else min(END, demand.ends_at)
    if demand.starts_at < before:
        for host in nodes:
            if host.bookable.bit_count() >= demand.count:
                one_by_one = _by_bits(host.bookable, host.busy, demand, before)
                assert _by_levels(host.bookable, host.busy, demand, before) == one_by_one


@pytest.mark.clause("POL-2", "what it answers, create can place")
@given(hosts, demands)
def test_what_is_found_can_be_placed(nodes: list[Host], demand: Demand):
    start = Placer(nodes).earliest(demand, before=END)
    if start is not None:
        assert isinstance(Placer(nodes).place(demand.at(start)), Assignment)
    else:
        assert not isinstance(Placer(nodes).place(demand), Assignment)


@given(hosts)
def test_free_devices_over_time_are_those_of_every_instant(nodes: list[Host]):
    stretches = free_over_time(nodes, starts_at=3, ends_at=40)
    assert stretches[0][0] == 3
    assert stretches[-1][1] == 40
    assert all(one[1] == other[0] and one[2] != other[2] for one, other in itertools.pairwise(stretches))
    for begin, end, devices in stretches:
        for moment in range(begin, end):
            free = [host._replace(used=(), capacity=NOTHING).free(moment, moment + 1) for host in nodes]
            assert devices == sum(mask.bit_count() for mask in free)


def test_a_claim_counts_for_all_but_its_owner():
    nodes = [Host("a", FULL, FULL)]
    placer = Placer(nodes, {"a": [Kept("owner", FULL, 0, 20)]})
    demand = Demand("other", 1, 1, 0, 5)
    assert placer.earliest(demand, before=END) == 20
    assert placer.earliest(replace(demand, id="owner"), before=END) == 0
    assert placer.free_over_time(starts_at=0, ends_at=30) == [(0, 20, 0), (20, 30, 4)]


@pytest.mark.clause("REC-6", "back-to-back to the millisecond")
@pytest.mark.parametrize(("booked_from", "start"), [(10, 0), (9, 12)])
def test_a_gap_of_just_the_length_is_long_enough(booked_from: int, start: int):
    nodes = [Host("a", 1, 1, (Busy(1, booked_from, 12),))]
    assert earliest_start(nodes, Demand("r", 1, 1, 0, 10), before=END) == start
