"""Patterns of actions (IAM-API §1)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iam.catalogue import actions_by_name
from iam.domain.patterns import covers, expand, permits

ACTIONS = tuple(actions_by_name())


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("*", "iam:keys:create", None),
        ("compute:*", "compute:nodes:sync", "iam:keys:read"),
        ("compute:reservations:*", "compute:reservations:extend", "compute:pools:read"),
        ("compute:*:read", "compute:pools:read", "compute:pools:create"),
        ("iam:keys:read", "iam:keys:read", "iam:keys:create"),
        ("iam:*:read", "iam:tenants:read", "compute:pools:read"),
    ],
)
def test_what_a_pattern_matches(pattern: str, yes: str, no: str | None) -> None:
    assert permits([pattern], yes)
    assert no is None or not permits([pattern], no)


@pytest.mark.parametrize(
    "pattern", ["", "compute", "compute:", "compute:res*", "iam:*:create", "*:read", "compute:*:*"]
)
def test_what_is_no_pattern_matches_nothing(pattern: str) -> None:
    assert expand([pattern], ACTIONS) == frozenset()


SERVICES = st.sampled_from(["*", "compute:*", "iam:*", "compute:*:read", "iam:*:read", "compute:reservations:*"])
PATTERNS = st.lists(SERVICES | st.sampled_from(ACTIONS), min_size=1, max_size=5)


@pytest.mark.clause("IAM-1", "a minted key is never wider")
@given(PATTERNS, PATTERNS)
def test_what_is_covered_matches_nothing_more(outer: list[str], inner: list[str]) -> None:
    assert covers(outer, outer, ACTIONS)
    if covers(outer, inner, ACTIONS):
        assert expand(inner, ACTIONS) <= expand(outer, ACTIONS)
    else:
        # Either more today, or more as soon as there are more actions.
        assert not expand(inner, ACTIONS) <= expand(outer, ACTIONS) or "*" in inner


@pytest.mark.clause("IAM-1", "a minted key is never wider")
def test_only_everything_covers_everything() -> None:
    """``*`` takes in actions that do not exist yet; a list of all that exist does not."""
    assert covers(["iam:keys:read", "*"], ["*"], ACTIONS)
    assert covers(["*"], ACTIONS, ACTIONS)
    for outer in (["compute:*", "iam:*"], ACTIONS):
        assert expand(outer, ACTIONS) == frozenset(ACTIONS)
        assert not covers(outer, ["*"], ACTIONS)
        assert not covers(outer, ["iam:keys:read", "*"], ACTIONS)
