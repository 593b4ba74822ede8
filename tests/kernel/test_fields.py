"""Shapes: nothing is converted, every wrong field is named at once by its dotted path."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from computeplatform.api.event_methods import ListInput
from computeplatform.api.fields import (
    Anything,
    Creating,
    Flag,
    Id,
    IdempotencyKey,
    Input,
    Instant,
    Items,
    Mapped,
    Name,
    OneOf,
    Page,
    Shape,
    Text,
    Whole,
    read_input,
)
from computeplatform.api.idempotency import request_digest
from computeplatform.api.strict_json import MAX_INTEGER
from computeplatform.errors import InvalidInput

pytestmark = pytest.mark.clause("API-4", "fields")

T = {"tenantId": "acme"}


class Part(Shape):
    uuid = Id()
    size = Whole(max_value=10, required=False)


class Loose(Shape):
    ignore_unknown = True
    known = Whole(required=False)


class Everything(Input):
    text = Text(max_length=5, required=False)
    empty = Text(min_length=0, max_length=3, required=False)
    name = Name(required=False)
    key = IdempotencyKey(required=False)
    whole = Whole(min_value=1, max_value=9, required=False)
    at = Instant(required=False)
    flag = Flag(required=False)
    one = OneOf(choices=["a", "b"], required=False)
    items = Items(child=Whole(max_value=3), max_length=2, required=False)
    parts = Items(child=Part(), required=False)
    mapped = Mapped(child=Whole(max_value=3), key_pattern=r"^[a-z]{1,3}\Z", max_items=3, required=False)
    part = Part(required=False)
    loose = Loose(required=False)
    any = Anything(required=False)


def issues(shape: type[Shape], body: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(InvalidInput) as caught:
        read_input(shape, body)
    assert [i.path for i in caught.value.issues] == sorted(i.path for i in caught.value.issues)
    return {issue.path: issue.message for issue in caught.value.issues}


NOT_TEXT = [1, 1.5, True, False, None, [], ["a"], {}, {"a": "b"}]
NOT_WHOLE = ["1", "", 1.5, 0.0, True, False, None, [], [1], {}]


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("text", [*NOT_TEXT, "", "sixsix"]),
        ("empty", [*NOT_TEXT, "four"]),
        ("name", [*NOT_TEXT, "", "x" * 129, "a\nb", "a\x00", "\x7f", "\x85", "a\n"]),
        ("key", [*NOT_TEXT, "", "a b", "k" * 129, "ä", "k\n", "\x7f"]),
        ("whole", [*NOT_WHOLE, 0, 10, -1]),
        ("at", [*NOT_WHOLE, -1, MAX_INTEGER + 1]),
        ("flag", [0, 1, "true", "false", "on", "", None, [], {}, [True]]),
        ("one", ["c", "", "A", 1, True, None, [], ["a"], {}, {"a": 1}]),
        ("items", ["12", 1, None, {}, {"0": 1}, [1, 2, 3], True]),
        ("part", ["x", 1, None, [], [{"uuid": "x"}], True, {}]),
        ("mapped", ["x", 1, None, [], [["a", 1]], True, {"a": 1, "b": 1, "c": 1, "d": 1}]),
        ("loose", ["x", 1, None, [], True]),
        ("tenantId", [*NOT_TEXT, "", "a b", "a/b", "ä", "x" * 129, "acme\n", "acme "]),
    ],
)
def test_a_value_of_another_kind_or_out_of_range_is_refused_and_not_converted(field: str, wrong: list[Any]):
    for value in wrong:
        paths = issues(Everything, T | {field: value})
        assert {path.split(".")[0] for path in paths} == {field}, (value, paths)


@pytest.mark.parametrize(
    ("field", "right"),
    [
        ("text", [" a ", "12345", "\n"]),
        ("empty", ["", "abc"]),
        ("name", ["x", "Größe €", "x" * 128, " "]),
        ("key", ["!", "~" * 128, 'a"b\\']),
        ("whole", [1, 9]),
        ("at", [0, MAX_INTEGER]),
        ("flag", [True, False]),
        ("one", ["a", "b"]),
        ("items", [[], [1], [3, 3]]),
        ("parts", [[], [{"uuid": "a"}, {"uuid": "b", "size": 0}]]),
        ("part", [{"uuid": "a"}]),
        ("mapped", [{}, {"a": 0, "b": 3}]),
        ("any", [None, 1, "x", [None], {"a": {"b": []}}]),
        ("tenantId", ["a", "A.b_c:d-0", "x" * 128]),
    ],
)
def test_a_good_value_passes_unchanged(field: str, right: list[Any]):
    for value in right:
        got = read_input(Everything, T | {field: value})[field]
        assert (got, type(got)) == (value, type(value))


@pytest.mark.clause("API-4", "every wrong field at once")
def test_every_wrong_field_is_named_with_its_path():
    body = {
        "text": 5,
        "whole": "1",
        "items": [1, "2", 9],
        "parts": [{"uuid": "ok"}, {"uuid": "", "size": 11, "x": 1}, 7],
        "mapped": {"a": 1, "b": "x", "LOUD": 1},
        "part": {"size": True, "more": {}},
        "extra": None,
        "loose": {"other": 1, "known": "1"},
    }
    assert set(issues(Everything, body)) == {
        *("tenantId", "text", "whole", "items.1", "items.2", "parts.1.uuid", "parts.1.size", "parts.1.x", "parts.2"),
        *("mapped.b", "mapped.LOUD", "part.uuid", "part.size", "part.more", "extra", "loose.known"),
    }


@pytest.mark.clause("API-4", "unknown fields")
def test_an_unknown_field_is_refused_at_every_depth():
    assert issues(Everything, T | {"poolid": "x", "part": {"uuid": "a", "UUID": "b"}}) == {
        "poolid": "unknown field",
        "part.UUID": "unknown field",
    }


@pytest.mark.clause("API-4", "unknown fields")
def test_a_shape_that_ignores_the_unknown_drops_it():
    assert read_input(Everything, T | {"loose": {"known": 1, "new": [1]}})["loose"] == {"known": 1}


def test_names_with_dots_and_odd_names_do_not_break_the_answer():
    found = issues(Everything, T | {"a.b": 1, "": 1, "non_field_errors": 1, "__class__": 1, "😀": 1})
    assert {"a.b", "__class__", "😀"} <= set(found)
    assert len(found) >= 4


def test_null_is_not_the_same_as_absent():
    assert "startsAt" not in read_input(Everything, T)
    assert set(issues(Page, T | {"limit": None, "cursor": None})) == {"limit", "cursor"}
    assert set(issues(Creating, T | {"idempotencyKey": None})) == {"idempotencyKey"}


@pytest.mark.parametrize("limit", [0, 201, -1, 2**53, "50", 50.5, True])
def test_a_page_is_never_clamped(limit: Any):
    assert set(issues(Page, T | {"limit": limit})) == {"limit"}
    assert read_input(Page, T)["limit"] == 50


@pytest.mark.parametrize(
    "types", [["*"], ["pool"], ["pool."], ["Pool.x"], ["pool.created\n"], "pool.*", [1], [None], [""]]
)
def test_event_types_have_a_form(types: Any):
    assert {path.split(".")[0] for path in issues(ListInput, T | {"types": types})} == {"types"}


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
_body = st.dictionaries(st.sampled_from([*Everything().fields, "other"]), _json, max_size=6)


@given(_body)
def test_whatever_is_sent_is_valid_and_unchanged_or_refused(body: dict[str, Any]):
    try:
        got: dict[str, Any] | None = read_input(Everything, body)
    except InvalidInput as refused:
        paths = {issue.path.partition(".")[0] for issue in refused.issues}
        got = None
    else:
        paths = set()
    assert paths <= {*Everything().fields, "other"}
    if got is None:
        assert paths
    else:
        got.get("loose", {}).pop("known", None)
        sent = {k: v for k, v in body.items() if k != "loose"}
        assert {k: v for k, v in got.items() if k != "loose"} == sent


# --- What an idempotency key is compared by -------------------------------------------------------


@pytest.mark.clause("API-11", "what the same request is")
def test_order_of_names_and_defaults_spelled_out_make_no_other_request():
    first = read_input(Page, {"tenantId": "acme", "limit": 50})
    assert request_digest(first) == request_digest(read_input(Page, {"tenantId": "acme"}))
    assert request_digest({"a": 1, "b": {"x": 1, "y": 2}}) == request_digest({"b": {"y": 2, "x": 1}, "a": 1})
    assert request_digest({"a": 1, "idempotencyKey": "x"}) == request_digest({"a": 1, "idempotencyKey": "y"})


@pytest.mark.clause("API-11", "what the same request is")
@pytest.mark.parametrize(
    "other", [{"a": 2}, {"a": "1"}, {"a": True}, {"a": 1, "b": 0}, {"b": 1}, {"a": [1]}, {"a": 1.5}, {}]
)
def test_another_value_is_another_request(other: dict[str, Any]):
    assert request_digest({"a": 1}) != request_digest(other)
