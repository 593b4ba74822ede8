"""REC-3: who is next among those that wait."""

import pytest

from reservations.domain.order import Waiting, WaitingOrder


def order(waiting: list[Waiting], held: dict[str, int], *, placed: bool = True) -> list[str]:
    queue = WaitingOrder(waiting, held)
    found = []
    for item in queue:
        found.append(item.id)
        if placed:
            queue.took(item)
    return found


@pytest.mark.clause("REC-3", "higher priority first")
def test_priority_comes_before_age():
    assert order([Waiting("old", "a", 50, 1, 1), Waiting("urgent", "b", 60, 2, 1)], {}) == ["urgent", "old"]


@pytest.mark.clause("REC-3", "among equals the tenant that holds least")
def test_who_holds_least_comes_before_age():
    assert order([Waiting("rich", "a", 50, 1, 1), Waiting("poor", "b", 50, 2, 1)], {"a": 8}) == ["poor", "rich"]


@pytest.mark.clause("REC-3", "then older first")
def test_age_decides_last():
    assert order([Waiting("y", "a", 50, 2, 1), Waiting("x", "a", 50, 1, 1), Waiting("z", "b", 50, 3, 1)], {}) == [
        "x",
        "z",
        "y",
    ]


def test_what_is_placed_counts_from_then_on():
    waiting = [Waiting(f"a{i}", "a", 50, i, 4) for i in range(3)] + [
        Waiting(f"b{i}", "b", 50, 10 + i, 4) for i in range(3)
    ]
    assert order(waiting, {}) == ["a0", "b0", "a1", "b1", "a2", "b2"]
    assert order(waiting, {}, placed=False) == ["a0", "a1", "a2", "b0", "b1", "b2"]
