"""Host amounts are sums whose peak counts (HST-1); what a request books of them, and what of that is charged."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservations.domain import charges, shares
from reservations.domain.hosts import NOTHING, Amounts, Busy, Host, Use, peak, shortages
from reservations.domain.placement import Assignment, Demand, Placer, Shortfall

BIG = Amounts(8_000, 64, 2)
windows = st.tuples(st.integers(0, 20), st.integers(1, 10)).map(lambda w: (w[0], w[0] + w[1]))
amounts = st.builds(Amounts, st.integers(0, 5), st.integers(0, 5), st.integers(0, 2))
uses = st.lists(st.builds(lambda w, a: Use(w[0], w[1], a), windows, amounts), max_size=6)


def used_at(used: list[Use], moment: int) -> tuple[int, ...]:
    return tuple(sum(use.amounts[i] for use in used if use.starts_at <= moment < use.ends_at) for i in range(3))


@pytest.mark.clause("HST-1", "never exceeds what the node reports, at any instant")
@given(amounts, uses, amounts)
def test_it_is_short_exactly_when_the_sum_is_over_what_there_is(capacity: Amounts, used: list[Use], need: Amounts):
    short = shortages(capacity, used, need)
    for moment in range(32):
        over = any(n + u > c for n, u, c in zip(need, used_at(used, moment), capacity, strict=True))
        assert over is any(begin <= moment < end for begin, end in short)


@given(uses, windows)
def test_the_peak_is_the_largest_sum_of_any_instant(used: list[Use], window: tuple[int, int]):
    sums = [used_at(used, moment) for moment in range(*window)]
    assert peak(used, *window) == tuple(max(column) for column in zip(*sums, strict=True))


@pytest.mark.clause("HST-1", "two that follow each other need the larger, not the sum")
def test_bookings_one_after_the_other_are_not_added_up():
    host = Host("a", 0xFF, 0xFF, capacity=BIG, used=[Use(0, 5, (5_000, 0, 0)), Use(5, 10, (6_000, 0, 0))])
    assert host.has_room(0, 10, Amounts(2_000))
    assert not host.has_room(0, 10, Amounts(2_001))
    assert host.has_room(0, 5, Amounts(3_000))


@pytest.mark.clause("HST-1", "a node that reports less takes nothing new until it fits")
def test_a_node_that_has_come_to_report_less_takes_nothing():
    host = Host("a", 0xFF, 0xFF, capacity=Amounts(4_000, 64), used=[Use(0, 5, (5_000, 0, 0))])
    found = Placer([host]).place(Demand("r", 1, 1, 0, 3))
    assert isinstance(found, Shortfall)
    assert found.reason == "HostResourcesShort"
    assert "report less of their hosts than is booked" in found.message
    assert isinstance(Placer([host]).place(Demand("r", 1, 1, 5, 8)), Assignment)


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 2), windows, amounts), max_size=12), amounts)
def test_placing_never_books_more_than_there_is(asked: list[tuple[int, int, tuple[int, int], Amounts]], cap: Amounts):
    placer = Placer([Host(f"n{i}", 0xFF, 0xFF, capacity=cap) for i in range(2)])
    for i, (count, nodes, window, need) in enumerate(asked):
        placer.place(Demand(f"r{i}", count, nodes, *window, need=need))
    for host in placer.hosts:
        for moment in range(32):
            assert all(u <= c for u, c in zip(used_at(list(host.used), moment), cap, strict=True))
            masks = [b.mask for b in host.busy if b.starts_at <= moment < b.ends_at]
            assert sum(m.bit_count() for m in masks) == sum(masks).bit_count(), "no device twice"


@pytest.mark.clause("CRE-14", "pending reasons with numbers")
@pytest.mark.parametrize(
    ("need", "nodes", "reason", "words"),
    [
        pytest.param(
            Amounts(4_000, 8),
            [Host("a", 3, 3, capacity=BIG, used=[Use(0, 9, (5_500, 8, 0))])],
            "HostResourcesShort",
            "needs 1 gpu with 4 vCPU and 0.008 GiB on one node; 1 nodes have the gpu free, none with more than"
            " 2.5 vCPU and 0.055 GiB left",
            id="too little left",
        ),
        pytest.param(
            Amounts(9_000),
            [Host("a", 3, 3, capacity=BIG)],
            "NeverFits",
            "needs 1 gpu on one node; the pool has 1 nodes, the largest with 2; a node has at most 8 vCPU",
            id="more than any node has",
        ),
        pytest.param(
            Amounts(1),
            [Host("a", 3, 3)],
            "NeverFits",
            "needs 1 gpu on one node; the pool has 1 nodes, the largest with 2; a node has at most 0 vCPU",
            id="no rows",
        ),
        pytest.param(
            NOTHING,
            [Host("a", 3, 3, (Busy(-1, 5, 9),))],
            "NodesUnavailable",
            "needs 1 gpu on one node; 1 of 1 nodes have maintenance in that time",
            id="maintenance",
        ),
        pytest.param(
            NOTHING,
            [Host("a", 3, 3, (Busy(-1, 5, 9),)), Host("b", 3, 0)],
            "NodesUnavailable",
            "needs 1 gpu on one node; 1 of 2 nodes take no bookings or have unhealthy devices just now, and 1 of 2"
            " nodes have maintenance in that time",
            id="maintenance beside a cordon",
        ),
    ],
)
def test_why_not(need: Amounts, nodes: list[Host], reason: str, words: str):
    found = Placer(nodes).place(Demand("r", 1, 1, 0, 8, need=need))
    assert isinstance(found, Shortfall)
    assert (found.reason, found.message) == (reason, words)


@pytest.mark.clause("HST-3", "in a mixed pool a host without rows takes no demand above 0")
def test_a_host_without_rows_takes_only_what_needs_nothing_of_it():
    nodes = [Host("a", 3, 3), Host("b", 3, 3, capacity=BIG)]
    found = Placer(nodes).place(Demand("r", 1, 1, 0, 8, need=Amounts(1)))
    assert isinstance(found, Assignment)
    assert found.hosts[0][0] == "b"
    found = Placer(nodes).place(Demand("r", 1, 1, 0, 8))
    assert isinstance(found, Assignment)
    assert found.hosts[0][0] == "a"


SHARE = Amounts(15_875, 130_000)


@pytest.mark.parametrize(
    ("asked", "booked"),
    [
        pytest.param(None, Amounts(31_750, 260_000), id="nothing asked: the share", marks=pytest.mark.clause("HST-2")),
        pytest.param({}, Amounts(31_750, 260_000), id="raised to it", marks=pytest.mark.clause("HST-4")),
        pytest.param({"vcpu": 1, "memoryGiB": 1}, Amounts(31_750, 260_000), id="smaller is raised"),
        pytest.param({"vcpu": 40}, Amounts(40_000, 260_000), id="member by member"),
        pytest.param({"hugepages1Gi": 4}, Amounts(31_750, 260_000, 4), id="pages have no share"),
    ],
)
def test_what_two_gpus_book(asked: dict[str, int] | None, booked: Amounts):
    assert shares.booked(asked, shares.share_of("gpu", 2, SHARE)) == booked


@pytest.mark.clause("HST-3", "MIG and slots without resources book none")
@pytest.mark.parametrize("device_class", ["mig", "slot"])
def test_parts_of_a_gpu_have_no_share(device_class: str):
    share = shares.share_of(device_class, 2, SHARE)
    assert shares.booked(None, share) == NOTHING
    assert shares.booked({"vcpu": 1}, share) == Amounts(1_000)


@pytest.mark.clause("HST-5", "the excess, summed over the gang, rounded up; hugepages are memory")
def test_only_what_is_above_the_share_is_charged():
    share = shares.share_of("gpu", 2, SHARE)

    def charged(booked: Amounts) -> dict[str, int]:
        return charges.amounts(device_class="gpu", profile="", count=2, nodes=3, booked=booked, share=share)

    assert charged(share) == {"gpu": 6}
    # 3 x 0.25 vCPU, and on each node 1 MiB and two pages above the share
    more = Amounts(share.vcpu_milli + 250, share.memory_mib + 1, 2)
    assert charged(more) == {"gpu": 6, "vcpu": 1, "memoryGiB": 7}


@pytest.mark.clause("CRE-7", "host amounts: totals over the gang, rounded up to whole units")
def test_totals():
    assert charges.totals(Amounts(250, 1_025, 3), 3) == {"vcpu": 1, "memoryGiB": 4, "hugepages1Gi": 9}


@pytest.mark.clause("QTA-3", "money is decimal, never float")
def test_the_price_counts_devices_vcpu_and_memory():
    price = {"perDeviceHour": "2.20", "perVcpuHour": "0.10", "perGiBHour": "0.01", "currency": "EUR"}
    # 4 devices, 2 nodes of 1.5 vCPU and 2.5 + 1 GiB each, half an hour: (8.80 + 0.30 + 0.07) / 2
    cost = charges.estimated_cost(price, devices=4, nodes=2, booked=Amounts(1_500, 2_560, 1), milliseconds=1_800_000)
    assert cost == Decimal("4.5850")
    assert charges.estimated_cost(None, devices=4, milliseconds=1) == 0


def test_the_dearest_price_is_exact():
    price = {"perDeviceHour": "999999999.999999", "perVcpuHour": "999999999.999999", "currency": "EUR"}
    booked = Amounts(1_000_000_000)
    cost = charges.estimated_cost(price, devices=65_536, nodes=4_096, booked=booked, milliseconds=87_600 * 3_600_000)
    assert cost == Decimal("999999999.999999") * (65_536 + 4_096_000_000) * 87_600
