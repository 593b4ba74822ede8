"""Two at the same moment, on two connections."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from threading import Barrier
from typing import Any, TypeVar

import pytest
from django.db import connection, transaction

from computeplatform.api.calls import system_actor
from iam.models import ApiKey, Policy, PolicyVersion, Principal, Tenant
from iam.operations.principals import suspend_principal
from tests.iam.support import NOT_US_EAST, RESEARCH
from tests.support.api import Answer
from tests.support.clock import Clock
from tests.support.world import World, fresh_key

pytestmark = pytest.mark.django_db(transaction=True)

T = TypeVar("T")


@pytest.fixture
def clock(transactional_db: None) -> Iterator[Clock]:
    clock = Clock()
    yield clock
    Clock.restore()


def at_once(*calls: Callable[[], Answer]) -> list[Answer]:
    """Make the calls at the same moment, each in a thread with a connection of its own."""
    barrier = Barrier(len(calls))

    def run(call: Callable[[], Answer]) -> Answer:
        try:
            barrier.wait(timeout=10)
            return call()
        finally:
            connection.close()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


def codes(answers: list[Answer]) -> list[str]:
    return sorted(answer.error["code"] if answer.status != 200 else "ok" for answer in answers)


def while_open(first: Callable[[], object], second: Callable[[], T]) -> T:
    """Call ``second`` on another connection while the transaction of ``first`` is open; it ends when that one waits."""

    def run() -> T:
        try:
            return second()
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic(), connection.cursor() as cursor:
            first()
            answer = pool.submit(run)
            waiting = 0
            while not waiting and not answer.done():
                wait([answer], timeout=0.01)
                cursor.execute("SELECT pg_stat_clear_snapshot()")
                cursor.execute(
                    "SELECT count(*) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND wait_event_type = 'Lock'"
                )
                waiting = cursor.fetchone()[0]
        return answer.result()


@pytest.mark.parametrize("how", ["suspend", "update"])
def test_two_administrators_cannot_leave_at_once(world: World, how: str) -> None:
    second = world.person(world.acme, "second", "tenant-admin")
    fields: dict[str, Any] = {} if how == "suspend" else {"roles": []}
    answer = while_open(
        lambda: suspend_principal(tenant_id="acme", principal_id=world.acme.id, by=system_actor("test"), now=1),
        lambda: second.api.iam(f"principals/{how}", principalId=second.id, **fields),
    )
    answer.refused("INVALID_STATE", reason="last-admin")
    left = Principal.objects.filter(tenant_id="acme", status="active", roles__contains=["tenant-admin"])
    assert [admin.id for admin in left] == [second.id]


@pytest.mark.clause("API-11", "updates at the same moment")
def test_of_two_changes_of_one_version_one_is_stale(world: World) -> None:
    answers = at_once(
        *(
            lambda name=name: world.acme.api.iam("principals/update", principalId=world.ann.id, name=name, version=1)
            for name in ("one", "two", "three")
        )
    )
    assert codes(answers) == ["CONFLICT", "CONFLICT", "ok"]
    assert Principal.objects.get(id=world.ann.id).version == 2


@pytest.mark.clause("API-11", "the same key at the same moment")
def test_calls_with_one_key_make_one_key(world: World) -> None:
    fields = {"principalId": world.ann.id, "idempotencyKey": fresh_key()}
    answers = at_once(*[lambda: world.acme.api.iam("keys/create", **fields)] * 4)
    assert len({answer.data["key"]["id"] for answer in answers}) == 1
    assert [("token" in answer.data) for answer in answers].count(True) == 1
    assert ApiKey.objects.filter(principal_id=world.ann.id).count() == 2


def test_a_key_is_rotated_one_after_the_other(world: World) -> None:
    key_id = ApiKey.objects.get(principal_id=world.ann.id).id
    answers = at_once(*[lambda: world.acme.api.iam("keys/rotate", keyId=key_id, overlapSeconds=0)] * 3)
    # The first ends the old key at once, so there is nothing left to rotate.
    assert codes(answers) == ["INVALID_STATE", "INVALID_STATE", "ok"]
    assert ApiKey.objects.filter(principal_id=world.ann.id).count() == 2


def test_two_first_texts_of_a_name_become_one_policy(world: World) -> None:
    answers = at_once(
        lambda: world.acme.api.iam("policies/put", name="rules", text=NOT_US_EAST, version=0),
        lambda: world.acme.api.iam("policies/put", name="rules", text=RESEARCH, version=0),
    )
    assert codes(answers) == ["CONFLICT", "ok"]
    assert (Policy.objects.count(), PolicyVersion.objects.count()) == (1, 1)


def test_two_tenants_of_one_id_become_one(world: World) -> None:
    answers = at_once(
        *[lambda: world.admin.iam("tenants/create", id="initech", name="Initech", admin={"name": "bill"})] * 3
    )
    assert codes(answers) == ["CONFLICT", "CONFLICT", "ok"]
    assert Tenant.objects.filter(id="initech").count() == 1
    assert Principal.objects.filter(tenant_id="initech").count() == 1


def test_noting_the_use_of_a_key_waits_for_nobody(world: World, clock: Clock) -> None:
    clock.advance(seconds=60)
    key = ApiKey.objects.get(principal_id=world.ann.id)
    with connection.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("SELECT 1 FROM iam_apikey WHERE id = %s FOR UPDATE", [key.id])
        # Another connection holds the row; the call is answered all the same, and leaves the note to a later one.
        (answer,) = at_once(lambda: world.ann.api.iam("session/whoami"))
        cursor.execute("ROLLBACK")
    assert answer.status == 200
    assert ApiKey.objects.get(id=key.id).last_used_at == key.last_used_at
