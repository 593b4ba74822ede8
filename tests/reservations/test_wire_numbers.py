"""Numbers, times and texts as clients may spell them: each is taken for what it is, or INVALID_INPUT at its field.

Bodies are written as text, because the spellings are the point: what Python would make of them is not what was sent.
"""

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from computeplatform.models import Event
from fleet.models import Allocation
from iam.models import Decision
from quotas.models import Charge, Quota
from reservations import reconcilers
from reservations.models import Booking, Reservation
from tests.support.api import Answer
from tests.support.clock import Clock
from tests.support.world import HOUR, World, fresh_key, request

MOST = 2**53 - 1
DAY = 24 * HOUR

CREATE, EXTEND, AVAILABLE, GET = "reservations/create", "reservations/extend", "pools/availability", "reservations/get"
METHODS = (CREATE, EXTEND, AVAILABLE, GET)

AMOUNTS = ("resources.vcpu", "resources.memoryGiB", "resources.hugepages1Gi")
WINDOW = ("startsAt", "endsAt", "durationSeconds", "startBefore")
NUMBERS = {
    CREATE: ("devices.count", "nodes", *WINDOW, "priority", *AMOUNTS, "leaseSeconds", "wait.timeoutMs"),
    EXTEND: ("until", "by"),
    AVAILABLE: ("devices.count", "nodes", *AMOUNTS, "durationSeconds", "from", "to"),
    GET: ("wait.timeoutMs", "wait.version"),
}
EVERY_NUMBER = [(method, field) for method in METHODS for field in NUMBERS[method]]

# Two of these say one thing between them, and the refusal may be at the other.
TOGETHER = {
    "durationSeconds": {"endsAt"},
    "endsAt": {"startBefore"},
    "startsAt": {"endsAt", "startBefore"},
    "devices.count": {"nodes"},
    "by": {"until"},
    "from": {"to", "durationSeconds"},
    "to": {"durationSeconds"},
}

# No number of JSON, or none that a double holds exactly: the body is refused as a whole.
NO_NUMBERS = (
    *("NaN", "-NaN", "Infinity", "-Infinity", "inf", "1e309", "-1e309", "1e400", f"{2**53}", f"-{2**53}", "1e16"),
    *(f"{2**53 + 1}.0", "9" * 5_000, "01", "+1", "-", "1.", ".5", "0x10", "1_000", "1e", "\uff11", "1,0", "--1"),
)
# JSON, and no whole number in the range of any field.
NOT_WHOLE = ("-1", "-1.0", f"-{MOST}", "1.5", "1e-3", "0.1e-400", "true", "false", "null", "[]", "[1]", "{}")
WORDS = ('"1"', '"NaN"', '""', '"2027-06-30T23:59:60Z"', '"2027-01-01T00:00:00+05:45"')


class Wire:
    """A world to send to: a pool, a reservation of ann's that runs in it, and a valid request of each method."""

    def __init__(self, world: World, clock: Clock) -> None:
        self.api = world.ann.api
        self.pool = world.pool(policy={"maxAdvanceDays": 3_650, "maxDurationHours": 1_000})
        unlimited = {"gpu": MOST, "vcpu": MOST, "memoryGiB": MOST}
        world.admin("pools/offer", poolId=self.pool, toTenantId="acme", resources=unlimited)
        world.node(self.pool)
        made = self.api(CREATE, **request(self.pool, binding="hold")).data["reservation"]
        reconcilers.reconcile_tick()
        self.running = self.api(GET, reservationId=made["id"]).data["reservation"]
        self.now = clock.now

    def asked(self, method: str) -> dict[str, Any]:
        """A request that is good."""
        if method == CREATE:
            return request(self.pool, wait={"timeoutMs": 0}, resources={})
        if method == AVAILABLE:
            span = {"from": self.now, "to": self.now + 2 * DAY, "durationSeconds": 3_600}
            return {"poolId": self.pool, "devices": {"class": "gpu", "count": 1}, "resources": {}} | span
        named = {"reservationId": self.running["id"]}
        return named | ({"by": HOUR} if method == EXTEND else {"wait": {"until": "changed", "timeoutMs": 0}})

    def send(self, method: str, **raw: str) -> Answer:
        """A good request in which these members, named by their path, are spelled so."""
        asked = {"tenantId": "acme"} | self.asked(method)
        if "endsAt" in raw:
            asked.pop("durationSeconds", None)
        if "until" in raw:
            asked.pop("by", None)
        marks = {}
        for number, (path, text) in enumerate(raw.items()):
            *parents, name = path.split(".")
            inside = asked
            for parent in parents:
                inside = inside.setdefault(parent, {})
            inside[name] = f"@{number}@"
            marks[f'"@{number}@"'] = text
        body = json.dumps(asked)
        for mark, text in marks.items():
            body = body.replace(mark, text)
        return self.raw(method, body)

    def raw(self, method: str, body: str | bytes) -> Answer:
        """Any body; whatever it is, the platform does not fail."""
        answer = self.api.raw(f"/api/compute/{method}", body)
        assert answer.status < 500, (method, body, answer.body)
        return answer

    def everything(self) -> dict[str, Any]:
        """All that a refused request could leave behind."""
        tables = (Reservation, Booking, Charge, Quota)
        rows = {table.__name__: sorted(map(str, table.objects.values())) for table in tables}
        return rows | {table.__name__: table.objects.count() for table in (Event, Decision, Allocation)}


