"""REC-2, REC-7, CRE-16: the next step is a function of what is stored and reported."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservations.domain.lifecycle import Facts, Step, next_step
from reservations.domain.states import BOOKED, LIVE, MACHINE

FACTS = Facts(
    state="placed",
    binding="node",
    starts_at=1_000,
    ends_at=9_000,
    requested_ends_at=None,
    start_before=None,
    pending_since=None,
    binding_since=None,
    nodes=2,
    nodes_bound=0,
    bind_timeout=300_000,
    max_pending=100_000,
)
BINDING = replace(FACTS, state="binding", binding_since=1_000, ends_at=900_000)
PENDING = replace(FACTS, state="pending", starts_at=None, ends_at=None, pending_since=0)


@pytest.mark.parametrize(
    ("facts", "now", "step"),
    [
        pytest.param(FACTS, 999, Step("", due_at=1_000), id="not before startsAt"),
        pytest.param(FACTS, 1_000, Step("start", at=1_000), id="at startsAt"),
        pytest.param(FACTS, 9_500, Step("end", "ended", 9_000), id="late: ended at endsAt"),
        pytest.param(BINDING, 2_000, Step("", due_at=4_000), id="binding is looked at again soon"),
        pytest.param(replace(BINDING, nodes_bound=1), 2_000, Step("", due_at=4_000), id="one of two bound"),
        pytest.param(replace(BINDING, nodes_bound=2), 2_000, Step("bound", at=2_000), id="all bound"),
        pytest.param(replace(BINDING, binding="hold"), 2_000, Step("bound", at=2_000), id="a hold binds nothing"),
        pytest.param(BINDING, 301_000, Step("unbind", "bind-timeout", 301_000), id="nothing bound in time"),
        pytest.param(BINDING, 300_999, Step("", due_at=301_000), id="a millisecond before the timeout"),
        pytest.param(replace(BINDING, nodes_bound=1), 301_000, Step("end", "bind-failed", 301_000), id="half bound"),
        pytest.param(replace(FACTS, state="active"), 8_999, Step("", due_at=9_000), id="active until endsAt"),
        pytest.param(replace(FACTS, state="active"), 9_000, Step("end", "ended", 9_000), id="active ends"),
        pytest.param(PENDING, 99_999, Step("", due_at=100_000), id="pending waits"),
        pytest.param(PENDING, 100_000, Step("cancel", "pending-too-long", 100_000), id="pending too long"),
        pytest.param(replace(PENDING, start_before=5_000), 4_999, Step("", due_at=5_000), id="may still start"),
        pytest.param(
            replace(PENDING, start_before=5_000), 5_000, Step("cancel", "window-passed", 5_000), id="startBefore"
        ),
        pytest.param(
            replace(PENDING, requested_ends_at=5_000), 7_000, Step("cancel", "window-passed", 7_000), id="endsAt passed"
        ),
        pytest.param(replace(FACTS, state="released"), 9_999, Step(""), id="terminal"),
    ],
)
def test_next_step(facts: Facts, now: int, step: Step):
    assert next_step(facts, now=now) == step


times = st.integers(0, 500_000)


def has_window(facts: Facts) -> bool:
    """What a constraint of the table says of whatever is booked."""
    return facts.starts_at is not None and facts.ends_at is not None and facts.starts_at < facts.ends_at


@given(
    st.builds(
        Facts,
        state=st.sampled_from(sorted(LIVE)),
        binding=st.sampled_from(["hold", "node"]),
        starts_at=times,
        ends_at=times,
        requested_ends_at=st.none() | times,
        start_before=st.none() | times,
        pending_since=times,
        binding_since=times,
        nodes=st.integers(1, 3),
        nodes_bound=st.integers(0, 3),
        bind_timeout=st.integers(1, 100_000),
        max_pending=st.integers(1, 100_000),
    ).filter(has_window),
    times,
)
@pytest.mark.clause("REC-2", "run twice it does the same")
def test_every_step_is_a_legal_move_or_a_later_look(facts: Facts, now: int):
    step = next_step(facts, now=now)
    assert next_step(facts, now=now) == step
    if step.event:
        assert (facts.state, step.event) in MACHINE.table
        assert step.at is not None
        assert step.at <= now
    else:
        assert step.due_at is not None
        assert step.due_at > now
        if facts.state in BOOKED:
            assert facts.ends_at is not None
            assert step.due_at <= facts.ends_at
