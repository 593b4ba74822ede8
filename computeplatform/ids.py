"""Opaque identifiers: at most 64 characters of ``[A-Za-z0-9._:-]``, a short prefix that says the kind."""

import base64
import hashlib
import secrets

_LENGTH = 26  # characters of base 32: 130 bits, beyond any chance of two alike


def _text(raw: bytes) -> str:
    return base64.b32encode(raw).decode().rstrip("=").lower()[:_LENGTH]


def new_id(prefix: str) -> str:
    """A fresh random id, as ``pool_…``."""
    return f"{prefix}_{_text(secrets.token_bytes(17))}"


def derived_id(prefix: str, *parts: str) -> str:
    """The same id for the same parts on any machine (CRE-2). Parts are length-prefixed, so no two lists collide."""
    digest = hashlib.sha256()
    for part in parts:
        raw = part.encode()
        digest.update(len(raw).to_bytes(8, "big") + raw)
    return f"{prefix}_{_text(digest.digest())}"
