"""JSON as the API reads it: a table of what is refused, and properties over anything at all."""

import json
import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from computeplatform.api.strict_json import MAX_DEPTH, MAX_INTEGER, parse_object
from computeplatform.errors import InvalidInput, Issue

pytestmark = pytest.mark.clause("API-4", "strict JSON")


def refusal(body: bytes) -> Issue:
    with pytest.raises(InvalidInput) as caught:
        parse_object(body)
    (issue,) = caught.value.issues
    return issue


def nested(depth: int) -> bytes:
    """An object that nests ``depth`` deep, itself counted."""
    return b'{"a":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b"{}", {}),
        (b"", {}),
        (b" \r\n\t", {}),
        (b' {"a": [1, "x", null, true, {"b": 1.5}]} ', {"a": [1, "x", None, True, {"b": 1.5}]}),
        (b'{"a": 9007199254740991}', {"a": MAX_INTEGER}),
        (b'{"a": -9007199254740991}', {"a": -MAX_INTEGER}),
        ('{"ä": "€ 😀"}'.encode(), {"ä": "€ 😀"}),
        (b'{"a": "\\ud83d\\ude00"}', {"a": "😀"}),
        (b'{"a": "\\u007f\\u001f"}', {"a": "\x7f\x1f"}),
        (b'{"a": "\\" ' + b"[" * 40 + b'"}', {"a": '" ' + "[" * 40}),
        (b'{"a": "\\\\", "b": "' + b"{" * 40 + b'"}', {"a": "\\", "b": "{" * 40}),
        (b'{"a": {"x": 1}, "b": {"x": 1}}', {"a": {"x": 1}, "b": {"x": 1}}),
    ],
)
def test_what_is_json_is_read_as_it_stands(body: bytes, value: Any):
    assert parse_object(body) == value


@pytest.mark.parametrize("text", ["1.0", "1e0", "10E-1", "0.01e2", "1.000000000000000000000"])
def test_one_spelled_otherwise_is_one(text: str):
    value = parse_object(f'{{"a": {text}}}'.encode())["a"]
    assert (value, type(value)) == (1, int)


@pytest.mark.parametrize("text", ["-0", "-0.0", "0.0", "0e5", "-0.0e-7"])
def test_every_zero_is_the_whole_zero(text: str):
    value = parse_object(f'{{"a": {text}}}'.encode())["a"]
    assert (value, type(value), math.copysign(1, value)) == (0, int, 1)


@pytest.mark.parametrize(
    "text",
    [
        "0.99999999999999999999",
        "4503599627370497.1",
        "1e-400",
        "1e-99999999999999999999",
        "9007199254740990.9",
    ],
)
def test_what_a_float_rounds_to_a_whole_number_does_not_pass_for_one(text: str):
    assert type(parse_object(f'{{"a": {text}}}'.encode())["a"]) is float


@pytest.mark.parametrize(
    "text",
    [
        "9007199254740992",
        "-9007199254740992",
        "9007199254740992.0",
        "9007199254740991.6",
        "1e16",
        "1e308",
        "1e309",
        "-1e309",
        "1e99999999999999999999",
        "9" * 400,
        "9" * 5000,
        "-" + "9" * 60_000,
        "NaN",
        "Infinity",
        "-Infinity",
    ],
)
def test_numbers_beyond_the_range_are_refused(text: str):
    assert len(refusal(f'{{"a": {text}}}'.encode()).message) < 80


@pytest.mark.parametrize("wrap", [b"%s", b'{"b": %s}', b'{"b": [0, %s]}'])
@pytest.mark.parametrize("value", [b"1", b"2"])
def test_a_name_that_comes_twice_is_refused_even_with_one_value(wrap: bytes, value: bytes):
    assert refusal(wrap % (b'{"a": 1, "x": 0, "a": %s}' % value)) == Issue("a", "appears twice")


def test_a_name_that_comes_twice_in_two_spellings_is_refused():
    assert refusal(b'{"a": 1, "\\u0061": 1}').message == "appears twice"


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (b'{"a": "x\\u0000"}', "a"),
        (b'{"a": ["", {"b": "\\u0000"}]}', "a.1.b"),
        (b'{"a": {"b\\u0000": 1}}', "a"),
        (b'{"a": "\\ud800"}', "a"),
        (b'{"a": "\\udc00\\ud800"}', "a"),
        (b'{"\\udfff": 1}', ""),
        (b'{"a": [["\\ud83d x"]]}', "a.0.0"),
    ],
)
def test_nul_and_lone_surrogates_are_refused_in_names_and_values(body: bytes, path: str):
    assert refusal(body).path == path


