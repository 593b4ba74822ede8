"""Limits: buckets of a minute's worth, shared through Redis, and kept by each process while Redis is away (API-12)."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import redis
from django.conf import settings as configured
from django.db import connection
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from computeplatform.api.throttling import limit_call
from computeplatform.limits import AWAY_SECONDS, REFUSED, UNIT, Bucket, Limiter, LocalBuckets, limiter
from iam.models import Decision
from tests.iam.support import caller
from tests.kernel.conftest import at_once, stored
from tests.support.api import Answer, Api
from tests.support.world import Person, World, request

LIST = "/api/compute/pools/list"
BODY = json.dumps({"tenantId": "acme"})
NOWHERE = redis.Redis.from_url("redis://127.0.0.1:1/0", retry=None, socket_connect_timeout=1)


class Counting(redis.Redis):
    """Counts what it sends."""

    sent: list[str]

    def execute_command(self, *args: Any, **options: Any) -> Any:
        self.sent.append(str(args[0]))
        return super().execute_command(*args, **options)


def counting_at(url: str) -> Counting:
    client = Counting(connection_pool=redis.ConnectionPool.from_url(url, retry=None))
    client.sent = []
    return client


@pytest.fixture
def counting() -> Counting:
    return counting_at(configured.REDIS_URL)


@pytest.fixture
def limits(settings: Any) -> dict[str, int]:
    """The settings, to be changed by the test."""
    settings.COMPUTE_LIMITS = dict(settings.COMPUTE_LIMITS)
    return settings.COMPUTE_LIMITS


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Redis leaves the process's limiter, and with False comes back to it."""
    there = limiter._client
    monkeypatch.setattr(limiter, "_away_until", None)
    monkeypatch.setattr(limiter, "_local", LocalBuckets())

    def switch(gone: bool) -> None:
        monkeypatch.setattr(limiter, "_client", (lambda: NOWHERE) if gone else there)
        if not gone:
            monkeypatch.setattr(limiter, "_away_until", 0.0)  # the pause is over

    return switch


def limited_person(world: World, per_minute: int) -> Person:
    return world.person(world.acme, "busy", "reserver", requestsPerMinute=per_minute)


def told_to_wait(answer: Answer, seconds: int, reason: str) -> None:
    """Asserts a refusal for too many calls, with the same whole seconds in body and header."""
    assert answer.status == 429
    error = answer.refused("RATE_LIMITED", reason=reason)
    assert (error["retryAfterSeconds"], answer.headers["Retry-After"]) == (seconds, str(seconds))


# --- The buckets ----------------------------------------------------------------------------------

rates = st.one_of(st.integers(1, 20), st.sampled_from([60, 100, 599_999, 600_000]))
steps = st.lists(st.tuples(st.integers(0, 40_000), st.sampled_from(["first", "second", "both"])), max_size=40)


@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(first=rates, second=rates, steps=steps)
@pytest.mark.clause("API-12", "a minute's worth, refilled evenly, exactly")
@pytest.mark.clause("API-7", "without Redis the same limits in each process")
def test_redis_and_a_process_count_alike_and_never_give_more_than_the_limit(
    redis_client: redis.Redis, first: int, second: int, steps: list[tuple[int, str]]
):
    redis_client.flushdb()
    buckets = {"first": Bucket("key", "a", first), "second": Bucket("tenant", "b", second)}
    shared, local = Limiter(lambda: redis_client), LocalBuckets()
    given_at: dict[str, list[int]] = {"first": [], "second": []}
    now = 1_800_000_000_000
    for passed, which in steps:
        now += passed
        wanted = ["first", "second"] if which == "both" else [which]
        chosen = [buckets[name] for name in wanted]
        waits = local.take(chosen, amount=UNIT, now=now)
        assert shared._take(chosen, amount=UNIT, now=now) == waits
        if any(waits):
            # What a wait says is exact: one millisecond less would be too early.
            longest = max(waits)
            assert longest <= 60_000
            assert any(LocalBucketsLike(local).take(chosen, now + longest - 1))
            assert not any(LocalBucketsLike(local).take(chosen, now + longest))
            continue
        for name in wanted:
            given_at[name].append(now)
    for name, times in given_at.items():
        for place, since in enumerate(times):
            for until in range(place, len(times)):
                passed = times[until] - since
                assert until - place + 1 <= buckets[name].per_minute * (1 + passed / 60_000) + 1e-9


