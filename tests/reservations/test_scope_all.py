"""``reservations/list`` with scope all: each row checked on itself, none recorded, hidden ones told of by nothing."""

from collections.abc import Callable, Iterator
from decimal import Decimal
from itertools import count, pairwise
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from computeplatform.clock import compute_now
from fleet.queries import pools_by_id
from iam.models import Decision
from iam.ports import authenticate, decide
from iam.queries.judging import judge_live
from reservations.models import Reservation
from reservations.queries import decision_resource, listing
from reservations.vocabulary import ATTRIBUTES
from tests.iam.support import circumstances
from tests.reservations.test_reading import create, listed
from tests.support.api import Api, settle
from tests.support.world import HOUR, Person, World

READ = 'action == Compute::Action::"compute:reservations:read"'


@pytest.fixture
def rows(world: World, pool: str) -> Iterator[Callable[..., list[str]]]:
    """Makes ended reservations, the first the newest; each is one that ann has cancelled, with other columns.

    Nothing but lists knows them, so they are gone before invariants are checked.
    """
    first = create(world.ann.api, pool, startsAt=compute_now() + HOUR)["id"]
    world.ann.api("reservations/cancel", reservationId=first).data  # noqa: B018
    template = Reservation.objects.filter(id=first).values().get()
    Reservation.objects.filter(id=first).update(created_at=1)
    numbers = count()

    def make(*changes: dict[str, Any]) -> list[str]:
        made = []
        for change in changes:
            number = next(numbers)
            own = {"id": f"res_{number:05}", "idempotency_key": f"row-{number}", "creator_id": world.bob.id}
            made.append(Reservation(**template | own | {"created_at": template["created_at"] - number} | change))
        Reservation.objects.bulk_create(made)
        return [row.id for row in made]

    yield make
    Reservation.objects.filter(idempotency_key__startswith="row-").delete()


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The resources that policies were really asked about."""
    asked: list[str] = []

    def noted(subject: Any, action: str, resource: Any, context: Any) -> Any:
        asked.append(resource.id)
        return judge_live(subject, action, resource, context)

    monkeypatch.setattr("iam.queries.row_checks.judge_live", noted)
    return asked


def pages(api: Api, **fields: Any) -> Iterator[dict[str, Any]]:
    """Every page, from the first to the one without a next."""
    cursor: dict[str, str] = {}
    while True:
        page = api("reservations/list", scope="all", **cursor, **fields).data
        yield page
        if "nextCursor" not in page:
            return
        cursor = {"cursor": page["nextCursor"]}


def ids(page: dict[str, Any]) -> list[str]:
    return [row["id"] for row in page["reservations"]]


def theirs(person: Person) -> dict[str, Any]:
    return {"creator_id": person.id}


NO_WINDOW: dict[str, Any] = dict.fromkeys(
    ("starts_at", "ends_at", "requested_starts_at", "requested_ends_at", "duration", "start_before")
)

# --- What is shown --------------------------------------------------------------------------------

ROW = f"principal, {READ}, resource is Compute::Reservation"
POLICIES = [
    "",
    f"permit ({ROW});",
    f"forbid ({ROW}) when {{ resource.gpuCount > 3 }};",
    f"permit ({ROW}) when {{ resource.durationHours > 24 }};",
    f'permit ({ROW}) when {{ resource.estimatedCost.lessThan(decimal("2.5")) && resource.currency == "EUR" }};',
    f'permit (principal, {READ}, resource == Compute::Reservation::"res_00003");',
    f'forbid ({ROW}) when {{ resource in [Compute::Reservation::"res_00002"] }};',
    f'forbid ({ROW}) when {{ [Compute::Reservation::"res_00001", resource].contains(resource) }};',
    f'permit ({ROW}) when {{ principal in Compute::Group::"acme/research" && resource.startsInHours < 3 }};',
    f"forbid ({ROW.replace('==', 'in').replace(':reservations:', ':*:')}) unless {{ resource.priority >= 50 }};",
    f"forbid ({ROW}) when {{ resource.gpuCount + 9223372036854775806 > 0 }};",
    'forbid (principal, action == Compute::Action::"compute:reservations:extend", resource);',
]


@pytest.mark.clause("LST-2", "scope all: each reservation is checked on itself")
@pytest.mark.parametrize("text", POLICIES)
def test_what_is_shown_is_what_each_decision_by_itself_allows(
    world: World, rows: Callable[..., list[str]], clock: Any, text: str
):
    hours = [1, 25, 48, 1, 30, 2, 24]
    rows(
        *(
            {"creator_id": who.id, "count": 1 + n % 5, "priority": 40 + 5 * n, "starts_at": clock.now + n * HOUR}
            | {
                "ends_at": clock.now + (n + hours[n]) * HOUR,
                "estimated_cost": Decimal(n),
                "currency": "EUR" if n % 2 else "",
            }
            for n, who in enumerate([world.ann, world.bob, world.ann, world.bob, world.vic, world.bob, world.ann])
        )
    )
    world.acme.api.iam("principals/update", principalId=world.bob.id, groups=["research"]).data  # noqa: B018
    if text:
        world.acme.api.iam("policies/put", name="rules", text=text).data  # noqa: B018
    everything = list(Reservation.objects.filter(tenant_id="acme").order_by("-created_at", "-id"))
    assert len(everything) == 8
    for person in (world.ann, world.bob, world.vic, world.acme):
        who = authenticate(person.api.token, now=compute_now(), source_ip="127.0.0.1")
        context = circumstances(source_ip="127.0.0.1")
        allowed = [
            row.id
            for row in everything
            if decide(
                who,
                listing.READ,
                decision_resource(row, pools_by_id([row.pool_id])[row.pool_id], now=context.time),
                context=context,
                record=False,
            ).allowed
        ]
        assert listed(person.api, scope="all") == allowed
        assert [one for page in pages(person.api, limit=2) for one in ids(page)] == allowed


@pytest.mark.clause("LST-2", "a reserver with scope all sees only its own, in sessions too")
def test_a_session_sees_what_its_person_sees_and_its_ceilings_permit(world: World, pool: str):
    robot = world.agent(world.bob)
    session = world.session(robot, world.ann)
    mine = create(world.ann.api, pool)["id"]
    others = create(world.bob.api, pool)["id"]
    by_session = create(session, pool)["id"]
    for api in (world.ann.api, session):
        assert sorted(listed(api, scope="all")) == sorted(listed(api)) == sorted([mine, by_session])
    assert sorted(listed(world.vic.api, scope="all")) == sorted([mine, others, by_session])
    # A person who may read all, and an agent that may read for them.
    viewing = world.session(robot, world.vic)
    assert sorted(listed(viewing, scope="all")) == sorted([mine, others, by_session])
    assert listed(viewing) == []
    hide = f'forbid ({ROW}) when {{ context.delegated && resource.creatorId == "{world.bob.id}" }};'
    world.acme.api.iam("policies/put", name="agents", text=hide).data  # noqa: B018
    assert sorted(listed(viewing, scope="all")) == sorted([mine, by_session])
    assert sorted(listed(world.vic.api, scope="all")) == sorted([mine, others, by_session])
    narrow = world.session(robot, world.vic, scopes=["compute:pools:read"])
    narrow("reservations/list", scope="all").refused("ACCESS_DENIED")


@pytest.mark.clause("LST-2", "a session sees no more than its person, whatever policies say")
def test_a_policy_for_sessions_shows_nothing_that_the_person_may_not_read(world: World, pool: str):
    create(world.bob.api, pool)
    text = f"permit (principal, {READ}, resource) when {{ context.delegated }};"
    world.acme.api.iam("policies/put", name="agents", text=text).data  # noqa: B018
    session = world.session(world.agent(world.bob), world.ann)
    assert listed(session, scope="all") == listed(world.ann.api, scope="all") == []


# --- What tells of nothing ------------------------------------------------------------------------


@pytest.mark.clause("LST-2", "no total leaks, nor that there are hidden rows")
def test_hidden_rows_change_nothing_in_an_answer(world: World, rows: Callable[..., list[str]], monkeypatch: Any):
    monkeypatch.setattr(listing, "CHUNK", 3)
    mine = rows(*[theirs(world.ann)] * 3)
    first = Reservation.objects.get(created_at=1).id
    for hidden in (0, 1, 20):
        rows(*[theirs(world.bob)] * hidden)
        assert [ids(page) for page in pages(world.ann.api, limit=2)] == [mine[:2], [mine[2], first]]
        page = world.ann.api("reservations/list", scope="all", limit=4).data
        assert page.keys() == {"reservations"}


@pytest.mark.clause("LST-2", "rows of a list are not audited")
def test_no_row_is_recorded(world: World, rows: Callable[..., list[str]]):
    rows(*[theirs(world.bob)] * 5)
    before = Decision.objects.count()
    assert len(listed(world.ann.api, scope="all")) == 1
    assert Decision.objects.count() == before


@pytest.mark.clause("LST-2", "short only at the end or after 10,000 rows; then an opaque mark")
def test_after_so_many_rows_a_call_stops_and_says_where(world: World, rows: Callable[..., list[str]], monkeypatch: Any):
    assert listing.SCAN_LIMIT == 10_000
    monkeypatch.setattr(listing, "SCAN_LIMIT", 10)
    monkeypatch.setattr(listing, "CHUNK", 4)
    rows(*[theirs(world.bob)] * 14)
    mine = rows(theirs(world.ann))
    rows(*[theirs(world.bob)] * 4)
    first = Reservation.objects.get(created_at=1).id
    found = list(pages(world.ann.api, limit=3))
    # Ten hidden rows, ten with one to be shown, and no eleventh: the oldest is the twentieth.
    assert [ids(page) for page in found] == [[], [mine[0], first]]
    mark = found[0]["nextCursor"]
    assert not any(row in mark for row in Reservation.objects.values_list("id", flat=True))
    assert ids(world.acme.api("reservations/list", scope="mine", cursor=mark).data) == []
    assert len(ids(world.acme.api("reservations/list", scope="all", cursor=mark, limit=200).data)) == 10
    world.gil.api("reservations/list", scope="all", cursor=mark).refused_at("cursor")
    world.ann.api("reservations/list", scope="all", cursor=mark[:-2]).refused_at("cursor")


@pytest.mark.clause("LST-2", "short only at the end or after 10,000 rows; then an opaque mark")
def test_a_full_page_is_marked_where_the_call_stopped_looking(
    world: World, rows: Callable[..., list[str]], monkeypatch: Any
):
    monkeypatch.setattr(listing, "SCAN_LIMIT", 6)
    monkeypatch.setattr(listing, "CHUNK", 4)
    mine = rows(*[theirs(world.ann)] * 2)
    rows(*[theirs(world.bob)] * 9)
    first = Reservation.objects.get(created_at=1).id
    found = list(pages(world.ann.api, limit=2))
    assert [ids(page) for page in found] == [mine, [first]]


# --- What stands between the calls ----------------------------------------------------------------


@pytest.mark.clause("LST-3", "with hidden rows too, and past opaque marks")
@pytest.mark.parametrize(("scan", "chunk"), [(10_000, 500), (10_000, 2), (4, 2), (5, 3)])
def test_pages_neither_repeat_nor_skip_while_others_come_and_go(
    world: World, rows: Callable[..., list[str]], monkeypatch: Any, pool: str, scan: int, chunk: int
):
    monkeypatch.setattr(listing, "SCAN_LIMIT", scan)
    monkeypatch.setattr(listing, "CHUNK", chunk)
    order = [
        world.bob,
        world.ann,
        world.bob,
        world.bob,
        world.ann,
        world.ann,
        world.bob,
        world.bob,
        world.bob,
        world.ann,
    ]
    made = rows(*(theirs(who) for who in order))
    mine = [row for row, who in zip(made, order, strict=True) if who is world.ann]
    seen: list[str] = []
    for turn, page in enumerate(pages(world.ann.api, limit=2)):
        assert turn < 12
        seen += ids(page)
        # Between the calls one is created, and one of each kind ends.
        new = create(world.ann.api, pool, startsAt=compute_now() + (turn + 1) * HOUR)["id"]
        hidden = create(world.bob.api, pool)["id"]
        world.bob.api("reservations/release", reservationId=hidden).data  # noqa: B018
        world.ann.api("reservations/cancel", reservationId=new).data  # noqa: B018
    assert seen == [*mine, Reservation.objects.get(created_at=1).id]


@pytest.mark.clause("LST-2", "what is shown is checked as it is shown")
def test_what_changes_while_it_is_looked_at_is_looked_at_again(world: World, pool: str, clock: Any, monkeypatch: Any):
    clock.advance(seconds=1)
    older, newer = sorted(create(world.ann.api, pool)["id"] for _ in range(2))
    clock.advance(seconds=1)
    for _ in range(2):
        create(world.bob.api, pool)
    glimpses = listing._glimpses

    def meanwhile(*args: Any) -> Any:
        found = glimpses(*args)
        world.ann.api("reservations/release", reservationId=newer).data  # noqa: B018
        return found

    monkeypatch.setattr(listing, "_glimpses", meanwhile)
    monkeypatch.setattr(listing, "CHUNK", 1)
    shown = pages(world.ann.api, limit=1, state=["placed", "active"])
    assert [one for page in shown for one in ids(page)] == [older]
    settle()


@pytest.mark.clause("LST-2", "never leaks totals: other tenants' rows are not even looked at")
@pytest.mark.parametrize("scope", ["mine", "all"])
def test_rows_of_other_tenants_cost_nothing(world: World, rows: Callable[..., list[str]], monkeypatch: Any, scope: str):
    rows(*[theirs(world.ann) | {"tenant_id": "globex"}] * 5)
    monkeypatch.setattr(listing, "SCAN_LIMIT", 3)
    page = world.ann.api("reservations/list", scope=scope, limit=2).data
    assert [row["tenantId"] for row in page["reservations"]] == ["acme"]
    assert "nextCursor" not in page


@pytest.mark.clause("LST-2", "what is shown is checked as it is shown")
def test_what_may_not_be_read_any_more_is_not_shown(world: World, pool: str, clock: Any, monkeypatch: Any):
    text = f"permit ({ROW}) when {{ resource.durationHours < 2 }};"
    assert world.acme.api.iam("policies/put", name="rules", text=text).status == 200
    older, newer = sorted(create(world.bob.api, pool)["id"] for _ in range(2))
    clock.advance(seconds=1)
    for _ in range(2):
        create(world.bob.api, pool, durationSeconds=4 * 3600)
    glimpses, until = listing._glimpses, clock.now + 5 * HOUR

    def meanwhile(*args: Any) -> Any:
        found = glimpses(*args)
        world.bob.api("reservations/extend", reservationId=newer, until=until).data  # noqa: B018
        return found

    monkeypatch.setattr(listing, "_glimpses", meanwhile)
    assert [one for page in pages(world.ann.api, limit=1) for one in ids(page)] == [older]


# --- What it costs --------------------------------------------------------------------------------


@pytest.mark.clause("LST-2", "decided once for all that policies cannot tell apart")
def test_alike_rows_are_decided_on_once(world: World, rows: Callable[..., list[str]], judged: list[str], clock: Any):
    rows(
        *[
            {"creator_id": who.id, "count": 1 + n % 3, "starts_at": clock.now + n, "ends_at": clock.now + n + HOUR}
            for n in range(30)
            for who in (world.bob, world.vic)
        ]
    )
    listed(world.ann.api, scope="all", limit=200)
    assert len(judged) == 3  # three creators

    def asked_with(text: str) -> int:
        world.acme.api.iam("policies/put", name="rules", text=text).data  # noqa: B018
        judged.clear()
        listed(world.ann.api, scope="all", limit=200)
        return len(judged)

    assert asked_with(f"permit ({ROW}) when {{ resource.gpuCount > 2 }};") == 7
    # What is read for other actions does not count, nor how a window differs within an hour.
    other = 'action == Compute::Action::"compute:reservations:create"'
    assert asked_with(f"forbid (principal, {other}, resource) when {{ resource.gpuCount > 2 }};") == 3
    assert asked_with(f"permit ({ROW}) when {{ resource.durationHours > 2 }};") == 3
    # One that is named is asked about by itself.
    assert asked_with(f'permit (principal, {READ}, resource == Compute::Reservation::"res_00007");') == 4


@pytest.mark.clause("LST-2", "a number of queries that does not grow with the rows")
def test_a_page_asks_the_database_no_more_for_more_hidden_rows(
    world: World, rows: Callable[..., list[str]], monkeypatch: Any
):
    def asked(person: Person, **fields: Any) -> int:
        with CaptureQueriesContext(connection) as queries:
            person.api("reservations/list", scope="all", **fields).data  # noqa: B018
        return len(queries)

    for person in (world.acme, world.ann):
        listed(person.api)  # the use of a key is noted once a minute
    for hidden in (3, 60):
        rows(*[theirs(world.bob)] * hidden)
        # The clock, the credential, the rows, their pool; past the first page-full also glimpses and what they show.
        assert asked(world.acme) <= 4
        assert asked(world.ann, limit=1) <= 6
    monkeypatch.setattr(listing, "CHUNK", 20)
    assert asked(world.ann, limit=1) <= 6 + 3


@pytest.mark.parametrize(
    ("window", "times"),
    [
        ({}, {"starts_at": 0, "ends_at": 1}),
        # Waiting, for a window that was asked for, or for one that slides.
        (NO_WINDOW, {"requested_starts_at": 30, "requested_ends_at": 50}),
        (NO_WINDOW | {"duration": HOUR}, {"requested_starts_at": 30}),
    ],
)
def test_what_decides_on_a_row_is_among_the_columns_that_are_glimpsed(
    world: World, rows: Callable[..., list[str]], clock: Any, window: dict[str, Any], times: dict[str, int]
):
    """Each attribute depends on the columns that are listed for it, and on no other."""
    assert listing.COLUMNS_OF.keys() == ATTRIBUTES.keys()
    (name,) = rows(window | {name: clock.now + hours * HOUR for name, hours in times.items()})
    row = Reservation.objects.get(id=name)
    glimpse = listing._glimpses(listing.Filters("acme"), None, 1)[0]
    view = pools_by_id([row.pool_id])[row.pool_id]

    def attributes(of: Any) -> dict[str, Any]:
        return dict(decision_resource(of, view, now=clock.now).attributes)

    before = attributes(row)
    assert attributes(glimpse) == before
    texts = {"device_class": "mig", "tenant_id": "globex"}
    for column in listing._COLUMNS:
        row = Reservation.objects.get(id=name)
        value = getattr(row, column)
        if isinstance(value, bool):
            changed: Any = not value
        elif isinstance(value, (int, Decimal)) or value is None:
            changed = (value or 0) + 7 * HOUR
        else:
            changed = texts.get(column, "other")
        setattr(row, column, changed)
        differing = {key for key, now in attributes(row).items() if now != before[key]}
        assert differing <= {key for key, columns in listing.COLUMNS_OF.items() if column in columns}, column


def test_the_order_of_rows_is_total(world: World, rows: Callable[..., list[str]]):
    rows(*[theirs(world.ann) | {"created_at": 5}] * 7)
    found = [row for page in pages(world.ann.api, limit=2) for row in page["reservations"]]
    keys = [(row["createdAt"], row["id"]) for row in found]
    assert len(keys) == 8
    assert all(earlier > later for earlier, later in pairwise(keys))
