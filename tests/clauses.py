"""The marker that ties a test to a clause of the contract, and `pytest --clauses`, which prints the result.

    @pytest.mark.clause("CRE-10", "node binding with resources")

The second word names the part of the clause; it may be left out where the clause is one sentence. A test may carry
several markers.
"""

import re
from collections import defaultdict
from collections.abc import Iterable

import pytest

CLAUSE_ID = re.compile(r"([A-Z]+(?:-[A-Z]+)*)-(\d+)([a-z]?)")
WHOLE = "(the clause)"

Coverage = dict[str, dict[str, list[str]]]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--clauses", action="store_true", help="print which tests carry which clause, and run none")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "clause(id, part=None): the test proves this part of a clause of the contract")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse a malformed marker at collection, in every run: it would vanish from the list unseen."""
    for item in items:
        for marker in item.iter_markers("clause"):
            if not (1 <= len(marker.args) <= 2 and all(isinstance(word, str) for word in marker.args)) or marker.kwargs:
                raise pytest.UsageError(f"{item.nodeid}: clause takes an id and, perhaps, the name of a part")
            if CLAUSE_ID.fullmatch(marker.args[0]) is None:
                raise pytest.UsageError(f"{item.nodeid}: {marker.args[0]!r} is no clause id")


def coverage(items: Iterable[pytest.Item]) -> Coverage:
    """Clause id -> part -> node ids, parametrised cases of one test counted as that test."""
    found: Coverage = defaultdict(lambda: defaultdict(list))
    for item in items:
        test = item.nodeid.partition("[")[0]
        for marker in item.iter_markers("clause"):
            clause, part = (*marker.args, WHOLE)[:2]
            if test not in found[clause][part]:
                found[clause][part].append(test)
    return found


def clause_order(clause: str) -> tuple[str, int, str]:
    """By group, then by number: CRE-2 before CRE-10."""
    match = CLAUSE_ID.fullmatch(clause)
    assert match is not None
    return match[1], int(match[2]), match[3]


def report(found: Coverage) -> list[str]:
    lines = []
    for clause in sorted(found, key=clause_order):
        lines.append(clause)
        for part, tests in sorted(found[clause].items()):
            lines.append(f"  {part}")
            lines.extend(f"    {test}" for test in tests)
    return lines


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """With `--clauses`, print instead of running anything."""
    if not session.config.getoption("--clauses"):
        return None
    found = coverage(session.items)
    print("\n".join([*report(found), f"{len(found)} clauses have tests"]))
    return True
