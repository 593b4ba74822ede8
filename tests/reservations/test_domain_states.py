"""REC-1: every transition is in one table, and nothing else is legal."""

import ast
from pathlib import Path

import pytest

from computeplatform.transitions import IllegalTransition
from reservations.domain import states
from reservations.domain.states import MACHINE

# Written from the contract's words, not from the table.
LEGAL = {
    ("draft", "awaiting-confirmation"),
    ("draft", "denied"),
    ("draft", "pending"),
    ("draft", "placed"),
    ("awaiting-confirmation", "draft"),
    ("awaiting-confirmation", "denied"),
    ("pending", "placed"),
    ("placed", "binding"),
    ("binding", "active"),
    ("pending", "cancelled"),
    ("placed", "cancelled"),
    ("placed", "released"),
    ("binding", "released"),
    ("active", "released"),
    ("placed", "pending"),
    ("binding", "pending"),
}


@pytest.mark.clause("REC-1", "the table is the contract's")
def test_the_moves_are_exactly_those_of_the_contract():
    assert {(state, after) for (state, _), after in MACHINE.table.items()} == LEGAL


@pytest.mark.clause("REC-1", "whatever is absent is refused")
@pytest.mark.parametrize("state", sorted(MACHINE.states))
@pytest.mark.parametrize("event", sorted(MACHINE.events))
def test_every_pair_is_legal_or_refused(state: str, event: str):
    if (state, event) in MACHINE.table:
        assert (state, MACHINE.next(state, event)) in LEGAL
    else:
        with pytest.raises(IllegalTransition):
            MACHINE.next(state, event)


@pytest.mark.clause("REC-1", "terminal states have no way out")
def test_nothing_leaves_a_terminal_state():
    assert not {state for state, _ in MACHINE.table} & states.TERMINAL


@pytest.mark.clause("REC-1", "nothing else changes a state")
def test_one_module_writes_the_state_column():
    root = Path(__file__).parents[2]
    writers = {
        str(path.relative_to(root))
        for path in (root / "reservations").rglob("*.py")
        if "migrations" not in path.parts and any(map(_writes_state, ast.walk(ast.parse(path.read_text()))))
    }
    assert writers == {"reservations/operations/state.py"}


def _writes_state(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(attr="state", ctx=ast.Store()):
            return True
        case ast.Call(func=ast.Attribute(attr="update"), keywords=given):
            return any(keyword.arg == "state" for keyword in given)
    return False