def test_a_name_twice_with_a_lone_surrogate_can_still_be_told():
    refusal(b'{"\\ud800": 1, "\\ud800": 2}').path.encode()


def test_nesting_is_counted_from_the_object_itself():
    parse_object(nested(MAX_DEPTH))
    assert MAX_DEPTH == 32
    assert refusal(nested(MAX_DEPTH + 1)).message == "nested deeper than 32"
    assert refusal(b'{"a":' * 33 + b"1" + b"}" * 33).message == "nested deeper than 32"


def test_depth_does_not_add_up_over_neighbours():
    parse_object(b'{"a": [' + b",".join([b"[[1]]"] * 200) + b"]}")


def test_nesting_without_end_is_refused_before_the_stack_is_full():
    assert refusal(b'{"a":' + b"[" * 60_000).message == "nested deeper than 32"


@pytest.mark.parametrize("body", [b"[]", b'"x"', b"1", b"null", b"true", b"[{}]"])
def test_only_an_object_will_do(body: bytes):
    assert refusal(body) == Issue("", "must be a JSON object")


@pytest.mark.parametrize(
    "body",
    [
        b"\xff",
        b'{"a": "\xc3\x28"}',
        b'{"a": "\xed\xa0\x80"}',  # a surrogate in UTF-8 clothes
        b'{"a": "\xc0\x80"}',  # NUL in an overlong form
        '{"a": 1}'.encode("utf-16"),
        '{"a": 1}'.encode("utf-32-le"),
    ],
)
def test_other_encodings_are_refused(body: bytes):
    assert refusal(body).path == ""


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b'{"a" 1}',
        b'{"a": 1,}',
        b"{'a': 1}",
        b'{"a": 01}',
        b'{"a": +1}',
        b'{"a": .5}',
        b'{"a": 1} x',
        b"{} {}",
        b'{"a": "\x01"}',
        b'{"a": "\\x"}',
        b'\xef\xbb\xbf{"a": 1}',
        b"/* */ {}",
        b"\x0b",
        b"\x00",
        b'{"a": undefined}',
    ],
)
def test_what_is_not_json_is_refused(body: bytes):
    refusal(body)


@pytest.mark.clause("API-4", "line and column of broken JSON")
def test_broken_json_is_shown_where_it_breaks():
    issue = refusal(b'{\n  "a": 1,\n  "b" 2\n}')
    assert (issue.path, issue.line, issue.column) == ("", 3, 7)


_pieces = b'{ } [ ] " : , \\ \\u0000 \\ud800 "a" 1 - e9 . NaN null \xff \x00 {"a": \xe2\x82\xac'.split(b" ")
bytes_like_json = st.lists(st.sampled_from([*_pieces, b" ", b"9" * 40]), max_size=40).map(b"".join)


def _storable(value: Any) -> bool:
    match value:
        case dict():
            return all(map(_storable, value)) and all(map(_storable, value.values()))
        case list():
            return all(map(_storable, value))
        case str():
            value.encode()
            return "\x00" not in value
        case bool() | None:
            return True
        case int():
            return abs(value) <= MAX_INTEGER
        case float():
            return math.isfinite(value)
    return False


@given(st.binary(max_size=200) | bytes_like_json)
@example(b'{"a": 1e-9999999999999999999}')
def test_anything_is_an_object_that_can_be_stored_or_is_refused(body: bytes):
    try:
        value = parse_object(body)
    except InvalidInput as refused:
        value = refused.details or {}
        str(refused).encode()
    assert isinstance(value, dict)
    assert _storable(value)


_leaves = (
    st.none()
    | st.booleans()
    | st.integers(-MAX_INTEGER, MAX_INTEGER)
    | st.floats(-1e15, 1e15)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20)
)
_names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=10)
_values = st.recursive(
    _leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_names, inner, max_size=4), max_leaves=20
)


@given(st.dictionaries(_names, _values, max_size=5), st.booleans())
def test_every_json_object_comes_back_equal(value: dict[str, Any], ascii_only: bool):
    assert parse_object(json.dumps(value, ensure_ascii=ascii_only).encode()) == value
