"""The methods of ``reservations``; importing this package declares them."""

from reservations.api import availability, changing, create, ending, reading

__all__ = ["availability", "changing", "create", "ending", "reading"]
