"""Placement is a pure function: tables for the choice and the words, properties for what must always hold."""

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservations.domain.placement import Assignment, Busy, Demand, Host, Placer, Shortfall, choose, positions, runs

HOUR = 3_600_000
FULL = 0xFF


def host(name: str, *, busy: tuple[Busy, ...] = (), devices: int = FULL, bookable: int | None = None) -> Host:
    return Host(name, devices, devices if bookable is None else bookable, busy)


def demand(count: int, *, nodes: int = 1, start: int = 0, end: int = HOUR, name: str = "r") -> Demand:
    return Demand(name, count, nodes, start, end)


@pytest.mark.clause("CRE-14", "fits: placed")
def test_the_fullest_node_that_still_fits_is_taken():
    nodes = [
        host("a"),
        host("b", busy=(Busy(0b00001111, 0, HOUR),)),
        host("c", busy=(Busy(0b01111111, 0, HOUR),)),
    ]
    found = Placer(nodes).place(demand(2))
    assert isinstance(found, Assignment)
    assert found.hosts == (("b", 0b00110000),)


@pytest.mark.parametrize(
    ("free", "count", "chosen"),
    [
        (0b11111111, 2, 0b00000011),
        (0b11011100, 2, 0b11000000),  # the shortest run that is long enough
        (0b10101010, 2, 0b00001010),  # no run: the lowest
        (0b01110111, 4, 0b00010111),
    ],
)
def test_which_devices_of_a_node(free: int, count: int, chosen: int):
    assert choose(free, count) == chosen


def test_runs_are_maximal():
    assert runs(0b11011101) == [(0, 1), (2, 3), (6, 2)]


@pytest.mark.parametrize("gap", [0, 1])
def test_windows_may_touch_but_not_overlap(gap: int):
    nodes = [host("a", busy=(Busy(FULL, 0, HOUR),))]
    found = Placer(nodes).place(demand(1, start=HOUR - gap, end=2 * HOUR))
    assert isinstance(found, Shortfall) is bool(gap)


def test_a_gang_gets_distinct_nodes():
    found = Placer([host("a"), host("b"), host("c")]).place(demand(8, nodes=2))
    assert isinstance(found, Assignment)
    assert [name for name, _ in found.hosts] == ["a", "b"]


BUSY_5_FREE = (Busy(0b00000111, 0, 14 * HOUR),)


@pytest.mark.clause("CRE-14", "pending reasons with numbers")
@pytest.mark.parametrize(
    ("nodes", "asked", "reason", "words"),
    [
        pytest.param(
            [host("a", busy=(Busy(FULL, 0, HOUR),))],
            demand(1),
            "NoFreeDevices",
            "needs 1 gpu on one node; the freest node has 0 until 1970-01-01 01:00 UTC",
            id="all taken",
        ),
        pytest.param(
            [host("a", busy=BUSY_5_FREE), host("b", busy=(Busy(FULL, 0, HOUR),))],
            demand(8),
            "NoFreeDevices",
            "needs 8 gpu on one node; the freest node has 5 until 1970-01-01 14:00 UTC",
            id="the contract's example",
        ),
        pytest.param(
            [host("a", busy=BUSY_5_FREE), host("b", busy=BUSY_5_FREE)],
            demand(8),
            "Fragmented",
            "needs 8 gpu on one node; the freest node has 5 until 1970-01-01 14:00 UTC; 10 are free in all",
            id="enough, but scattered",
        ),
        pytest.param(
            [host("a"), host("b", busy=BUSY_5_FREE), host("c", busy=BUSY_5_FREE)],
            demand(8, nodes=2),
            "Fragmented",
            "needs 8 gpu on each of 2 nodes; 1 of 3 nodes have that many free; 18 are free in all",
            id="a gang",
        ),
        pytest.param(
            [host("a", bookable=0), host("b", busy=BUSY_5_FREE)],
            demand(8, nodes=2),
            "NodesUnavailable",
            "needs 8 gpu on each of 2 nodes; 1 of 2 nodes take no bookings or have unhealthy devices just now",
            id="cordoned",
        ),
        pytest.param(
            [host("a")],
            demand(9),
            "NeverFits",
            "needs 9 gpu on one node; the pool has 1 nodes, the largest with 8",
            id="larger than any node",
        ),
        pytest.param(
            [host("a"), host("b")],
            demand(16),
            "NeverFits",
            "needs 16 gpu on one node; the pool has 2 nodes, the largest with 8;"
            " a gang over several nodes can be asked for with 'nodes'",
            id="hints at a gang",
        ),
        pytest.param(
            [], demand(1), "NeverFits", "needs 1 gpu on one node; the pool has 0 nodes, the largest with 0", id="empty"
        ),
    ],
)
def test_why_not(nodes: list[Host], asked: Demand, reason: str, words: str):
    found = Placer(nodes).place(asked)
    assert isinstance(found, Shortfall)
    assert (found.reason, found.message) == (reason, words)