@pytest.fixture
def wire(world: World, clock: Clock) -> Wire:
    return Wire(world, clock)


def paths(answer: Answer) -> set[str]:
    return {issue["path"] for issue in answer.refused("INVALID_INPUT")["details"]["issues"]}


# --- What is refused --------------------------------------------------------------------------------------------------


@pytest.mark.clause("API-4", "NaN, Infinity and what no double holds are INVALID_INPUT")
@pytest.mark.parametrize("method", METHODS)
def test_what_is_no_number_is_refused(wire: Wire, method: str):
    before = wire.everything()
    for field in NUMBERS[method]:
        for text in NO_NUMBERS:
            wire.send(method, **{field: text}).refused("INVALID_INPUT")
    assert wire.everything() == before


@pytest.mark.clause("API-4", "a number out of range is refused at its field, never clamped")
@pytest.mark.clause("EXT-1", "until and by are whole")
@pytest.mark.clause("GET-2", "timeoutMs is a whole number up to 30000")
@pytest.mark.parametrize("method", METHODS)
def test_what_is_not_a_whole_number_is_refused_at_its_field(wire: Wire, method: str):
    before = wire.everything()
    for field in NUMBERS[method]:
        for text in (*NOT_WHOLE, *(WORDS[1:] if field == "by" else WORDS)):
            assert paths(wire.send(method, **{field: text})) == {field}, text
    assert wire.everything() == before


@pytest.mark.clause("API-4", "integers within ±(2^53−1)")
@pytest.mark.clause("CRE-10", "a window over the pool's limits: INVALID_INPUT")
@pytest.mark.clause("EXT-7", "the pool's limits on the total")
@pytest.mark.parametrize("method", METHODS)
def test_the_biggest_integer_is_read_and_refused_at_its_field(wire: Wire, method: str):
    before = wire.everything()
    for field in sorted({*NUMBERS[method]} - {"startBefore", "wait.version"}):
        for text in (f"{MOST}", f"{MOST}.0", f"{MOST}e0"):
            # A range that begins so late ends before it does.
            assert ("to" if field == "from" else field) in paths(wire.send(method, **{field: text}))
    assert wire.everything() == before


@pytest.mark.clause("CRE-16", "startBefore")
@pytest.mark.clause("GET-2", "changed when the version is no longer the given one")
def test_the_biggest_integer_where_it_is_in_range(wire: Wire):
    made = wire.send(CREATE, startBefore=f"{MOST}").data["reservation"]
    assert made["requested"]["startBefore"] == MOST
    seen = wire.send(GET, **{"wait.version": f"{MOST}", "wait.timeoutMs": "30000"}).data["reservation"]
    assert seen == wire.running


# --- What is read as it is meant --------------------------------------------------------------------------------------


def spellings(value: int) -> tuple[str, ...]:
    """One number in the ways in which JSON may have it."""
    ways = (f"{value}", f"{value}.0", f"{value}.000", f"{value}e0", f"{value}E+0")
    return (*ways, f"{value}0e-1") if value else (*ways, "-0", "-0.0", "0e5", "-0e-5")


