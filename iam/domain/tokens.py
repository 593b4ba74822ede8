"""Bearer tokens: a type, 40 characters, a checksum (IAM-API §4).

``cpk_`` + 8 characters that find the row + 32 secret ones + 6 of checksum. The checksum refuses typing errors without a
look-up; it protects nothing.
"""

import hashlib
import secrets
import string
import zlib
from dataclasses import dataclass, field

KEY_TYPE = "cpk_"
SESSION_TYPE = "cpd_"

_DIGITS = string.digits + string.ascii_uppercase + string.ascii_lowercase
_ALPHABET = frozenset(_DIGITS)
_RANDOM = 40
_CHECKSUM = 6
_LENGTH = len(KEY_TYPE) + _RANDOM + _CHECKSUM
_PREFIX = len(KEY_TYPE) + 8


@dataclass(frozen=True)
class Token:
    """A well-formed token, split: what finds its row, and the hash that must match."""

    prefix: str
    digest: str
    text: str = field(repr=False)

    @property
    def is_key(self) -> bool:
        """An API key, not a delegated session."""
        return self.text.startswith(KEY_TYPE)


def checksum(body: str) -> str:
    """CRC-32 of ``body`` in base 62, most significant digit first, padded with ``0`` to six."""
    value = zlib.crc32(body.encode())
    digits = ""
    for _ in range(_CHECKSUM):
        value, digit = divmod(value, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return digits


def mint(kind: str = KEY_TYPE) -> Token:
    """A fresh token of a type."""
    body = kind + "".join(secrets.choice(_DIGITS) for _ in range(_RANDOM))
    return _split(body + checksum(body))


def read(text: str) -> Token | None:
    """The token in ``text``; None for a wrong type, length, alphabet or checksum."""
    if len(text) != _LENGTH or not text.startswith((KEY_TYPE, SESSION_TYPE)):
        return None
    if not _ALPHABET.issuperset(text[len(KEY_TYPE) :]):
        return None
    if checksum(text[:-_CHECKSUM]) != text[-_CHECKSUM:]:
        return None
    return _split(text)


def _split(text: str) -> Token:
    return Token(prefix=text[:_PREFIX], digest=hashlib.sha256(text.encode()).hexdigest(), text=text)
