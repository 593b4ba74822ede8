"""Masks of up to 16,384 devices: right, and quick without walking over bits."""

import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservations.domain.demands import Assignment, Demand
from reservations.domain.hosts import Busy, Host
from reservations.domain.masks import choose, positions, runs, span
from reservations.domain.placement import Placer


@given(st.integers(0, 2**70))
def test_runs_are_the_set_bits(mask: int):
    assert [i for i in range(71) if mask >> i & 1] == positions(mask)
    found = runs(mask)
    assert sum(span(*run) for run in found) == mask
    assert all(sum(one) < other[0] for one, other in itertools.pairwise(found)), "maximal, lowest first"


@given(st.integers(1, 2**70), st.data())
def test_what_is_chosen_is_free_and_as_many_as_asked(free: int, data: st.DataObject):
    count = data.draw(st.integers(1, free.bit_count()))
    mask = choose(free, count)
    assert mask & ~free == 0
    assert mask.bit_count() == count
    long_enough = sorted(length for _, length in runs(free) if length >= count)
    if long_enough:
        [(first, length)] = runs(mask)
        assert length == count
        assert dict(runs(free))[first] == long_enough[0], "at the start of the tightest run"
    else:
        assert mask == sum(1 << i for i in positions(free)[:count]), "the lowest"


@pytest.mark.clause("CRE-14", "slots: 16,384 of a node")
def test_slots_of_a_thousand_nodes_are_placed_without_walking_over_them():
    every = span(0, 16_384)
    taken = sum(1 << i for i in range(0, 16_384, 2))
    hosts = [Host(f"n{i:04}", every, every, (Busy(taken, 0, 9),)) for i in range(1_000)]
    placer = Placer(hosts)
    begun = time.process_time()
    for i in range(20):
        assert isinstance(placer.place(Demand(f"r{i}", 4_096, 1, 0, 5)), Assignment)
    # 20 ms each on a slow machine; bit by bit it would be seconds.
    assert time.process_time() - begun < 2