@pytest.mark.clause("CRE-3", "number spelling (1 and 1.0) is no difference")
@pytest.mark.clause("CRE-2", "same inputs, same id")
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("devices.count", 1),
        ("nodes", 1),
        ("durationSeconds", 1_000),
        ("priority", 0),
        ("leaseSeconds", 30),
        ("resources.vcpu", 0),
        ("resources.memoryGiB", 100),
    ],
)
def test_a_number_spelled_otherwise_is_the_same_request(wire: Wire, field: str, value: int):
    key = json.dumps(fresh_key())
    made = [wire.send(CREATE, idempotencyKey=key, **{field: text}).data["reservation"] for text in spellings(value)]
    assert all(one == made[0] for one in made)
    assert Reservation.objects.count() == 2


@pytest.mark.clause("EXT-1", "by is whole milliseconds: 3.6e6 is an hour")
def test_an_extension_by_a_number_spelled_otherwise(wire: Wire):
    end = wire.running["endsAt"]
    for text in ("3600000", "3600000.0", "3.6e6", "36e5", "36000000e-1"):
        answer = wire.send(EXTEND, by=text).data
        end += HOUR
        assert (answer["extended"], answer["reservation"]["endsAt"]) == (True, end)
    for text in spellings(end + 1_000)[1:3]:
        answer = wire.send(EXTEND, until=text).data
        assert answer["reservation"]["endsAt"] == end + 1_000


@pytest.mark.clause("POL-2", "numbers spelled otherwise ask the same")
def test_availability_asked_with_numbers_spelled_otherwise(wire: Wire):
    plain = wire.send(AVAILABLE).data
    assert plain["earliest"]["startsAt"] == wire.now
    for other in (
        {"devices.count": "1e0", "durationSeconds": "3.6e3", "from": f"{wire.now}.0"},
        {"nodes": "10e-1", "resources.vcpu": "-0.0", "resources.memoryGiB": "-0"},
    ):
        assert wire.send(AVAILABLE, **other).data == plain


@pytest.mark.clause("GET-2", "numbers spelled otherwise wait the same")
def test_a_wait_with_numbers_spelled_otherwise(wire: Wire):
    for text in ("1e3", "1000.0", "-0.0", "3e4"):
        assert wire.send(GET, **{"wait.timeoutMs": text}).data["reservation"] == wire.running
    version = wire.running["version"]
    assert wire.send(GET, **{"wait.version": f"{version}.0"}).data["reservation"] == wire.running


def shown(made: dict[str, Any], field: str) -> Any:
    """What a reservation shows of a field of its request."""
    if field in WINDOW:
        return made["requested"][field]
    value: Any = made
    for name in field.split("."):
        value = value[name]
    return value


_texts = st.one_of(
    st.integers(-(2**54), 2**54).map(str),
    st.integers(0, 40_000).map(str),
    st.integers(-10, 4_100).map(lambda n: f"{n}.0"),
    st.floats(width=64).map(json.dumps),
    st.sampled_from([*NO_NUMBERS, *NOT_WHOLE, *WORDS, "1e3", "-0.0", f"{MOST}"]),
)


@pytest.mark.clause("API-4", "any number anywhere is read as it is or refused at its field")
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.sampled_from(EVERY_NUMBER), text=_texts)
def test_any_number_anywhere_is_right_or_refused(wire: Wire, place: tuple[str, str], text: str):
    method, field = place
    before, end = wire.everything(), Reservation.objects.get(id=wire.running["id"]).ends_at
    answer = wire.send(method, **{field: text})
    if answer.status != 200:
        assert paths(answer) <= {"", field} | TOGETHER.get(field, set())
        assert wire.everything() == before
        return
    value = json.loads(text)
    if method == CREATE and field != "wait.timeoutMs":
        found = shown(answer.data["reservation"], field)
        # The share is a floor for what is asked of the host.
        assert found >= value if field in AMOUNTS else found == value
    if method == EXTEND:
        extended, wanted = answer.data["extended"], end + value if field == "by" else value
        assert answer.data["reservation"]["endsAt"] == (wanted if extended else end)
        assert extended or wanted <= end or answer.data["availableUntil"] < wanted


