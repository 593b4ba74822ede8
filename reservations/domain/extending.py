"""Moving the end of a reservation later: what is asked, and what is being decided (EXT-1, EXT-2, EXT-5)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reservations.domain.requests import DAY, HOUR, MINUTE

SECOND = 1_000
# How long a change that nobody carries on keeps others from asking for one (EXT-5: at most a minute).
OPEN = 30 * SECOND
# What a caller who meets another's change is told to wait at most; a decision takes milliseconds.
RETRY_SECONDS = 5

# Weeks alone, or days, hours, minutes and seconds in this order. No years and months: their length is not fixed.
_DURATION = re.compile(
    r"P(?:(?P<weeks>\d{1,9})W|(?=\d|T\d)(?:(?P<days>\d{1,9})D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d{1,9})H)?(?:(?P<minutes>\d{1,9})M)?(?:(?P<seconds>\d{1,9})(?:[.,](?P<part>\d{1,3}))?S)?)?)",
    re.ASCII,
)
_LENGTHS = {"weeks": 7 * DAY, "days": DAY, "hours": HOUR, "minutes": MINUTE, "seconds": SECOND}


def milliseconds(text: str) -> int | None:
    """The length of an ISO 8601 duration, or None if it is not one of those that are accepted.

    ``PnW``, or ``PnDTnHnMnS`` with any of its parts left out but not all: whole numbers of 1-9 digits, the seconds
    alone with a fraction of 1-3 digits after a point or a comma. A day has 24 hours.
    """
    found = _DURATION.fullmatch(text)
    if found is None:
        return None
    total = sum(int(found[name] or 0) * length for name, length in _LENGTHS.items())
    return total + int((found["part"] or "").ljust(3, "0"))


@dataclass(frozen=True)
class Change:
    """A change that is being decided, as the row keeps it (EXT-2).

    ``was``: the window that the caller's ``by`` and the decision count from. ``token`` says whose change it is;
    ``open_until`` when it no longer keeps others away.
    """

    until: int
    was: tuple[int, int]
    token: str
    open_until: int

    @property
    def duration_hours(self) -> int:
        """The total after the change in whole hours, rounded up."""
        return -(-(self.until - self.was[0]) // HOUR)

    def as_json(self) -> dict[str, Any]:
        """The shape in the row."""
        return {
            "until": self.until,
            "durationHours": self.duration_hours,
            "was": list(self.was),
            "token": self.token,
            "openUntil": self.open_until,
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any] | None) -> "Change | None":
        """Read it back; None where nothing is being decided."""
        if stored is None:
            return None
        starts_at, ends_at = stored["was"]
        return cls(stored["until"], (starts_at, ends_at), stored["token"], stored["openUntil"])
