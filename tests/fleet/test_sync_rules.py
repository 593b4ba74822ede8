"""The pure rules of a sync: which message counts, what it changes."""

import pytest

from fleet.domain.nodes import NODE, STATES
from fleet.domain.sync import (
    Held,
    Known,
    ReportedDevice,
    Standing,
    Wanted,
    allocation_changes,
    device_changes,
    standing,
)
from fleet.models import Node


@pytest.mark.parametrize(
    ("session", "boot", "sequence", "expected"),
    [
        (None, "b1", 1, Standing.OPENING),
        (None, "b2", 99, Standing.OPENING),
        (5, "b1", 11, Standing.CURRENT),
        (5, "b1", 10, Standing.CURRENT),  # the same message again
        (5, "b1", 9, Standing.OLD),
        (4, "b1", 11, Standing.STALE),
        (5, "b2", 11, Standing.STALE),  # another boot has to open its own
        (6, "b1", 11, Standing.AHEAD),
    ],
)
@pytest.mark.clause("NOD-9", "which message is the newest")
def test_where_a_message_stands(session, boot, sequence, expected):
    known = Known(session=5, boot_id="b1", sequence=10)
    assert standing(known, session=session, boot_id=boot, sequence=sequence) is expected


def gpu(position, uuid=None, health="ok", **changed):
    return ReportedDevice(position, uuid or f"GPU-{position}", "h100", 81_920, health, **changed)


@pytest.mark.parametrize(
    ("stored", "reported", "new", "changed", "missing", "gained", "lost"),
    [
        ([], [], [], [], [], False, False),
        ([], [gpu(0), gpu(1)], [0, 1], [], [], True, False),
        ([], [gpu(0, health="unhealthy")], [0], [], [], False, False),
        ([gpu(0)], [gpu(0)], [], [], [], False, False),
        ([gpu(0)], [gpu(0, health="unhealthy")], [], [0], [], False, True),
        ([gpu(0, health="unhealthy")], [gpu(0)], [], [0], [], True, False),
        ([gpu(0)], [gpu(0, slots=4)], [], [0], [], True, False),
        ([gpu(0)], [gpu(0, "GPU-new")], [0], [], [], False, False),  # replaced: the same units
        ([gpu(0), gpu(1)], [gpu(1)], [], [], [0], False, True),
        ([gpu(0, health="missing")], [], [], [], [], False, False),
        ([gpu(0, health="missing")], [gpu(0)], [], [0], [], True, False),
    ],
)
@pytest.mark.clause("NOD-5", "health per device")
def test_what_a_report_changes_of_the_devices(stored, reported, new, changed, missing, gained, lost):
    found = device_changes(stored, reported)
    assert [d.position for d in found.new] == new
    assert [d.position for d in found.changed] == changed
    assert list(found.missing) == missing
    assert (found.gained, found.lost) == (gained, lost)
    assert bool(found) == bool(new or changed or missing)


# desired, observed, reported -> observed afterwards (None: the row goes), news
ALLOCATIONS = [
    ("planned", "", "", "", False),
    ("planned", "", "bound", "bound", True),
    ("bound", "", "", "", False),
    ("bound", "", "bound", "bound", True),
    ("bound", "bound", "bound", "bound", False),
    ("bound", "bound", "", "", True),  # it rebooted and holds nothing any more
    ("bound", "bound", "withdrawing", "withdrawing", True),  # `until` has passed there
    ("bound", "withdrawing", "withdrawn", "withdrawn", True),
    ("bound", "withdrawn", "withdrawn", "withdrawn", False),
    ("withdrawn", "bound", "bound", "bound", False),
    ("withdrawn", "bound", "withdrawing", "withdrawing", True),
    ("withdrawn", "withdrawing", "withdrawn", None, True),
    ("withdrawn", "withdrawn", "withdrawn", None, True),
    ("withdrawn", "bound", "", None, True),
    ("withdrawn", "", "", None, True),
    ("withdrawn", "", "bound", "bound", True),  # it bound before it was told otherwise
]


@pytest.mark.parametrize(("desired", "observed", "said", "after", "news"), ALLOCATIONS)
@pytest.mark.clause("NOD-8", "bound, withdrawing, withdrawn are reported per allocation")
def test_what_a_report_changes_of_an_allocation(desired, observed, said, after, news):
    reported = {"r1": Held(said)} if said else {}
    found = allocation_changes([Wanted("r1", desired, observed, 0)], reported)
    assert ("r1" in found.done) == (after is None)
    if after is not None:
        assert found.observed.get("r1", Held(observed)).state == after
        assert ("r1" in found.observed) == (after != observed)
    assert found.news == news
    assert found.unknown == ()


def test_holders_are_followed_without_being_news():
    found = allocation_changes([Wanted("r1", "withdrawn", "withdrawing", 2)], {"r1": Held("withdrawing", 1)})
    assert found.observed == {"r1": Held("withdrawing", 1)}
    assert not found.news


def test_what_nobody_wants_is_unknown_unless_it_is_withdrawn_already():
    reported = {"r1": Held("bound"), "r2": Held("withdrawing"), "r3": Held("withdrawn")}
    assert allocation_changes([], reported).unknown == ("r1", "r2")


def test_every_state_of_a_node_is_in_the_table_and_in_the_database():
    assert NODE.states == set(STATES)
    for state in STATES:
        assert NODE.next(state, "synced") in STATES
    check = next(c for c in Node._meta.constraints if c.name == "node_state_known")
    assert set(dict(check.condition.children)["state__in"]) == set(STATES)
