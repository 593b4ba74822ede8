"""Strict wire fields: a value of another type is refused, never converted; null is not absent (API-4)."""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from django.core.validators import RegexValidator
from rest_framework import serializers

from computeplatform.api.strict_json import MAX_INTEGER
from computeplatform.errors import InvalidInput, Issue

ID = r"[A-Za-z0-9._:-]{1,128}"
TENANT_ID = re.compile(rf"^{ID}\Z")
_VISIBLE = r"^[\x21-\x7e]{1,128}\Z"


class Text(serializers.CharField):
    """A string of ``min_length``-``max_length`` characters, optionally of one pattern."""

    default_error_messages = {"invalid": "must be a string"}

    def __init__(self, *, pattern: str | None = None, **kwargs: Any) -> None:
        least = kwargs.pop("min_length", 1)
        # A least length of 0 bounds nothing; said in the document, it would make "" exclude itself.
        super().__init__(trim_whitespace=False, allow_blank=least == 0, min_length=least or None, **kwargs)
        if pattern:
            words = "must match " + pattern.replace(r"\Z", "$")
            self.validators.append(RegexValidator(pattern, message=words))

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return data


class Name(Text):
    """1-128 characters without controls: what people call a thing."""

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("max_length", 128)
        super().__init__(pattern=r"^[^\x00-\x1f\x7f-\x9f]*\Z", **kwargs)


class Id(Text):
    """The opaque id of an object."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(pattern=rf"^{ID}\Z", max_length=128, **kwargs)


class IdempotencyKey(Text):
    """1-128 visible ASCII characters."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(pattern=_VISIBLE, max_length=128, **kwargs)


class Whole(serializers.IntegerField):
    """A whole number in a range; ``1.0`` has become ``1`` in the parser, ``"1"`` and ``true`` are refused."""

    default_error_messages = {"invalid": "must be a whole number"}

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("min_value", 0)
        kwargs.setdefault("max_value", MAX_INTEGER)
        super().__init__(**kwargs)

    def to_internal_value(self, data: Any) -> int:
        if not isinstance(data, int) or isinstance(data, bool):
            self.fail("invalid")
        return data


class Number(serializers.FloatField):
    """A number that need not be whole. Only answers have such ones."""


class Instant(Whole):
    """A point in time: epoch milliseconds, UTC."""


class Flag(serializers.BooleanField):
    """``true`` or ``false``."""

    default_error_messages = {"invalid": "must be true or false"}

    def to_internal_value(self, data: Any) -> bool:
        if not isinstance(data, bool):
            self.fail("invalid")
        return data


class OneOf(serializers.ChoiceField):
    """One of a fixed list of strings."""

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str) or data not in self.choices:
            self.fail("invalid_choice", input=str(data)[:64])
        return data

    default_error_messages = {"invalid_choice": "'{input}' is not one of the possible values"}


class Items(serializers.ListField):
    """A JSON list of one kind of item."""

    default_error_messages = {"not_a_list": "must be a list"}

    def to_internal_value(self, data: Any) -> list[Any]:
        if not isinstance(data, list):
            self.fail("not_a_list", input_type=type(data).__name__)
        return list(super().to_internal_value(data))


class Mapped(serializers.DictField):
    """A JSON object with free names and one kind of value; ``key_pattern`` and ``max_items`` bound the names."""

    default_error_messages = {"not_a_dict": "must be an object"}

    def __init__(self, *, key_pattern: str | None = None, max_items: int | None = None, **kwargs: Any) -> None:
        self._key = re.compile(key_pattern) if key_pattern else None
        self._key_text = (key_pattern or "").replace(r"\Z", "$")
        self._max_items = max_items
        super().__init__(**kwargs)

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        if not isinstance(data, dict):
            self.fail("not_a_dict", input_type=type(data).__name__)
        if self._max_items is not None and len(data) > self._max_items:
            raise serializers.ValidationError([f"must not have more than {self._max_items} members"])
        wrong = {k: [f"the name must match {self._key_text}"] for k in data if self._key and not self._key.match(k)}
        try:
            value = dict(super().to_internal_value(data))
        except serializers.ValidationError as error:
            detail = error.detail if isinstance(error.detail, dict) else {"": error.detail}
            raise serializers.ValidationError({**detail, **wrong}) from None
        if wrong:
            raise serializers.ValidationError(wrong)
        return value


class Anything(serializers.JSONField):
    """Any JSON value, null too: what the platform records without reading it."""

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("allow_null", True)
        super().__init__(**kwargs)

    def to_internal_value(self, data: Any) -> Any:
        return data


class Shape(serializers.Serializer[Any]):
    """A JSON object with declared members. Unknown ones are refused unless ``ignore_unknown`` is set on the class."""

    ignore_unknown = False

    default_error_messages = {"invalid": "must be an object", "null": "must not be null; leave it out instead"}

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        if not isinstance(data, Mapping):
            raise serializers.ValidationError(["must be an object"])
        unknown = {} if self.ignore_unknown else {k: ["unknown field"] for k in data if k not in self.fields}
        try:
            value = dict(super().to_internal_value(data))
        except serializers.ValidationError as error:
            detail = error.detail if isinstance(error.detail, dict) else {"": error.detail}
            raise serializers.ValidationError({**detail, **unknown}) from None
        if unknown:
            raise serializers.ValidationError(unknown)
        return value


class Input(Shape):
    """What every method takes (API-5)."""

    tenantId = Text(pattern=rf"^{ID}\Z", max_length=128, help_text="The tenant that calls.")


class Creating(Input):
    """What every creating mutation takes beside its own fields (API-11)."""

    idempotencyKey = IdempotencyKey(
        required=False, help_text="The same key with the same request answers the stored object."
    )


class Page(Input):
    """What every list takes."""

    limit = Whole(min_value=1, max_value=200, default=50, help_text="How many items at most.")
    cursor = Text(max_length=256, required=False, help_text="`nextCursor` of the page before.")


def read_input(shape: type[Shape], body: Mapping[str, Any]) -> dict[str, Any]:
    """The validated input; raises InvalidInput with every wrong field at once."""
    try:
        return dict(_reader(shape).run_validation(body))
    except serializers.ValidationError as error:
        raise InvalidInput(sorted(_issues("", error.detail), key=lambda issue: issue.path)) from None


@cache
def _reader(shape: type[Shape]) -> Shape:
    """One instance for all calls: validating keeps nothing in it, and copying its fields is what a new one costs."""
    return shape()


def _issues(path: str, detail: Any) -> list[Issue]:
    if isinstance(detail, Mapping):
        found = []
        for key, value in detail.items():
            here = path if key in ("", "non_field_errors") else f"{path}.{key}" if path else str(key)
            found += _issues(here, value)
        return found
    if isinstance(detail, list) and any(isinstance(item, Mapping | list) for item in detail):
        return [i for index, item in enumerate(detail) for i in _issues(f"{path}.{index}", item) if item]
    return [Issue(path, _words(message)) for message in (detail if isinstance(detail, list) else [detail])]


def _words(message: Any) -> str:
    """DRF's sentence in the manner of ours: no capital, no full stop."""
    text = str(message).rstrip(".")
    return text[:1].lower() + text[1:]
