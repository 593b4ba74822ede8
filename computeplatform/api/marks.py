"""Opaque list marks: a place in a list that its holder can neither read nor make up (LST-2)."""

import base64
import hashlib

from cryptography.fernet import Fernet, InvalidToken
from django.conf import settings


def _box() -> Fernet:
    digest = hashlib.sha256(b"list-marks:" + settings.SECRET_KEY.encode()).digest()
    return Fernet(base64.urlsafe_b64encode(digest))


def seal_mark(tenant_id: str, place: str) -> str:
    """A mark for ``place`` that is good for this tenant alone."""
    return _box().encrypt(f"{tenant_id}\n{place}".encode()).decode()


def open_mark(tenant_id: str, mark: str) -> str | None:
    """The place that a mark stands for; None if it is not one of ours, or another tenant's."""
    try:
        owner, _, place = _box().decrypt(mark.encode()).decode().partition("\n")
    except InvalidToken:
        return None
    return place if owner == tenant_id else None
