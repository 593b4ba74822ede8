"""Who is lost and who is one of many: the rules, by tables and properties (REC-4, REC-8)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.domain.silence import LOST_AFTER, SUSPECT_AFTER, Limits, Quiet, judge

LIMITS = Limits(percent=30, nodes=3, within=60_000)


def quiet(*contacts: int, overdue: bool = True, **changed: bool) -> list[Quiet]:
    return [Quiet(f"n{index}", contact, overdue, **changed) for index, contact in enumerate(contacts)]


def test_a_whole_heartbeat_lies_between_suspicion_and_loss():
    """Nodes cut off at one moment were heard up to a heartbeat apart: all are suspected when the first is overdue."""
    assert LOST_AFTER - SUSPECT_AFTER >= 10_000


@pytest.mark.clause("REC-8", "more than 30 % and at least three, within one minute")
@pytest.mark.parametrize(
    ("contacts", "nodes", "many"),
    [
        ((0, 1, 2), 9, 3),  # a third
        ((0, 1, 2), 10, 0),  # 30 % are not more than 30 %
        ((0, 1, 2, 3), 13, 4),
        ((0, 1), 2, 0),  # all of them, but they are two
        ((0, 30_000, 60_000), 4, 3),  # just within the minute
        ((0, 30_000, 60_001), 4, 0),
        ((0, 50_000, 100_000, 101_000), 9, 3),  # the last three are; the first is out of their minute
    ],
)
def test_how_much_silence_is_not_believed_of_the_nodes(contacts, nodes, many):
    verdict = judge(quiet(*contacts), nodes=nodes, limits=LIMITS)
    assert len(verdict.many) == many
    assert len(verdict.lost) == len(contacts) - many


@pytest.mark.clause("REC-8", "none of them is declared lost: also those that are not overdue yet count")
def test_the_first_is_not_lost_while_the_others_become_silent():
    first, *others = quiet(0, 9_000, 10_000)
    others = [Quiet(one.id, one.last_contact, overdue=False) for one in others]
    assert judge([first, *others], nodes=3, limits=LIMITS).lost == ()
    assert judge([first], nodes=3, limits=LIMITS).lost == ("n0",)


def test_nothing_is_said_before_anybody_is_overdue():
    verdict = judge(quiet(0, 1, 2, overdue=False), nodes=3, limits=LIMITS)
    assert (verdict.lost, verdict.many) == ((), ())


@pytest.mark.clause("REC-8", "one that was declared lost before the others fell silent is taken back")
def test_a_lost_one_counts_with_those_that_follow_it():
    lost = Quiet("a", 0, overdue=True, lost=True)
    verdict = judge([lost, *quiet(20_000, 40_000)], nodes=5, limits=LIMITS)
    assert verdict.many == ("a", "n0", "n1")
    # Three that are lost by themselves are no mass, whatever else becomes of the pool.
    assert judge(quiet(0, 1, 2, lost=True), nodes=3, limits=LIMITS).many == ()


@pytest.mark.clause("REC-8", "until an operator says so: what has had that word is not counted again")
def test_what_an_operator_has_settled_does_not_count():
    settled = quiet(0, 1, 2, lost=True)
    later = Quiet("z", 50_000, overdue=True)
    verdict = judge([*settled, later], nodes=4, limits=LIMITS, settled_before=45_000)
    assert (verdict.lost, verdict.many) == (("z",), ())


def test_whoever_is_held_stays_held_by_itself():
    verdict = judge([Quiet("a", 0, overdue=True, held=True)], nodes=100, limits=LIMITS)
    assert (verdict.lost, verdict.many) == ((), ("a",))


NODES = st.lists(
    st.builds(
        Quiet,
        st.uuids().map(str),
        st.integers(0, 300_000),
        st.booleans(),
        lost=st.booleans(),
        held=st.booleans(),
    ),
    max_size=12,
    unique_by=lambda node: node.id,
)


@given(NODES, st.integers(1, 40))
def test_every_overdue_node_is_lost_or_one_of_many_and_never_both(nodes, total):
    verdict = judge(nodes, nodes=max(total, len(nodes)), limits=LIMITS)
    assert not set(verdict.lost) & set(verdict.many)
    by_id = {node.id: node for node in nodes}
    undecided = {node.id for node in nodes if node.overdue and not node.lost}
    assert undecided <= set(verdict.lost) | set(verdict.many)
    assert all(by_id[id_].overdue and not by_id[id_].lost for id_ in verdict.lost)
    assert judge(list(reversed(nodes)), nodes=max(total, len(nodes)), limits=LIMITS) == verdict
