"""How operators' pages show single values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from computeplatform.admin_tools import length, link, pretty, span, state, utc
from computeplatform.admin_tools.shown import window

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000


@pytest.mark.parametrize(
    ("milliseconds", "shown"),
    [
        (None, "-"),
        (0, "1970-01-01 00:00:00Z"),
        (1_767_225_599_999, "2025-12-31 23:59:59Z"),
        (10**18, f"{10**18} ms"),
        (-(10**18), f"-{10**18} ms"),
    ],
)
def test_instants(milliseconds, shown):
    assert utc(milliseconds) == shown


@pytest.mark.parametrize(
    ("milliseconds", "shown"),
    [
        (None, "-"),
        (0, "0 ms"),
        (999, "999 ms"),
        (SECOND, "1 s"),
        (90 * SECOND, "1 min 30 s"),
        (2 * HOUR, "2 h"),
        (2 * HOUR + 5 * MINUTE + 7 * SECOND, "2 h 5 min"),
        (30 * DAY + MINUTE, "30 d 1 min"),
    ],
)
def test_lengths(milliseconds, shown):
    assert length(milliseconds) == shown


@given(st.integers(-(2**62), 2**62) | st.none())
def test_no_time_takes_a_page_down(milliseconds):
    assert utc(milliseconds)
    assert length(milliseconds)


def test_periods():
    assert span(None, None) == window(None, 5) == "-"
    assert ">1970-01-01 00:00:00Z – 1970-01-01 02:00:00Z (2 h)<" in span(0, 2 * HOUR)
    assert ">1970-01-01 00:00:00Z – -<" in span(0, None)
    assert ">1970-01-01 00:00:00Z, 2 h<" in window(0, 2 * HOUR)


def test_what_is_shown_is_text_and_never_markup():
    for shown in (pretty({"a": "<b>"}), state("<b>"), link("pool", "<b>", {("pool", "<b>"): "<i>"})):
        assert "<b>" not in shown
        assert "<i>" not in shown


def test_an_id_that_names_nothing_is_no_link():
    assert link("principal", "system:seed", {}) == "system:seed"
    assert link("no-such-kind", "x", {}) == "x"
    assert link("pool", "", {}) == "-"
    assert link("decision", "dec_1", {}).startswith('<a href="/admin/iam/decision/dec_5F1/change/"')
