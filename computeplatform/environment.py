"""Reading the environment: a value, or the file that ``NAME_FILE`` names; errors name the variable, never its value.

django-environ parses URLs for us but not single values: it would take a secret that starts with ``$`` for the name of
another variable, and any misspelt flag for "off".
"""

import ipaddress
import os
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured

FLAGS = {"on": True, "true": True, "yes": True, "1": True, "off": False, "false": False, "no": False, "0": False}


def text(name: str, default: str = "") -> str:
    """The value without surrounding space: secret files usually end with a line feed. A file wins over a value."""
    path = os.environ.get(f"{name}_FILE")
    if not path:
        return os.environ.get(name, "").strip() or default
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ImproperlyConfigured(f"{name}_FILE cannot be read: {error}") from error


def flag(name: str, *, default: bool) -> bool:
    value = text(name)
    if not value:
        return default
    try:
        return FLAGS[value.lower()]
    except KeyError as error:
        raise ImproperlyConfigured(f"{name} must be one of {', '.join(FLAGS)}") from error


def words(name: str, default: tuple[str, ...] = ()) -> list[str]:
    """The comma-separated parts of a value."""
    value = text(name)
    return [word.strip() for word in value.split(",") if word.strip()] if value else list(default)


def networks(name: str) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    """The comma-separated networks of a value; an address is a network of one."""
    try:
        return [ipaddress.ip_network(word) for word in words(name)]
    except ValueError as error:
        raise ImproperlyConfigured(f"{name} must be networks like 192.0.2.0/24: {error}") from error