class LocalBucketsLike:
    """A copy to try on."""

    def __init__(self, original: LocalBuckets) -> None:
        self._found = {kind: dict(found) for kind, found in original._found.items()}

    def take(self, buckets: list[Bucket], now: int) -> list[int]:
        copied = LocalBuckets()
        for kind, found in self._found.items():
            for owner, value in found.items():
                copied._keep(Bucket(kind, owner, 1), value)
        return copied.take(buckets, amount=UNIT, now=now)


@pytest.mark.clause("API-12", "key and tenant in one round trip")
def test_two_buckets_are_one_round_trip_even_after_redis_has_forgotten_the_script(counting: Counting):
    mine = Limiter(lambda: counting)
    both = (Bucket("key", "k", 60), Bucket("tenant", "t", 60))
    counting.script_flush()
    mine.take(*both, now=1)
    counting.sent.clear()
    assert mine.take(*both, now=1) is None
    assert counting.sent == ["EVALSHA"]
    counting.script_flush()
    assert mine.take(*both, now=1) is None
    assert mine._away_until is None
    assert counting.get(both[0].key) == counting.get(both[1].key) == b"180000 1"


def test_a_bucket_that_is_full_again_is_not_remembered(redis_client: redis.Redis):
    bucket = Bucket("key", "k", 60)
    Limiter(lambda: redis_client).take(bucket, now=1)
    assert 59_000 < redis_client.pttl(bucket.key) <= 61_000


def test_what_is_unreadable_in_redis_is_an_empty_bucket(redis_client: redis.Redis):
    bucket = Bucket("key", "k", 1)
    redis_client.set(bucket.key, "nonsense")
    mine = Limiter(lambda: redis_client)
    assert mine.take(bucket, now=1) is None
    assert mine.take(bucket, now=1)
    assert mine._away_until is None


def test_a_clock_that_goes_back_gives_nothing_and_takes_nothing_for_ever(redis_client: redis.Redis):
    bucket = Bucket("key", "k", 2)
    for mine in (Limiter(lambda: redis_client), Limiter(lambda: NOWHERE)):
        assert [mine.take(bucket, now=now) is None for now in (100_000, 90_000, 80_000)] == [True, True, False]
        assert mine.take(bucket, now=129_999)  # not yet
        assert mine.take(bucket, now=130_000) is None


@pytest.mark.clause("API-12", "retryAfterSeconds: whole seconds, 1-60")
def test_who_has_used_up_a_higher_limit_waits_no_longer_than_a_minute(redis_client: redis.Redis):
    for mine in (Limiter(lambda: redis_client), Limiter(lambda: NOWHERE)):
        assert [mine.take(Bucket("key", "k", 100), now=1) for _ in range(100)] == [None] * 100
        lowered = mine.take(Bucket("key", "k", 1), now=1)
        assert lowered is not None
        assert lowered.seconds == 60


@pytest.mark.clause("API-12", "a race gives no more than the limit")
def test_many_at_once_get_no_more_than_there_is(redis_client: redis.Redis):
    bucket = Bucket("key", "k", 5)
    mine = Limiter(lambda: redis_client)
    took = at_once(*[lambda: mine.take(bucket, now=1)] * 12)
    assert took.count(None) == 5
    local = Limiter(lambda: NOWHERE)
    assert at_once(*[lambda: local.take(bucket, now=1)] * 12).count(None) == 5


# --- Calls ----------------------------------------------------------------------------------------


@pytest.mark.clause("API-12", "per key")
@pytest.mark.clause("API-12", "retryAfterSeconds and Retry-After")
def test_a_key_makes_as_many_calls_a_minute_as_it_may(world: World, clock: Any):
    busy = limited_person(world, 3)
    for _ in range(3):
        assert busy.api("pools/list").status == 200
    told_to_wait(busy.api("pools/list"), 20, "key-limit")
    clock.advance(milliseconds=19_999)
    told_to_wait(busy.api("pools/list"), 1, "key-limit")
    clock.advance(milliseconds=1)
    assert busy.api("pools/list").status == 200
    told_to_wait(busy.api("pools/list"), 20, "key-limit")
    clock.advance(seconds=60)
    assert [busy.api("pools/list").status for _ in range(4)] == [200, 200, 200, 429]
    assert world.ann.api("pools/list").status == 200