# --- Times ------------------------------------------------------------------------------------------------------------


def ms(local: datetime) -> int:
    """What a client makes of its own time."""
    return int(local.timestamp() * 1_000)


@pytest.mark.clause("CRE-16", "the end is fixed as it was given, in whatever zone the client lives")
@pytest.mark.clause("EXT-1", "until is an instant, not a time of day")
@pytest.mark.clause("POL-2", "windows begin at any millisecond")
def test_a_client_at_a_quarter_to(wire: Wire):
    """In Kathmandu (UTC+05:45) a day begins when no hour of UTC does."""
    zone = ZoneInfo("Asia/Kathmandu")
    today = datetime.fromtimestamp(wire.now / 1_000, zone).replace(hour=0, minute=0, second=0, microsecond=0)
    begin, end = ms(today + timedelta(days=2)), ms(today + timedelta(days=3))
    assert (begin % HOUR, end - begin) == (HOUR // 4, DAY)
    found = wire.send(AVAILABLE, **{"from": str(begin), "to": str(end), "durationSeconds": "86400"}).data
    assert found["earliest"] == {"startsAt": begin, "endsAt": end}
    made = wire.send(CREATE, startsAt=str(begin), endsAt=str(end)).data["reservation"]
    assert (made["startsAt"], made["endsAt"]) == (begin, end)
    answer = wire.send(EXTEND, until=str(begin)).data
    assert (answer["extended"], answer["reservation"]["endsAt"]) == (True, begin)


def next_change(zone: ZoneInfo, now: int, hours: int) -> datetime:
    """The next day in the zone that has so many hours, at its beginning."""
    day = datetime.fromtimestamp(now / 1_000, zone).replace(hour=0, minute=0, second=0, microsecond=0)
    for _ in range(400):
        day += timedelta(days=1)
        if ms(day + timedelta(days=1)) - ms(day) == hours * HOUR:
            return day
    raise AssertionError(f"{zone} has no day of {hours} hours")


@pytest.mark.clause("CRE-7", "durationHours of a day of 23 or 25 hours")
@pytest.mark.clause("EXT-1", "by P1D is 24 hours on every day")
@pytest.mark.parametrize("hours", [23, 25])
def test_a_day_of_23_or_25_hours(wire: Wire, hours: int):
    day = next_change(ZoneInfo("Europe/Berlin"), wire.now, hours)
    begin, end = ms(day), ms(day + timedelta(days=1))
    made = wire.send(CREATE, startsAt=str(begin), endsAt=str(end)).data["reservation"]
    assert made["endsAt"] - made["startsAt"] == hours * HOUR
    decided = Decision.objects.filter(action="compute:reservations:create", resource_id=made["id"]).get()
    assert decided.attributes["durationHours"] == hours
    again = wire.api(EXTEND, reservationId=made["id"], by="P1D").data["reservation"]
    assert again["endsAt"] == end + DAY


@pytest.mark.clause("REC-6", "windows that meet at a leap second do not overlap")
@pytest.mark.clause("CRE-14", "what fits is placed")
def test_a_leap_second_has_no_instant_of_its_own(wire: Wire):
    """Were one put in at the end of a June, its epoch time would be that of the midnight after it."""
    year = datetime.fromtimestamp(wire.now / 1_000, UTC).year + 1
    midnight = ms(datetime(year, 7, 1, tzinfo=UTC))
    second_59, leap = midnight - 1_000, midnight
    whole = {"devices.count": "8"}
    first = wire.send(CREATE, startsAt=str(second_59 - HOUR), endsAt=str(leap), **whole).data["reservation"]
    second = wire.send(CREATE, startsAt=str(leap), endsAt=str(midnight + HOUR), **whole).data["reservation"]
    assert (first["state"], second["state"]) == ("placed", "placed")
    assert first["endsAt"] == second["startsAt"] == midnight
    over = wire.send(CREATE, startsAt=str(midnight - 1), endsAt=str(midnight + 1), **whole).data["reservation"]
    assert over["state"] == "pending"


# --- Texts and bodies -------------------------------------------------------------------------------------------------

NUL, LONE = '"a\\u0000b"', '"a\\ud800b"'


@pytest.mark.clause("API-4", "NUL and lone surrogates are refused at their field")
@pytest.mark.clause("CRE-5", "the key of a refused body is not used up")
def test_texts_that_cannot_be_stored(wire: Wire):
    before = wire.everything()
    for text in (NUL, LONE, '"\\udfff\\ud800"'):
        for field in ("name", "labels.team", "poolId", "devices.class", "binding", "maxCost", "idempotencyKey"):
            assert paths(wire.send(CREATE, **{field: text})) == {field}
        for method, field in ((EXTEND, "by"), (EXTEND, "reservationId"), (AVAILABLE, "poolId"), (GET, "wait.until")):
            assert paths(wire.send(method, **{field: text})) == {field}
        for method in METHODS:
            assert paths(wire.send(method, unknown=text)) == {"unknown"}
            assert paths(wire.send(method, tenantId=text)) == {"tenantId"}
        wire.send(CREATE, labels=f"{{{text}: 1}}").refused_at("labels")
    assert wire.everything() == before


@pytest.mark.clause("API-10", "a name of up to 128 characters, of whatever script")
def test_names_that_are_long(wire: Wire):
    before = wire.everything()
    for name in ("x" * 129, "\N{OLD PERSIAN SIGN A}" * 129, "x" * 60_000):
        assert paths(wire.send(CREATE, name=json.dumps(name))) == {"name"}
    assert paths(wire.send(CREATE, labels=json.dumps({"a" * 64: "x"}))) == {"labels." + "a" * 64}
    assert paths(wire.send(CREATE, labels=json.dumps({"a": "x" * 256}))) == {"labels.a"}
    assert paths(wire.send(CREATE, idempotencyKey=json.dumps("k" * 129))) == {"idempotencyKey"}
    for method, field in ((EXTEND, "reservationId"), (GET, "reservationId"), (AVAILABLE, "poolId")):
        assert paths(wire.send(method, **{field: json.dumps("i" * 129)})) == {field}
        wire.send(method, **{field: json.dumps("i" * 70_000)}).refused("PAYLOAD_TOO_LARGE")
    assert wire.everything() == before
    longest = {"name": "\N{OLD PERSIAN SIGN A}" * 128, "labels": {"a" * 63: "\N{SNOWMAN}" * 255}}
    made = wire.send(CREATE, **{member: json.dumps(value) for member, value in longest.items()}).data["reservation"]
    assert {member: made[member] for member in longest} == longest


@pytest.mark.clause("API-4", "nesting over 32 is INVALID_INPUT, also where the field is unknown")
@pytest.mark.parametrize("method", METHODS)
def test_bodies_that_are_deep(wire: Wire, method: str):
    before = wire.everything()
    for opened, closed in (("[", "]"), ('{"a":', "}")):
        deepest = opened * 31 + "1" + closed * 31
        assert paths(wire.send(method, deep=deepest)) == {"deep"}
        assert paths(wire.send(method, deep=opened + deepest + closed)) == {""}
        assert paths(wire.send(method, deep=opened * 6_000 + "1" + closed * 6_000)) == {""}
    assert wire.everything() == before


@pytest.mark.clause("API-4", "duplicate keys are refused, in any spelling and at any depth")
@pytest.mark.parametrize("method", METHODS)
def test_bodies_that_say_a_thing_twice(wire: Wire, method: str):
    before = wire.everything()
    asked = json.dumps({"tenantId": "acme"} | wire.asked(method))
    for again in ('"tenantId": "acme"', '"\\u0074enantId": "globex"'):
        assert paths(wire.raw(method, f"{asked[:-1]}, {again}}}")) == {"tenantId"}
    twice = {
        CREATE: '{"timeoutMs": 1, "timeoutMs": 1}',
        EXTEND: '{"until": 1, "until": 2}',
        AVAILABLE: '{"vcpu": 1, "vcpu": 1.0}',
        GET: '{"until": "active", "until": "terminal", "timeoutMs": 1}',
    }[method]
    member = "resources" if method == AVAILABLE else "wait"
    [name] = paths(wire.send(method, **{member: twice}))
    assert name in twice
    assert wire.everything() == before
