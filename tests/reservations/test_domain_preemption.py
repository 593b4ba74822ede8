"""Who makes way: tables for the order, properties for what must always hold (PRE-1)."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservations.domain import preemption
from reservations.domain.demands import Demand
from reservations.domain.hosts import Amounts, Busy, Host, Use
from reservations.domain.preemption import Part, Victim, choose_victims, vacated

HOUR = 3_600_000
FULL = 0xFF


def demand(count: int, *, nodes: int = 1, start: int = 0, end: int = HOUR) -> Demand:
    return Demand("claimant", count, nodes, start, end)


def spot(name: str, *places: tuple[str, int], priority: int = 50, born: int = 0, window=(0, HOUR)) -> Victim:
    """A spot reservation on these (host, mask)."""
    return Victim(name, priority, born, {host: Part((Busy(mask, *window),)) for host, mask in places})


def pool(names: str, victims: Sequence[Victim], *others: tuple[str, Busy]) -> list[Host]:
    """Hosts of eight devices with the victims and what others have booked there."""
    hosts = []
    for name in names:
        busy = [busy for victim in victims if name in victim.parts for busy in victim.parts[name].busy]
        busy += [one for host, one in others if host == name]
        hosts.append(Host(name, FULL, FULL, tuple(busy)))
    return hosts


def fits(asked: Demand, hosts: Sequence[Host], gone: Collection[Victim]) -> bool:
    left = [vacated(host, [v.parts[host.id] for v in gone if host.id in v.parts]) for host in hosts]
    free = [host.free(asked.starts_at, asked.ends_at, asked.need).bit_count() for host in left]
    return sum(count >= asked.count for count in free) >= asked.nodes


def chosen(asked: Demand, hosts: Sequence[Host], victims: Sequence[Victim]) -> list[str]:
    return [victim.id for victim in choose_victims(asked, hosts, victims)]


@pytest.mark.clause("PRE-1", "the nodes with the fewest victims first")
def test_the_node_with_the_fewest_victims():
    victims = [spot("a1", ("a", 0x0F), priority=0), spot("a2", ("a", 0xF0), priority=0), spot("b", ("b", FULL))]
    assert chosen(demand(8), pool("ab", victims), victims) == ["b"]


@pytest.mark.clause("PRE-1", "for whole GPUs on one node exactly the fewest")
def test_one_of_a_high_priority_rather_than_two_of_a_low():
    victims = [
        spot("low1", ("a", 0b11), priority=0),
        spot("low2", ("a", 0b1100), priority=0),
        spot("high", ("a", 0xF0), priority=90),
    ]
    assert chosen(demand(4), pool("a", victims), victims) == ["high"]


@pytest.mark.clause("PRE-1", "on them the lowest priority, then the youngest")
@pytest.mark.parametrize(
    ("priorities", "born", "goes"),
    [((50, 10), (5, 1), "v1"), ((10, 50), (1, 5), "v0"), ((10, 10), (1, 5), "v1"), ((10, 10), (5, 1), "v0")],
)
def test_the_lowest_priority_then_the_youngest(priorities, born, goes):
    victims = [
        spot(f"v{i}", ("a", 0x0F << 4 * i), priority=p, born=b)
        for i, (p, b) in enumerate(zip(priorities, born, strict=True))
    ]
    assert chosen(demand(4), pool("a", victims), victims) == [goes]
    apart = [spot("v0", ("a", FULL), priority=priorities[0], born=born[0])]
    apart += [spot("v1", ("b", FULL), priority=priorities[1], born=born[1])]
    assert chosen(demand(4), pool("ab", apart), apart) == [goes]


@pytest.mark.clause("PRE-1", "all or nothing")
def test_if_all_of_them_are_not_enough_nobody_goes():
    victims = [spot("v", ("a", 0x0F))]
    taken = ("a", Busy(0xF0, 0, HOUR))
    assert chosen(demand(5), pool("a", victims, taken), victims) == []
    assert chosen(demand(4), pool("a", victims, taken), victims) == ["v"]
    assert chosen(demand(4, nodes=2), pool("ab", victims, taken, ("b", Busy(FULL, 0, HOUR))), victims) == []


def test_nobody_goes_for_what_fits():
    victims = [spot("v", ("a", 0x0F))]
    assert chosen(demand(4), pool("a", victims), victims) == []


@pytest.mark.clause("PRE-1", "only who is in the way during the window")
def test_who_is_there_at_another_time_stays():
    victims = [
        spot("before", ("a", FULL), window=(0, HOUR)),
        spot("during", ("a", 0x0F), window=(HOUR, 2 * HOUR)),
        spot("after", ("a", FULL), window=(2 * HOUR, 3 * HOUR)),
    ]
    assert chosen(demand(8, start=HOUR, end=2 * HOUR), pool("a", victims), victims) == ["during"]


@pytest.mark.clause("PRE-1", "a device that several have in turn")
def test_one_device_that_several_have_in_turn():
    victims = [
        spot("all day", ("a", 0x01), window=(0, 4 * HOUR)),
        *(spot(f"hour {i}", ("a", 0xFE), window=(i * HOUR, (i + 1) * HOUR), priority=0) for i in range(4)),
    ]
    assert chosen(demand(1, end=4 * HOUR), pool("a", victims), victims) == ["all day"]
    assert len(chosen(demand(2, end=4 * HOUR), pool("a", victims), victims)) == 4


@pytest.mark.clause("PRE-1", "a gang: free nodes first, then those with the fewest victims")
def test_a_gang_takes_what_is_free_first():
    victims = [spot("b", ("b", FULL)), spot("c1", ("c", 0x0F), born=1), spot("c2", ("c", 0xF0), born=2)]
    hosts = pool("abc", victims)
    assert chosen(demand(8, nodes=2), hosts, victims) == ["b"]
    assert chosen(demand(8, nodes=3), hosts, victims) == ["c2", "c1", "b"]


@pytest.mark.clause("PRE-1", "a victim that is a gang frees all its nodes")
def test_a_victim_on_several_nodes_counts_once():
    victims = [
        spot("gang", ("a", FULL), ("b", FULL), priority=90),
        spot("c1", ("c", 0x0F)),
        spot("c2", ("c", 0xF0)),
    ]
    assert chosen(demand(8, nodes=2), pool("abc", victims), victims) == ["gang"]


@pytest.mark.clause("PRE-1", "drops every victim that turns out not to be needed")
def test_a_victim_that_another_one_makes_superfluous_stays():
    # The lowest is taken first, for node a; what one more node then needs frees two.
    victims = [spot("a", ("a", FULL), priority=0), spot("both", ("b", FULL), ("c", FULL), priority=10)]
    assert chosen(demand(8, nodes=2), pool("abc", victims), victims) == ["both"]


@pytest.mark.clause("PRE-1", "host amounts count as well as devices")
def test_who_holds_the_memory_goes():
    small, large = Use(0, HOUR, (0, 10, 0)), Use(0, HOUR, (0, 90, 0))
    victims = [
        Victim("many devices", 0, 0, {"a": Part((Busy(0x3F, 0, HOUR),), (small,))}),
        Victim("much memory", 50, 0, {"a": Part((Busy(0x40, 0, HOUR),), (large,))}),
    ]
    hosts = [Host("a", FULL, FULL, (Busy(0x3F, 0, HOUR), Busy(0x40, 0, HOUR)), Amounts(0, 100, 0), (small, large))]
    assert chosen(Demand("r", 1, 1, 0, HOUR, need=Amounts(0, 50, 0)), hosts, victims) == ["much memory"]
    assert chosen(Demand("r", 2, 1, 0, HOUR), hosts, victims) == ["many devices"]
    assert chosen(Demand("r", 1, 1, 0, HOUR, need=Amounts(0, 101, 0)), hosts, victims) == []


# Small pools: who is on a device changes in time, and nobody is there at once with somebody else.
TIMES = [(0, 1), (0, 2), (1, 2), (0, 3), (2, 3), (1, 3)]


@st.composite
def crowds(draw: st.DrawFn, *, nodes: int) -> tuple[list[Host], list[Victim]]:
    """Hosts of four devices and 20 MiB, on each some spot reservations and some others."""
    names = "abc"[:nodes]
    taken: dict[str, list[Part]] = {name: [] for name in names}
    parts: dict[str, dict[str, Part]] = {}
    for number in range(draw(st.integers(1, 7))):
        start, end = draw(st.sampled_from(TIMES))
        is_spot = draw(st.integers(0, 3)) > 0
        for name in draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True)):
            others = [b for part in taken[name] for b in part.busy if b.starts_at < end and start < b.ends_at]
            mask = draw(st.integers(1, 15))
            for other in others:
                mask &= ~other.mask
            if mask:
                use = Use(start, end, (0, draw(st.integers(0, 5)), 0))
                taken[name].append(Part((Busy(mask, start, end),), (use,)))
                if is_spot:
                    parts.setdefault(f"v{number}", {})[name] = taken[name][-1]
    hosts = [
        Host(
            name,
            15,
            draw(st.sampled_from([15, 15, 7])),
            tuple(b for part in taken[name] for b in part.busy),
            Amounts(0, 20, 0),
            tuple(u for part in taken[name] for u in part.used),
        )
        for name in names
    ]
    rank = st.tuples(st.integers(0, 2), st.integers(0, 2))
    return hosts, [Victim(name, *draw(rank), found) for name, found in parts.items()]


demands = st.builds(
    lambda count, nodes, window, memory: Demand(
        "claimant", count, nodes, window[0], window[1], need=Amounts(0, memory, 0)
    ),
    st.integers(1, 4),
    st.integers(1, 3),
    st.sampled_from(TIMES),
    st.sampled_from([0, 0, 5, 15]),
)


@pytest.mark.clause("PRE-1", "the victims suffice, and each is needed")
@given(crowds(nodes=3), demands)
def test_the_victims_suffice_and_each_is_needed(crowd: tuple[list[Host], list[Victim]], asked: Demand):
    hosts, victims = crowd
    found = choose_victims(asked, hosts, victims)
    if not found:
        assert fits(asked, hosts, []) or not fits(asked, hosts, victims)
        return
    assert fits(asked, hosts, found)
    assert not any(fits(asked, hosts, [v for v in found if v is not one]) for one in found)
    assert [v.rank for v in found] == sorted(v.rank for v in found)


@pytest.mark.clause("PRE-1", "for whole GPUs on one node exactly the fewest")
@given(crowds(nodes=2), demands)
def test_no_smaller_set_makes_room_on_one_node(crowd: tuple[list[Host], list[Victim]], asked: Demand):
    hosts, victims = crowd
    asked = replace(asked, nodes=1)
    found = choose_victims(asked, hosts, victims)
    for size in range(len(found)):
        assert not any(fits(asked, hosts, some) for some in combinations(victims, size))


@pytest.mark.clause("PRE-1", "the victims suffice, and each is needed")
@pytest.mark.parametrize("limit", ["CROWD", "WORK"])
def test_where_there_are_too_many_sets_to_try(monkeypatch: pytest.MonkeyPatch, limit: str):
    monkeypatch.setattr(preemption, limit, -1)
    victims = [spot(f"v{p}", ("a", 1 << p), priority=p) for p in range(8)]
    assert chosen(demand(3), pool("a", victims), victims) == ["v0", "v1", "v2"]


def test_a_crowded_pool_is_searched_in_time():
    """A thousand nodes full of single-GPU spot work: the bound by devices finds the size without trying smaller."""
    victims = [spot(f"{n}-{p}", (f"n{n}", 1 << p), priority=p, born=n) for n in range(1000) for p in range(8)]
    busy = {f"n{n}": tuple(Busy(1 << p, 0, HOUR) for p in range(8)) for n in range(1000)}
    hosts = [Host(name, FULL, FULL, found) for name, found in busy.items()]
    assert chosen(demand(8), hosts, victims) == [f"999-{p}" for p in range(8)]
    assert len(chosen(demand(4, nodes=3), hosts, victims)) == 12


def test_a_pool_of_slots_is_searched_in_time():
    """Thousands on one host: nobody tries their sets."""
    victims = [spot(f"{n}-{p}", (f"n{n}", 1 << p), priority=p % 7, born=n) for n in range(4) for p in range(2048)]
    busy = {f"n{n}": tuple(Busy(1 << p, 0, HOUR) for p in range(2048)) for n in range(4)}
    hosts = [Host(name, (1 << 2048) - 1, (1 << 2048) - 1, found) for name, found in busy.items()]
    found = choose_victims(demand(64), hosts, victims)
    assert len(found) == 64
    assert len({host for victim in found for host in victim.parts}) == 1
    assert {victim.priority for victim in found} == {0}
