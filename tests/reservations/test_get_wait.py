"""Get that waits (GET-2)."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from computeplatform.parking import CHANNEL, WAIT_HEADER
from iam.models import Decision
from iam.operations.decisions import DECISIONS
from reservations import reconcilers
from reservations.models import Reservation
from tests.support.api import Answer, Api, settle
from tests.support.world import HOUR, World, request


def create(api: Api, pool: str, gpus: int = 1, **changed: Any) -> dict[str, Any]:
    return api("reservations/create", **request(pool, gpus, **changed)).data["reservation"]


def nothing() -> None:
    """Nobody does anything while the call is parked."""


class Waiter:
    """Somebody who gets a reservation with ``wait``; ``work`` happens each time the call has been parked."""

    def __init__(self, api: Api, work: Callable[[], object] = nothing, *, looks: int = 5) -> None:
        self.parked = 0
        self._work = work
        self._api = Api(api.token, api.tenant_id, work=self._count, looks=looks)

    def _count(self) -> None:
        self.parked += 1
        self._work()

    def get(self, reservation_id: str, until: str, *, timeout: int = 30_000, **wait: Any) -> Answer:
        wait = {"until": until, "timeoutMs": timeout} | wait
        return self._api("reservations/get", reservationId=reservation_id, wait=wait)


@pytest.mark.clause("GET-2", "active: answers as soon as it runs")
def test_it_waits_until_active(world: World, pool: str, clock):
    made = create(world.ann.api, pool, startsAt=clock.now + HOUR)

    def an_hour_passes() -> None:
        clock.advance(hours=1)
        settle()

    waiter = Waiter(world.ann.api, an_hour_passes)
    assert waiter.get(made["id"], "active").data["reservation"]["state"] == "active"
    assert waiter.parked == 1


@pytest.mark.clause("GET-2", "active: also when it became terminal")
@pytest.mark.clause("GET-2", "terminal: answers as soon as it has ended")
@pytest.mark.parametrize("until", ["active", "terminal"])
@pytest.mark.parametrize("ending", ["release", "cancel"])
def test_an_end_ends_the_wait(world: World, pool: str, clock, until: str, ending: str):
    made = create(world.ann.api, pool, startsAt=clock.now + HOUR)
    waiter = Waiter(world.ann.api, lambda: world.ann.api(f"reservations/{ending}", reservationId=made["id"]).data)
    assert waiter.get(made["id"], until).data["reservation"]["state"] in ("released", "cancelled")
    assert waiter.parked == 1


@pytest.mark.clause("GET-2", "terminal: a start is no end")
def test_a_start_does_not_end_the_wait_for_an_end(world: World, pool: str, clock):
    made = create(world.ann.api, pool)

    def time_passes() -> None:
        settle()
        clock.advance(seconds=1800)

    waiter = Waiter(world.ann.api, time_passes)
    assert waiter.get(made["id"], "terminal").data["reservation"]["reason"] == "ended"
    assert waiter.parked == 3


@pytest.mark.clause("GET-2", "changed: the version is no longer the one at the time of the call")
def test_it_waits_for_any_change(world: World, pool: str):
    made = create(world.ann.api, pool)
    works = iter([nothing, nothing, settle])

    def work() -> None:
        next(works)()

    waiter = Waiter(world.ann.api, work)
    found = waiter.get(made["id"], "changed").data["reservation"]
    assert (found["state"], waiter.parked) == ("active", 3)
    assert found["version"] > made["version"]


@pytest.mark.clause("GET-2", "changed: the version is no longer the given one")
def test_a_change_that_was_missed_is_answered_at_once(world: World, pool: str):
    made = create(world.ann.api, pool)
    settle()
    waiter = Waiter(world.ann.api)
    found = waiter.get(made["id"], "changed", version=made["version"]).data["reservation"]
    assert (found["state"], waiter.parked) == ("active", 0)
    # The version that it has now is waited on.
    assert waiter.get(made["id"], "changed", version=found["version"]).data["reservation"] == found
    assert waiter.parked > 0


@pytest.mark.clause("GET-2", "changed: a new condition is a change")
def test_a_new_reason_for_waiting_is_a_change(world: World, pool: str):
    create(world.ann.api, pool, 5)
    made = create(world.ann.api, pool, 8)

    def less_is_free() -> None:
        create(world.bob.api, pool, 1)
        reconcilers.placement_tick()

    waiter = Waiter(world.ann.api, less_is_free)
    found = waiter.get(made["id"], "changed").data["reservation"]
    assert found["state"] == "pending"
    assert found["conditions"] != made["conditions"]
    assert waiter.parked == 1


@pytest.mark.clause("GET-2", "what holds already is answered at once")
@pytest.mark.parametrize("until", ["active", "terminal"])
def test_what_holds_is_not_waited_for(world: World, pool: str, until: str):
    made = create(world.ann.api, pool)
    world.ann.api("reservations/release", reservationId=made["id"])
    waiter = Waiter(world.ann.api)
    assert waiter.get(made["id"], until).data["reservation"]["state"] == "released"
    assert waiter.parked == 0


@pytest.mark.clause("GET-2", "a timeout answers what is stored, not an error")
@pytest.mark.parametrize("until", ["active", "terminal", "changed"])
def test_when_the_time_is_up_it_answers_what_is_stored(world: World, pool: str, until: str):
    made = create(world.ann.api, pool)
    waiter = Waiter(world.ann.api, looks=1)
    assert waiter.get(made["id"], until, timeout=100).data["reservation"] == made
    assert waiter.parked > 0
    assert Waiter(world.ann.api).get(made["id"], until, timeout=0).data["reservation"] == made


@pytest.mark.clause("GET-2", "it is parked with the time that the caller gave")
def test_it_is_parked_on_its_reservation_for_the_given_time(world: World, pool: str):
    made = create(world.ann.api, pool)
    parked = world.ann.api.client.post(
        "/api/compute/reservations/get",
        data={
            "tenantId": "acme",
            "reservationId": made["id"],
            "wait": {"until": "terminal", "timeoutMs": 30_000},
        },
        content_type="application/json",
        headers={"authorization": f"Bearer {world.ann.api.token}"},
    )
    assert (parked.status_code, parked.content) == (202, b"{}")
    assert parked.headers[WAIT_HEADER] == f"{made['id']};30.000;{made['version']}"


@pytest.mark.clause("GET-2", "timeoutMs at most 30000; until one of three; version with changed alone")
@pytest.mark.parametrize(
    ("wait", "path"),
    [
        ({"until": "active"}, "wait.timeoutMs"),
        ({"timeoutMs": 1}, "wait.until"),
        ({"until": "placed", "timeoutMs": 1}, "wait.until"),
        ({"until": "active", "timeoutMs": 30_001}, "wait.timeoutMs"),
        ({"until": "active", "timeoutMs": -1}, "wait.timeoutMs"),
        ({"until": "active", "timeoutMs": "1"}, "wait.timeoutMs"),
        ({"until": "changed", "timeoutMs": 1, "version": "1"}, "wait.version"),
        ({"until": "active", "timeoutMs": 1, "version": 1}, "wait.version"),
        ({"until": "active", "timeoutMs": 1, "soon": True}, "wait.soon"),
        ([], "wait"),
        (None, "wait"),
    ],
)
def test_waits_that_are_none(world: World, pool: str, wait: Any, path: str):
    made = create(world.ann.api, pool)
    world.ann.api("reservations/get", reservationId=made["id"], wait=wait).refused_at(path)


@pytest.mark.clause("GET-2", "only who may read it waits; a foreign id and a draft answer at once")
def test_nobody_waits_for_what_they_may_not_read(world: World, clock):
    pool = world.offered_pool(quota=1)
    made = create(world.ann.api, pool)
    world.ann.api("reservations/create", **request(pool, 2)).refused("QUOTA_EXCEEDED")
    draft = Reservation.objects.get(state="draft").id
    for api, reservation_id, code in (
        (world.gil.api, made["id"], "NOT_FOUND"),
        (world.ann.api, draft, "NOT_FOUND"),
        (world.ann.api, "res_none", "NOT_FOUND"),
        (world.bob.api, made["id"], "ACCESS_DENIED"),
    ):
        waiter = Waiter(api)
        waiter.get(reservation_id, "changed").refused(code)
        assert waiter.parked == 0


@pytest.mark.clause("GET-2", "a waiting call is decided and counted once")
@pytest.mark.clause("IAM-7", "allowed reads are counted")
def test_a_waiting_call_counts_once(world: World, pool: str):
    made = create(world.ann.api, pool)
    entries = Decision.objects.count()
    counted = DECISIONS.labels("compute:reservations:read", "allow")
    before = counted._value.get()
    waiter = Waiter(world.ann.api, looks=4)
    waiter.get(made["id"], "changed")
    assert waiter.parked > 2
    assert counted._value.get() == before + 1
    assert Decision.objects.count() == entries


@pytest.mark.clause("GET-2", "who loses the permission or the key while waiting learns nothing more")
@pytest.mark.clause("IAM-1", "from live state")
def test_a_permission_that_goes_ends_the_wait(world: World, pool: str):
    made = create(world.ann.api, pool)
    forbid = 'forbid (principal, action == Compute::Action::"compute:reservations:read", resource);'

    def hide() -> None:
        assert world.acme.api.iam("policies/put", name="hidden", text=forbid).status == 200

    denials = Decision.objects.filter(outcome="deny").count()
    Waiter(world.ann.api, hide).get(made["id"], "changed").refused("ACCESS_DENIED")
    assert Decision.objects.filter(outcome="deny").count() == denials + 1


@pytest.mark.clause("GET-2", "who loses the permission or the key while waiting learns nothing more")
def test_a_key_that_goes_ends_the_wait(world: World, pool: str):
    made = create(world.ann.api, pool)
    key = world.acme.api.iam("keys/list", principalId=world.ann.id).data["keys"][0]["id"]
    revoke = lambda: world.acme.api.iam("keys/revoke", keyId=key).data  # noqa: E731
    Waiter(world.ann.api, revoke).get(made["id"], "changed").refused("UNAUTHENTICATED")


@pytest.mark.clause("GET-2", "every visible change wakes those who wait")
@pytest.mark.django_db(transaction=True)
def test_every_change_of_the_version_is_notified(transactional_db: None, world: World, clock):
    pool = world.offered_pool()
    with connection.cursor() as cursor:
        cursor.execute(f"LISTEN {CHANNEL}")
    heard: set[str] = set()
    versions: dict[str, int] = {}

    def changed_and_heard() -> None:
        """Whatever has another version than before has been notified since."""
        now = dict(Reservation.objects.exclude(state__in=["draft", "denied"]).values_list("id", "version"))
        changed = {key for key, version in now.items() if versions.get(key) != version}
        versions.update(now)
        connection.connection.execute("SELECT 1")
        heard.update(note.payload for note in connection.connection.notifies(timeout=0))
        assert changed <= heard
        assert changed
        heard.clear()

    first = create(world.ann.api, pool, 5)
    changed_and_heard()
    settle()
    changed_and_heard()
    waiting = create(world.ann.api, pool, 8)
    changed_and_heard()
    create(world.bob.api, pool)
    reconcilers.placement_tick()  # the condition of what waits has new numbers
    changed_and_heard()
    world.ann.api("reservations/release", reservationId=first["id"])
    changed_and_heard()
    clock.advance(hours=1)
    settle()
    changed_and_heard()
    world.ann.api("reservations/release", reservationId=waiting["id"])
    changed_and_heard()