@pytest.mark.clause("API-12", "retryAfterSeconds and Retry-After")
def test_the_longest_wait_is_a_minute(world: World, clock: Any):
    busy = limited_person(world, 1)
    assert busy.api.iam("session/whoami").status == 200
    told_to_wait(busy.api.iam("session/whoami"), 60, "key-limit")


@pytest.mark.clause("API-12", "a key that says nothing has the setting's number")
def test_a_key_without_a_number_of_its_own(world: World, limits: dict[str, int]):
    assert (limits["key"], limits["tenant"], limits["address"]) == (60_000, 120_000, 100)
    limits["key"] = 2
    assert [world.ann.api("pools/list").status for _ in range(3)] == [200, 200, 429]
    assert world.bob.api("pools/list").status == 200


@pytest.mark.clause("API-12", "per tenant")
@pytest.mark.clause("API-12", "a refused call takes nothing from any bucket")
def test_a_tenant_makes_as_many_calls_as_it_may_with_all_its_keys(
    world: World, limits: dict[str, int], redis_client: redis.Redis
):
    limits["tenant"] = 4
    assert [who.api("pools/list").status for who in (world.ann, world.bob, world.ann, world.vic)] == [200] * 4
    before = {key: redis_client.get(key) for key in redis_client.keys("compute:limit:*")}
    for _ in range(3):
        told_to_wait(world.ann.api("pools/list"), 15, "tenant-limit")
    assert world.gil.api("pools/list").status == 200
    assert {key: redis_client.get(key) for key in before} == before


@pytest.mark.clause("API-12", "a refused call takes nothing from any bucket")
def test_a_key_that_has_had_enough_takes_nothing_from_its_tenant(
    world: World, limits: dict[str, int], redis_client: redis.Redis
):
    busy = limited_person(world, 1)
    redis_client.flushdb()
    limits["tenant"] = 3
    assert [busy.api("pools/list").status for _ in range(5)] == [200, 429, 429, 429, 429]
    assert [world.ann.api("pools/list").status for _ in range(3)] == [200, 200, 429]


@pytest.mark.clause("API-12", "a refused call is no decision and costs nothing")
@pytest.mark.clause("API-12", "before the body")
def test_a_refused_call_leaves_nothing_behind(world: World, limits: dict[str, int]):
    pool = world.offered_pool()
    limits["key"] = 1
    assert world.bob.api("pools/list").status == 200
    before = stored()
    for body in (
        json.dumps({"tenantId": "acme"} | request(pool)),
        "{",
        json.dumps({"tenantId": "globex"}),
        "x" * 70_000,
    ):
        told_to_wait(world.bob.api.raw("/api/compute/reservations/create", body), 60, "key-limit")
    assert stored() == before
    assert Decision.objects.filter(principal_id=world.bob.id).count() == 0


@pytest.mark.clause("API-12", "after the credential")
def test_a_key_that_is_no_longer_good_is_no_matter_of_limits(world: World, limits: dict[str, int]):
    limits["key"] = 1
    assert world.bob.api("pools/list").status == 200
    world.acme.api.iam("principals/suspend", principalId=world.bob.id).data  # noqa: B018
    world.bob.api("pools/list").refused("UNAUTHENTICATED")


@pytest.mark.clause("API-12", "a call that waits counts once")
def test_a_parked_call_counts_once(world: World):
    pool = world.offered_pool()
    busy = limited_person(world, 2)
    busy.api.looks = 3
    held = busy.api("reservations/create", **request(pool, 8)).data["reservation"]
    waited = busy.api("reservations/get", reservationId=held["id"], wait={"until": "terminal", "timeoutMs": 1000})
    assert waited.data["reservation"]["id"] == held["id"]
    told_to_wait(busy.api("pools/list"), 30, "key-limit")


