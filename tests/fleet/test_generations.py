"""A reservation that comes back to a node which still holds other devices for it: the node lets go of those first."""

import pytest

from fleet.domain.sync import Held, Wanted, allocation_changes, holds_still
from fleet.models import Allocation


def told(answer):
    return {
        item["reservationId"]: (item["desired"], [d["position"] for d in item["devices"]])
        for item in answer["allocations"]
    }


def row():
    return Allocation.objects.get()


@pytest.fixture
def bound(site):
    """``res_1`` is bound at position 1, and planned anew at position 2."""
    node, want = site
    want.plan("res_1", position=1)
    want.bind("res_1")
    node.sync()
    node.holds["res_1"] = "bound"
    node.sync()
    want.withdraw("res_1")
    want.plan("res_1", position=2)
    return node, want


@pytest.mark.clause("NOD-8", "planned anew: the older allocation is withdrawn first, and what was observed is kept")
def test_the_older_one_goes_first(bound):
    node, want = bound
    want.bind("res_1")
    assert (row().generation, row().older["observed"], row().observed) == (2, "bound", "")
    assert told(node.sync()) == {"res_1": ("withdrawn", [1])}
    assert (row().observed, row().told_at) == ("", None), "what it holds is no answer to the new plan"
    node.holds["res_1"], node.pods["res_1"] = "withdrawing", 3
    assert told(node.sync()) == {"res_1": ("withdrawn", [1])}
    assert row().older | {"devices": []} == {"devices": [], "observed": "withdrawing", "holders": 3}
    node.holds["res_1"], node.pods["res_1"] = "withdrawn", 1
    assert told(node.sync()) == {"res_1": ("withdrawn", [1])}, "a pod is still there"
    node.pods.clear()
    answer = node.sync()
    assert told(answer) == {"res_1": ("bound", [2])}
    assert answer["allocations"][0]["generation"] == 2
    assert row().older is None
    assert row().told_at is not None
    node.holds["res_1"] = "bound"
    node.sync()
    assert row().observed == "bound"


@pytest.mark.clause("NOD-8", "a node that has booted again holds nothing older")
def test_a_reboot_lets_go_of_the_older_one(bound):
    node, want = bound
    want.bind("res_1")
    node.holds = {}
    node.boot_id, node.session = "boot-2", None
    assert told(node.sync()) == {"res_1": ("bound", [2])}
    assert row().older is None


@pytest.mark.clause("NOD-2", "a late report of an earlier generation is not taken for the present one")
def test_a_report_of_an_earlier_generation(bound):
    node, want = bound
    want.bind("res_1")
    node.sync(allocations=[])
    assert row().older is None
    late = [{"reservationId": "res_1", "state": "bound", "holders": 0, "generation": 1}]
    assert told(node.sync(allocations=late))["res_1"][0] == "withdrawn"
    assert row().observed == ""
    assert told(node.sync(allocations=[])) == {"res_1": ("bound", [2])}
    present = [{"reservationId": "res_1", "state": "bound", "holders": 0, "generation": 2}]
    node.sync(allocations=present)
    assert row().observed == "bound"


@pytest.mark.clause("NOD-8", "withdrawn while an older one is still there: both are waited for")
def test_withdrawing_what_was_planned_anew(bound):
    node, want = bound
    assert want.withdraw("res_1") == 1
    assert told(node.sync()) == {"res_1": ("withdrawn", [1])}
    node.holds["res_1"] = "withdrawn"
    node.sync()
    assert want.rows() == {}


@pytest.mark.clause("NOD-8", "planned anew on a node that never heard of it: nothing older")
def test_nothing_older_where_nothing_was_told(site):
    node, want = site
    want.plan("res_1", position=1)
    want.plan("res_1", position=2)
    assert (row().older, row().generation) == (None, 2)
    assert told(node.sync()) == {"res_1": ("planned", [2])}


@pytest.mark.clause("NOD-2", "generation is optional, a whole number from 1 on")
@pytest.mark.parametrize("bad", [0, -1, "1", 1.5, None, True])
def test_a_generation_is_a_number(site, bad):
    node, _ = site
    said = {"reservationId": "res_1", "state": "bound", "holders": 0, "generation": bad}
    answer = node.api(
        "nodes/sync",
        nodeId=node.id,
        bootId="boot-1",
        session=node.session,
        sequence=node.sequence + 1,
        software={"version": "1"},
        devices=[],
        allocations=[said],
    )
    assert answer.refused_at("allocations.0.generation")


@pytest.mark.parametrize(
    ("said", "told_", "until", "holds"),
    [
        (Held(""), False, 9, False),
        (Held(""), True, 9, True),
        (Held("bound"), True, 9, True),
        (Held("bound"), False, 9, True),  # it binds on its own account: all the more
        (Held("withdrawing"), True, 1, True),
        (Held("withdrawn"), True, 9, True),  # until was moved on, and it was told to bind again
        (Held("withdrawn"), True, 5, False),
        (Held("withdrawn", 2), True, 5, True),
    ],
)
@pytest.mark.clause("REL-4", "held: it reported bound, or was told to bind and has not reported since")
def test_who_may_hold(said, told_, until, holds):
    assert holds_still(said, told=told_, until=until, now=5) == holds


@pytest.mark.clause("REL-4", "AllocationReleased: withdrawn or not listed, with no holders")
@pytest.mark.parametrize(
    ("said", "done"),
    [
        ({}, True),
        ({"r1": Held("withdrawn")}, True),
        ({"r1": Held("withdrawn", 1)}, False),
        ({"r1": Held("withdrawing")}, False),
        ({"r1": Held("bound")}, False),
    ],
)
@pytest.mark.parametrize("older", [None, Held("bound", 1)])
def test_what_is_released(said, done, older):
    found = allocation_changes([Wanted("r1", "withdrawn", "bound", 1, 2, older)], said)
    assert (found.done == {"r1"}) == done
