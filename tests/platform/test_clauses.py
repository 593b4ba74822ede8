"""`make clauses`: the ids in order, the parts, and the tests that carry them."""

from dataclasses import dataclass, field

import pytest

from tests.clauses import coverage, pytest_collection_modifyitems, report


@dataclass
class Item:
    """As much of a pytest item as the plugin looks at."""

    nodeid: str
    markers: list = field(default_factory=list)

    def iter_markers(self, name):
        return iter(self.markers)


def clause(*words, **named):
    return pytest.mark.clause(*words, **named).mark


def test_the_report_is_in_the_order_of_the_ids_and_counts_a_parametrised_test_once():
    items = [
        Item("t.py::late[a]", [clause("CRE-10", "part two"), clause("CRE-10", "part one")]),
        Item("t.py::late[b]", [clause("CRE-10", "part one")]),
        Item("t.py::early", [clause("CRE-2")]),
        Item("t.py::unmarked"),
        Item("t.py::first", [clause("API-8")]),
    ]
    assert report(coverage(items)) == [
        "API-8",
        "  (the clause)",
        "    t.py::first",
        "CRE-2",
        "  (the clause)",
        "    t.py::early",
        "CRE-10",
        "  part one",
        "    t.py::late",
        "  part two",
        "    t.py::late",
    ]


@pytest.mark.parametrize("marker", [clause(), clause("cre-1"), clause("CRE-1", 2), clause("CRE-1", part="x")])
def test_a_malformed_marker_stops_the_collection(marker):
    with pytest.raises(pytest.UsageError):
        pytest_collection_modifyitems([Item("t.py::wrong", [marker])])
