"""What of a pool's future is told (POL-2): the pure part, and its agreement with placement."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservations.domain.availability import condensed, range_issues, windows
from reservations.domain.demands import Assignment, Demand
from reservations.domain.hosts import Amounts, Busy, Host, Use
from reservations.domain.placement import Placer

DAY = 86_400_000
# Small numbers: what matters is which moments touch, and hypothesis finds that best among few.
TO = 40


@st.composite
def pools(draw: st.DrawFn) -> list[Host]:
    moments = st.integers(0, TO)
    found = []
    for number in range(draw(st.integers(1, 4))):
        spans = draw(st.lists(st.tuples(st.integers(1, 15), moments, st.integers(1, 12)), max_size=6))
        busy = tuple(Busy(mask, begin, begin + length) for mask, begin, length in spans)
        used = tuple(Use(begin, begin + length, (mask, 0, 0)) for mask, begin, length in spans)
        found.append(Host(f"n{number}", 15, draw(st.integers(0, 15)), busy, Amounts(20, 0, 0), used))
    return found


demands = st.builds(
    lambda count, nodes, start, length, vcpu: Demand("r", count, nodes, start, start + length, need=Amounts(vcpu)),
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(0, 10),
    st.integers(1, 15),
    st.integers(0, 20),
)


def fits(hosts: list[Host], asked: Demand, start: int) -> bool:
    return isinstance(Placer(hosts).try_place(asked.at(start)), Assignment)


@pytest.mark.clause("POL-2", "what it answers, create can place; at no other time would it fit")
@given(pools(), demands)
def test_it_fits_exactly_where_it_is_told(hosts: list[Host], asked: Demand):
    length = asked.ends_at - asked.starts_at
    before = TO - length + 1
    told = windows(Placer(hosts).start_ranges(asked, before=before), length)
    starts = {start for begin, end in told for start in range(begin, end - length + 1)}
    assert starts == {start for start in range(asked.starts_at, before) if fits(hosts, asked, start)}
    assert Placer(hosts).earliest(asked, before=before) == min(starts, default=None)


@pytest.mark.clause("POL-2", "at most so many stretches: told together, never with more than is free")
@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3)), min_size=1, max_size=40), st.integers(1, 10))
def test_many_stretches_are_told_as_few(lengths: list[tuple[int, int]], most: int):
    free, at = [], 0
    for length, devices in lengths:
        free.append((at, at + length, devices))
        at += length
    told = condensed(free, most)
    assert len(told) <= most
    assert [begin for begin, _, _ in told] == [0, *(end for _, end, _ in told[:-1])]
    assert told[-1][1] == at
    for begin, end, devices in free:
        over = [t for t in told if t[0] < end and begin < t[1]]
        assert all(t[2] <= devices for t in over)
    assert all(any(b >= t[0] and e <= t[1] and d == t[2] for b, e, d in free) for t in told)


@pytest.mark.parametrize(
    ("changed", "paths"),
    [
        ({}, []),
        ({"begin": -60_000}, []),
        ({"begin": -60_001}, ["from"]),
        ({"end": 0}, ["to"]),
        ({"begin": -100, "end": -50}, ["to"]),
        ({"begin": 100, "end": 100}, ["to"]),
        ({"begin": 1_000, "end": 1_999}, ["durationSeconds"]),
        ({"begin": -500, "end": 999}, ["durationSeconds"]),
        ({"begin": 1_000, "end": 2_000}, []),
        ({"end": 90 * DAY}, []),
        ({"end": 90 * DAY + 1}, ["to"]),
        ({"begin": 91 * DAY, "end": 92 * DAY}, ["to"]),
    ],
)
def test_ranges(changed: dict[str, Any], paths: list[str]):
    asked = {"begin": 0, "end": DAY, "length": 1_000, "max_advance_days": 90, "now": 0} | changed
    assert [issue.path for issue in range_issues(**asked)] == paths


def test_a_range_that_the_way_here_has_shortened_says_so():
    asked = {"begin": 0, "end": 1_000, "length": 1_000, "max_advance_days": 90}
    assert list(range_issues(**asked, now=0)) == []
    (issue,) = range_issues(**asked, now=1)
    assert (issue.path, issue.message) == ("durationSeconds", "is longer than the range, which begins now")