@pytest.mark.clause("API-12", "a session counts for the key that assumed it")
def test_what_a_session_does_counts_for_its_key(world: World):
    robot = world.agent(world.ann, key={"requestsPerMinute": 5})
    first, second = world.session(robot, world.ann), world.session(robot, world.bob)  # assumed: two calls of the key's
    assert [api("pools/list").status for api in (first, second, first)] == [200, 200, 200]
    for api in (first, second, robot.api):
        told_to_wait(api("pools/list"), 12, "key-limit")
    assert world.ann.api("pools/list").status == 200


@pytest.mark.clause("API-12", "refused calls are counted by kind alone")
def test_refused_calls_are_counted(world: World, limits: dict[str, int]):
    def counted() -> dict[str, float]:
        return {s.labels["kind"]: s.value for m in REFUSED.collect() for s in m.samples if s.name.endswith("_total")}

    before = counted().get("key", 0)
    limits["key"] = 1
    assert [world.ann.api("pools/list").status for _ in range(3)] == [200, 429, 429]
    assert counted()["key"] == before + 2
    assert {label for m in REFUSED.collect() for s in m.samples for label in s.labels} == {"kind"}


# --- Failed sign-ins ------------------------------------------------------------------------------


def sign_in(token: str, address: str = "198.51.100.7") -> Answer:
    api = Api(token, "acme")
    api.client.defaults["REMOTE_ADDR"] = address
    return api.raw(LIST, BODY)


@pytest.mark.clause("API-12", "failed sign-ins per address")
@pytest.mark.clause("API-12", "a valid credential is never refused by the last")
def test_an_address_fails_so_often_and_then_waits(world: World, limits: dict[str, int], clock: Any):
    limits["address"] = 3
    good, bad = world.ann.api.token, "cpk_" + "x" * 46
    unknown = "cpk_" + good[4:11] + ("a" if good[11] != "a" else "b") + good[12:]
    for token in (bad, "nonsense", unknown):
        sign_in(token).refused("UNAUTHENTICATED")
    for token in (bad, unknown):
        told_to_wait(sign_in(token), 20, "failed-sign-ins")
    assert sign_in(good).status == 200
    sign_in(bad, "198.51.100.8").refused("UNAUTHENTICATED")
    clock.advance(seconds=20)
    assert [sign_in(bad).status for _ in range(2)] == [401, 429]


@pytest.mark.clause("API-12", "only a credential that is presented and fails counts")
def test_no_credential_is_no_attempt(world: World, limits: dict[str, int]):
    limits["address"] = 1
    for header in ("", "Bearer", "Bearer ", "Basic eDp5"):
        for _ in range(3):
            world.ann.api.raw(LIST, BODY, authorization=header).refused("UNAUTHENTICATED")
    assert sign_in(world.ann.api.token, "127.0.0.1").status == 200
    sign_in("nonsense", "127.0.0.1").refused("UNAUTHENTICATED")
    sign_in("nonsense", "127.0.0.1").refused("RATE_LIMITED")


@pytest.mark.clause("API-12", "an IPv6 address counts as its /64")
def test_an_ipv6_client_has_one_bucket_for_all_its_addresses(world: World, limits: dict[str, int]):
    limits["address"] = 1
    sign_in("nonsense", "2001:db8:1:2::1").refused("UNAUTHENTICATED")
    sign_in("nonsense", "2001:db8:1:2:ffff::9").refused("RATE_LIMITED")
    sign_in("nonsense", "2001:db8:1:3::1").refused("UNAUTHENTICATED")
    sign_in("nonsense", "192.0.2.1").refused("UNAUTHENTICATED")
    sign_in("nonsense", "::ffff:192.0.2.1").refused("RATE_LIMITED")
    sign_in("nonsense", "").refused("UNAUTHENTICATED")
    sign_in("nonsense", "").refused("RATE_LIMITED")


def test_a_call_whose_key_is_revoked_while_it_waits_is_no_attempt(world: World, limits: dict[str, int]):
    limits["address"] = 1
    pool = world.offered_pool()
    held = world.ann.api("reservations/create", **request(pool)).data["reservation"]["id"]

    def revoke() -> None:
        world.acme.api.iam("principals/suspend", principalId=world.ann.id).data  # noqa: B018

    patient = Api(world.ann.api.token, "acme", work=revoke)
    wait = {"until": "terminal", "timeoutMs": 1000}
    patient("reservations/get", reservationId=held, wait=wait).refused("UNAUTHENTICATED")
    patient("reservations/get", reservationId=held, wait=wait).refused("UNAUTHENTICATED")
    patient("reservations/get", reservationId=held, wait=wait).refused("RATE_LIMITED")


