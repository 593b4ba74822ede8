"""The first in line and its shadow (REC-9): it is not passed for ever, and does not starve those behind it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservations.domain.demands import Assignment, Demand, Shortfall
from reservations.domain.hosts import FOREVER, Amounts, Busy, Host, Use
from reservations.domain.line import InLine, Line
from reservations.domain.order import Waiting
from reservations.domain.placement import Placer

FULL = 0b1111
# Three of four devices are taken until 10.
NODE = Host("a", FULL, FULL, (Busy(0b0111, 0, 10),))


def waiting(name: str, *, priority: int = 50, tenant: str = "t", created: int = 0, devices: int = 1) -> Waiting:
    return Waiting(name, tenant, priority, created, devices)


def entry(name: str, count: int, *, length: int = 5, last: int = FOREVER, start: int = 0, **of: int | str) -> InLine:
    demand = Demand(name, count, 1, start, start + length)
    return InLine(waiting(name, devices=count, **of), demand, last)  # type: ignore[arg-type]


def line(nodes: list[Host], *entries: InLine, held: dict[str, int] | None = None, before: int = 100) -> Line:
    return Line(Placer(nodes), entries, lambda: held or {}, before=before)


def comes(to: Line, one: InLine) -> str:
    """What a request that comes now is answered: where it is placed, or why not."""
    found = to.place(one.waiting, one.demand)
    if isinstance(found, Assignment):
        to.took(one.waiting, found)
        return ", ".join(f"{host}:{mask:b}" for host, mask in found.hosts)
    to.joins(one)
    return found.reason


@pytest.mark.clause("REC-9", "those behind it pass only if they end before its shadow start")
@pytest.mark.parametrize(("length", "answer"), [(10, "a:1000"), (11, "BehindQueueHead")])
def test_behind_the_first_only_what_ends_in_time_passes(length: int, answer: str):
    assert comes(line([NODE], entry("head", 4)), entry("new", 1, length=length, created=1)) == answer


@pytest.mark.clause("REC-9", "or leave its devices free")
def test_what_leaves_the_devices_of_the_first_alone_passes():
    # The head gets three devices at 10, so the fourth is nobody's.
    assert comes(line([NODE], entry("head", 3)), entry("new", 1, length=50, created=1)) == "a:1000"
    two = [NODE, Host("b", 0b1, 0b1)]
    assert comes(line(two, entry("head", 4)), entry("new", 1, length=50, created=1)) == "b:1"


@pytest.mark.clause("REC-9", "or leave its devices free")
def test_host_amounts_are_kept_for_the_first_too():
    node = Host("a", FULL, FULL, (Busy(0b0111, 0, 10),), Amounts(8), (Use(0, 10, (6, 0, 0)),))
    head = InLine(waiting("head"), Demand("head", 3, 1, 0, 5, need=Amounts(7)), FOREVER)
    for need, fits in ((1, True), (2, False)):
        demand = Demand("new", 1, 1, 0, 50, need=Amounts(need))
        found = line([node], head).place(waiting("new", created=1), demand)
        assert isinstance(found, Assignment) is fits


@pytest.mark.clause("CRE-14", "pending reasons with numbers")
def test_the_words_say_until_when_the_devices_are_free_and_not_for_whom():
    found = line([NODE], entry("head", 4)).place(waiting("new", created=1), Demand("new", 1, 1, 0, 50))
    assert isinstance(found, Shortfall)
    assert found.message == (
        "needs 1 gpu on one node; that many are free, but the first in line starts on them at 1970-01-01 00:00 UTC"
    )


@pytest.mark.clause("REC-9", "only those behind it: a higher priority is before it")
def test_what_comes_before_the_first_is_not_held_up_by_it():
    there = line([NODE], entry("head", 4))
    assert comes(there, entry("new", 1, length=50, created=1, priority=60)) == "a:1000"
    # It has taken a device of the shadow, so the head's earliest fit is looked for anew: at 50 now.
    assert comes(there, entry("next", 1, length=10, start=10, created=2)) == "a:1"
    assert comes(there, entry("long", 1, length=45, start=10, created=2)) == "BehindQueueHead"


@pytest.mark.clause("QTA-4", "among equals of REC-9 too the tenant that holds least is first")
@pytest.mark.parametrize(("held", "answer"), [({"rich": 5, "poor": 1}, "a:1000"), ({"poor": 6}, "BehindQueueHead")])
def test_who_holds_least_is_before_it(held: dict[str, int], answer: str):
    there = line([NODE], entry("head", 4, tenant="rich"), held=held)
    assert comes(there, entry("new", 1, length=50, created=1, tenant="poor")) == answer


@pytest.mark.clause("REC-9", "the first that could ever fit")
def test_one_that_could_not_fit_in_time_is_not_the_first():
    for hopeless in (entry("late", 4, last=9), entry("sick", 5, priority=90)):
        assert comes(line([NODE], hopeless), entry("new", 1, length=50, created=1)) == "a:1000"
    assert comes(line([NODE], entry("just", 4, last=10)), entry("new", 1, length=50, created=1)) == "BehindQueueHead"


@pytest.mark.clause("REC-9", "one shadow per pool")
def test_only_the_first_has_a_shadow():
    nodes = [NODE, Host("b", FULL, FULL, (Busy(0b0111, 0, 10),))]
    there = line(nodes, entry("head", 4), entry("second", 4, created=1))
    # The head has one node of the two to itself, the second none.
    assert comes(there, entry("new", 1, length=50, created=2)) == "b:1000"


@pytest.mark.clause("REC-9", "new requests too")
def test_what_has_just_begun_to_wait_can_be_the_first():
    there = line([NODE])
    assert comes(there, entry("head", 4)) == "NoFreeDevices"
    assert comes(there, entry("new", 1, length=50, created=1)) == "BehindQueueHead"
    assert comes(there, entry("short", 1, length=10, created=1)) == "a:1000"


def test_a_first_that_fits_now_is_protected_now():
    there = line([Host("a", FULL, FULL)], entry("head", 4))
    assert comes(there, entry("new", 1, length=1, created=1)) == "BehindQueueHead"


entries = st.lists(
    st.builds(
        lambda count, length, start, priority, created: (count, length, start, priority, created),
        st.integers(1, 4),
        st.integers(1, 12),
        st.integers(0, 6),
        st.integers(0, 2),
        st.integers(0, 3),
    ),
    max_size=14,
)
busies = st.lists(
    st.builds(lambda m, s, d: Busy(m, s, s + d), st.integers(1, FULL), st.integers(0, 9), st.integers(1, 9)), max_size=4
)


@pytest.mark.clause("REC-9", "it is not passed for ever")
@given(busies, entries)
def test_nobody_who_comes_after_the_first_delays_it(busy: list[Busy], asked: list[tuple[int, int, int, int, int]]):
    nodes = [Host("a", FULL, FULL, tuple(busy)), Host("b", 0b11, 0b11)]
    head = entry("head", 4, length=6, priority=2, created=-1)
    start = Placer(nodes).earliest(head.demand, before=200)
    there = line(nodes, head, before=200)
    for i, (count, length, begin, priority, created) in enumerate(asked):
        comes(there, entry(f"r{i}", count, length=length, start=begin, priority=priority, created=created))
    assert Placer(there._placer.hosts).earliest(head.demand, before=200) == start


def test_in_a_pass_whoever_comes_later_is_behind():
    there = Line(Placer([NODE]), (), dict, before=100, in_order=True)
    assert comes(there, entry("head", 4, tenant="rich")) == "NoFreeDevices"
    assert comes(there, entry("poor", 1, length=50, tenant="poor", priority=90)) == "BehindQueueHead"
    assert comes(there, entry("short", 1, length=10, tenant="poor")) == "a:1000"
