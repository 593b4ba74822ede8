"""The methods of ``reservations``; importing this package declares them."""

from reservations.api import create, ending, reading

__all__ = ["create", "ending", "reading"]
