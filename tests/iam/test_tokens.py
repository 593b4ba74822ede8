"""The form of tokens (IAM-API §4)."""

import hashlib
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iam.domain import tokens

DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


@pytest.mark.clause("API-2", "typed and checksummed")
def test_a_token_is_type_forty_characters_and_a_checksum() -> None:
    token = tokens.mint()
    assert token.text.startswith("cpk_")
    body, check = token.text[:-6], token.text[-6:]
    assert len(body) == 44
    assert set(body[4:] + check) <= set(DIGITS)
    value = 0
    for digit in check:
        value = value * 62 + DIGITS.index(digit)
    assert value == zlib.crc32(body.encode())
    assert token.prefix == token.text[:12]
    assert token.digest == hashlib.sha256(token.text.encode()).hexdigest()
    assert tokens.read(token.text) == token


def test_a_small_checksum_is_padded() -> None:
    # CRC-32 of the empty text is 0.
    assert tokens.checksum("") == "000000"


def test_tokens_do_not_repeat_and_are_not_shown() -> None:
    made = {tokens.mint().text for _ in range(200)}
    assert len(made) == 200
    token = tokens.mint()
    assert token.text not in repr(token)


@given(st.integers(0, 49), st.sampled_from(DIGITS + "-_ é"))
def test_any_changed_character_is_noticed(place: int, other: str) -> None:
    text = tokens.mint().text
    changed = text[:place] + other + text[place + 1 :]
    assert (tokens.read(changed) is None) == (changed != text)


@pytest.mark.parametrize("text", ["", "cpk_", "cpx_" + "a" * 46, "cpk_" + "é" * 46, "x" * 50, "cpk_" + "0" * 47])
def test_what_is_no_token_is_none(text: str) -> None:
    assert tokens.read(text) is None


def test_a_session_token_is_read_as_one() -> None:
    token = tokens.mint(tokens.SESSION_TYPE)
    read = tokens.read(token.text)
    assert read is not None
    assert not read.is_key
