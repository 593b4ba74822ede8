"""Durations, gaps and reminders: the pure rules."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from computeplatform.db.gaps import Gaps
from reservations.domain import leases, reminders
from reservations.domain.extending import Change, milliseconds
from reservations.domain.reminders import Terms

HOUR = 3_600_000


@pytest.mark.clause("EXT-1", "by: the ISO 8601 forms that are accepted")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PT2H30M", timedelta(hours=2, minutes=30)),
        ("PT0.5S", timedelta(milliseconds=500)),
        ("PT0,05S", timedelta(milliseconds=50)),
        ("PT1.001S", timedelta(seconds=1, milliseconds=1)),
        ("P1D", timedelta(days=1)),
        ("P1DT12H", timedelta(days=1, hours=12)),
        ("P2W", timedelta(weeks=2)),
        ("P1DT1H1M1S", timedelta(days=1, hours=1, minutes=1, seconds=1)),
        ("PT90M", timedelta(minutes=90)),
        ("PT007S", timedelta(seconds=7)),
        ("P0DT1S", timedelta(seconds=1)),
    ],
)
def test_durations(text: str, expected: timedelta):
    assert milliseconds(text) == expected / timedelta(milliseconds=1)


PARTS = st.integers(0, 999_999_999)


@pytest.mark.clause("EXT-1", "by: every duration that is written is read as what it says")
@given(days=PARTS, hours=PARTS, minutes=PARTS, seconds=PARTS, part=st.integers(0, 999))
def test_written_durations_are_read(days: int, hours: int, minutes: int, seconds: int, part: int):
    text = f"P{days}DT{hours}H{minutes}M{seconds}.{part:03}S"
    assert milliseconds(text) == ((days * 24 + hours) * 60 + minutes) * 60_000 + seconds * 1000 + part


@pytest.mark.clause("EXT-1", "by: any other text is refused, never read as something else")
@given(st.text(alphabet="P0123456789.,WDTHMSY+- ", max_size=12))
def test_any_text(text: str):
    found = milliseconds(text)
    assert found is None or (text[0] == "P" and text[-1] in "WDHMS" and not set(text) & set("Y+- "))


@pytest.mark.clause("EXT-2", "durationHours is the total, rounded up")
@pytest.mark.parametrize(("until", "hours"), [(HOUR, 1), (HOUR + 1, 2), (2 * HOUR, 2)])
def test_the_total_in_hours(until: int, hours: int):
    change = Change(1000 + until, (1000, 2000), "t", 5)
    assert change.duration_hours == hours
    assert Change.from_json(change.as_json()) == change
    assert Change.from_json(None) is None


@pytest.mark.clause("REC-8", "a deadline moves by as much of a gap as lies in its time")
@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ((), 200),
        (((0, 50),), 200),  # over before it began to run
        (((50, 120),), 220),  # began to run within the gap
        (((120, 150),), 230),
        (((120, 500),), 580),
        (((200, 500),), 200),  # the deadline had passed
        (((120, 150), (210, 220)), 240),  # moved into the next gap
        (((120, 150), (230, 240)), 230),
    ],
)
def test_moved_by_gaps(spans: tuple[tuple[int, int], ...], expected: int):
    assert Gaps(spans).moved(200, since=100) == expected


SPANS = st.lists(st.integers(1, 400), max_size=8, unique=True).map(
    lambda found: tuple(zip(sorted(found)[::2], sorted(found)[1::2], strict=False))
)


@pytest.mark.clause("REC-8", "the time that runs is as long as without gaps")
@given(spans=SPANS, since=st.integers(0, 300), length=st.integers(1, 200))
def test_time_outside_gaps_is_what_counts(spans: tuple[tuple[int, int], ...], since: int, length: int):
    deadline = Gaps(spans).moved(since + length, since=since)
    heard = [t for t in range(since, deadline) if not any(began <= t < ended for began, ended in spans)]
    assert len(heard) == length
    assert heard[-1] == deadline - 1


def terms(**changed: int | None) -> Terms:
    known = {"ends_at": 10 * HOUR, "ending_told_for": None, "lease_ms": 0}
    return Terms(cut_short=False, **(known | changed))  # type: ignore[arg-type]


@pytest.mark.clause("EVT-4", "which times are told")
def test_what_is_told():
    assert [r.at for r in reminders.reminders(terms())] == [10 * HOUR - 900_000]
    assert list(reminders.reminders(terms(ending_told_for=10 * HOUR))) == []
    leased = terms(lease_ms=60_000, lease_expires_at=HOUR, lease_deadline=HOUR + 500, ending_told_for=10 * HOUR)
    assert [(r.why, r.at, r.of) for r in reminders.reminders(leased)] == [("lease", HOUR - 29_500, HOUR + 500)]
    told = terms(lease_ms=60_000, lease_expires_at=HOUR, lease_deadline=HOUR, lease_told_for=HOUR)
    assert [r.why for r in reminders.reminders(told)] == ["end"]


@pytest.mark.clause("EVT-4", "the first look is early enough for each of them")
@pytest.mark.parametrize(
    ("starts_at", "ends_at", "lease_ms", "expected"),
    [
        (5000, 5000 + HOUR, 0, 5000),
        (5 * HOUR, 5 * HOUR + 60_000, 0, 5 * HOUR + 60_000 - 900_000),
        (5 * HOUR, 6 * HOUR, 60_000, 31_000),
        (5000, 6000, 0, 1000),
    ],
)
def test_first_look(starts_at: int, ends_at: int, lease_ms: int, expected: int):
    assert reminders.first_look(starts_at=starts_at, ends_at=ends_at, lease_ms=lease_ms, now=1000) == expected


@pytest.mark.clause("POL-1", "policy agentsNeedLease: agents by themselves and in a person's name")
@pytest.mark.parametrize(
    ("needed", "seconds", "kind", "agent", "refused"),
    [
        (True, None, "agent", "", True),
        (True, None, "user", "agt_1", True),
        (True, None, "user", "", False),
        (True, 30, "agent", "", False),
        (True, 30, "user", "agt_1", False),
        (False, None, "agent", "", False),
        (False, None, "user", "agt_1", False),
    ],
)
def test_who_needs_a_lease(needed: bool, seconds: int | None, kind: str, agent: str, refused: bool):
    issues = list(leases.lease_issues(lease_seconds=seconds, needed=needed, creator_kind=kind, agent_id=agent))
    assert [issue.path for issue in issues] == (["leaseSeconds"] if refused else [])