def test_a_larger_shape_shares_the_explanation_in_its_own_numbers():
    placer = Placer([host("a", busy=BUSY_5_FREE)])
    first, second = placer.place(demand(6)), placer.place(demand(7))
    assert isinstance(first, Shortfall)
    assert isinstance(second, Shortfall)
    assert second.message == first.message.replace("needs 6", "needs 7")
    assert isinstance(placer.place(demand(5)), Assignment)
    assert isinstance(placer.place(demand(9)), Shortfall)


windows = st.tuples(st.integers(0, 20), st.integers(1, 10)).map(lambda w: (w[0], w[0] + w[1]))
busies = st.builds(lambda mask, w: Busy(mask, *w), st.integers(1, FULL), windows)
hosts = st.lists(
    st.tuples(st.integers(0, FULL), st.integers(0, FULL), st.lists(busies, max_size=4)), min_size=1, max_size=5
).map(lambda rows: [Host(f"n{i}", d, d & b, tuple(busy)) for i, (d, b, busy) in enumerate(rows)])
demands = st.lists(
    st.builds(
        lambda count, nodes, w, i: Demand(f"r{i}", count, nodes, *w),
        st.integers(1, 9),
        st.integers(1, 3),
        windows,
        st.integers(0, 99),
    ),
    max_size=12,
)


@given(hosts, demands)
def test_nothing_is_ever_booked_twice_and_everything_asked_for_is_given(nodes: list[Host], asked: list[Demand]):
    placer = Placer(nodes)
    taken = defaultdict(list, {h.id: list(h.busy) for h in nodes})
    by_id = {h.id: h for h in nodes}
    for one in asked:
        found = placer.place(one)
        if isinstance(found, Shortfall):
            continue
        assert len({name for name, _ in found.hosts}) == one.nodes
        for name, mask in found.hosts:
            assert mask.bit_count() == one.count
            assert mask & ~by_id[name].bookable == 0
            for busy in taken[name]:
                assert not (busy.starts_at < one.ends_at and one.starts_at < busy.ends_at and busy.mask & mask)
            taken[name].append(Busy(mask, one.starts_at, one.ends_at))


@given(hosts, demands)
def test_it_is_deterministic_whatever_the_order_of_the_nodes(nodes: list[Host], asked: list[Demand]):
    there, back = Placer(nodes), Placer(nodes[::-1])
    assert [there.place(d) for d in asked] == [back.place(d) for d in asked]


@given(hosts, demands)
def test_remembering_what_failed_changes_no_outcome(nodes: list[Host], asked: list[Demand]):
    """The short cut for larger shapes gives what a full scan would."""
    placer = Placer(nodes)
    for one in asked:
        full = Placer(placer.hosts).place(one)
        assert type(placer.place(one)) is type(full)


@given(hosts, st.integers(1, 8), windows)
def test_a_refusal_is_true(nodes: list[Host], count: int, window: tuple[int, int]):
    asked = Demand("r", count, 1, *window)
    fits = any(len(positions(h.free(*window))) >= count for h in nodes)
    assert isinstance(Placer(nodes).place(asked), Assignment) is fits
