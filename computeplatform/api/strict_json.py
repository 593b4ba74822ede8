"""JSON as API-4 reads it: one object, no duplicate keys, no NaN, no NUL, no lone surrogates, bounded depth."""

import json
import math
import re
from decimal import Decimal, InvalidOperation
from typing import Any, Never

from computeplatform.errors import InvalidInput, Issue

MAX_DEPTH = 32
MAX_INTEGER = 2**53 - 1
# A number of more digits than this is out of range whatever they are; Python refuses to read 4,301 of them.
_MAX_DIGITS = 400
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def parse_object(body: bytes) -> dict[str, Any]:
    """The object in ``body``; an empty body is ``{}``. Raises InvalidInput for anything else."""
    if not body.strip(b" \t\r\n"):
        return {}
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInput.at("", f"not valid UTF-8 at byte {error.start}") from None
    _refuse_deep(text)
    try:
        value = json.loads(
            text,
            object_pairs_hook=_unique,
            parse_constant=_refuse_constant,
            parse_int=_integer,
            parse_float=_number,
        )
    except json.JSONDecodeError as error:
        words = f"not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        raise InvalidInput([Issue("", words, error.lineno, error.colno)]) from None
    if not isinstance(value, dict):
        raise InvalidInput.at("", "must be a JSON object")
    _refuse_unstorable(value, "")
    return value


def _refuse_deep(text: str) -> None:
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    depth = 0
    in_string = escaped = False
    for char in text:
        if in_string:
            if escaped:
                escaped = False
            elif char == "\\":
                escaped = True
            elif char == '"':
                in_string = False
        elif char == '"':
            in_string = True
        elif char in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise InvalidInput.at("", f"nested deeper than {MAX_DEPTH}")
        elif char in "]}":
            depth -= 1


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise InvalidInput.at(key.encode("ascii", "backslashreplace").decode(), "appears twice")
        result[key] = value
    return result


def _refuse_constant(name: str) -> Never:
    raise InvalidInput.at("", f"{name} is not a JSON number")


def _integer(digits: str) -> int:
    if len(digits) > _MAX_DIGITS or abs(value := int(digits)) > MAX_INTEGER:
        raise InvalidInput.at("", f"{digits[:24]} is outside ±(2^53−1)")
    return value


def _number(text: str) -> int | float:
    value = float(text)
    if math.isinf(value):
        raise InvalidInput.at("", f"{text[:24]} is too large for a number")
    if value.is_integer() and (abs(value) > MAX_INTEGER or _is_exactly(value, text)):
        # 1.0 is 1 spelled otherwise (CRE-3), and so is -0.0 a zero; what a float only rounds to one is not.
        return _integer(str(int(value)))
    return value


def _is_exactly(value: float, text: str) -> bool:
    try:
        return Decimal(text) == Decimal(value)
    except InvalidOperation:  # an exponent beyond 10^18
        return False


def _refuse_unstorable(value: Any, path: str) -> None:
    """NUL and lone surrogates cannot be stored as text, in a key or a value, wherever they stand."""
    if isinstance(value, str):
        if _UNSTORABLE.search(value):
            raise InvalidInput.at(path, "contains a NUL character or a lone surrogate")
    elif isinstance(value, dict):
        for key, item in value.items():
            if _UNSTORABLE.search(key):
                raise InvalidInput.at(path, "has a name with a NUL character or a lone surrogate")
            _refuse_unstorable(item, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _refuse_unstorable(item, f"{path}.{index}" if path else str(index))