# --- Without Redis --------------------------------------------------------------------------------


@pytest.mark.clause("API-7", "without Redis a limiter in each process; failed sign-ins stay limited")
def test_without_redis_every_limit_holds_in_each_process(
    world: World, limits: dict[str, int], away: Callable[[bool], None], log_lines: Callable[[], list[dict[str, Any]]]
):
    limits |= {"key": 2, "tenant": 3, "address": 1}
    away(True)
    assert [world.ann.api("pools/list").status for _ in range(3)] == [200, 200, 429]
    told_to_wait(world.ann.api("pools/list"), 30, "key-limit")
    assert world.bob.api("pools/list").status == 200
    told_to_wait(world.vic.api("pools/list"), 20, "tenant-limit")
    assert [sign_in("nonsense").status for _ in range(2)] == [401, 429]
    assert sign_in(world.gil.api.token).status != 429
    assert [line["event"] for line in log_lines()].count("limits_without_redis") == 1
    away(False)
    assert world.ann.api("pools/list").status == 200
    assert "limits_with_redis_again" in {line["event"] for line in log_lines()}


@pytest.mark.clause("API-7", "Redis is left alone for a while, then used again")
def test_redis_is_not_asked_again_for_a_while_and_then_by_one(counting: Counting):
    monotonic = [100.0]
    gone = counting_at("redis://127.0.0.1:1/0")
    clients: list[Counting] = [gone]
    mine = Limiter(lambda: clients[0], lambda: monotonic[0])
    bucket = Bucket("key", "k", 2)
    assert [mine.take(bucket, now=1) is None for _ in range(4)] == [True, True, False, False]
    assert len(gone.sent) == 1
    monotonic[0] += AWAY_SECONDS
    mine.take(bucket, now=1)
    mine.take(bucket, now=1)
    assert len(gone.sent) == 2
    clients[0] = counting
    assert mine.take(bucket, now=1)  # it is there again, but not yet asked
    assert counting.sent == []
    monotonic[0] += AWAY_SECONDS
    assert [mine.take(bucket, now=1) is None for _ in range(3)] == [True, True, False]
    assert counting.sent.count("EVALSHA") >= 3


@pytest.mark.clause("API-7", "Redis is left alone for a while, then used again")
def test_while_one_call_tries_redis_the_others_go_on_without():
    monotonic, asked, bucket = [100.0], [0], Bucket("key", "k", 5)

    def client() -> redis.Redis:
        asked[0] += 1
        if asked[0] == 2:
            assert mine.take(bucket, now=1) is None  # another call, before this one has its answer
        return NOWHERE

    mine = Limiter(client, lambda: monotonic[0])
    mine.take(bucket, now=1)
    monotonic[0] += AWAY_SECONDS
    mine.take(bucket, now=1)
    assert asked == [2]


def test_a_process_keeps_no_more_buckets_than_it_is_told():
    local = LocalBuckets(kept=3)
    for owner in "abcad":
        local.take([Bucket("address", owner, 2)], amount=UNIT, now=1)
    local.take([Bucket("key", "k", 2)], amount=UNIT, now=1)
    assert {kind: list(found) for kind, found in local._found.items()} == {"address": ["c", "a", "d"], "key": ["k"]}


@pytest.mark.clause("API-7", "a Redis that answers with an error is as good as away")
def test_a_redis_that_cannot_write_is_done_without(redis_client: redis.Redis):
    bucket = Bucket("key", "k", 1)
    redis_client.rpush(bucket.key, "a list, which no bucket is")
    mine = Limiter(lambda: redis_client)
    assert [mine.take(bucket, now=1) is None for _ in range(2)] == [True, False]


def test_a_call_costs_no_query(world: World, django_assert_num_queries: Any):
    key = caller(world.ann)
    with django_assert_num_queries(0):
        limit_call(key, now=1_800_000_000_000)
    assert connection.in_atomic_block
