"""The shape of a refusal, request ids, and what a fault shows to callers: nothing of the inside."""

import json
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis
from django.db import connection, transaction
from django.test import Client
from django.utils.timezone import now as django_now

from computeplatform import redis_client as redis_client_module
from computeplatform import wakes
from computeplatform.errors import CODES, Unavailable
from tests.kernel.conftest import rows, session, stored
from tests.support.api import Answer, Api
from tests.support.world import World, request

WHOAMI = "/api/iam/session/whoami"
LIST = "/api/compute/pools/list"
JSON = "application/json"
Lines = Callable[[], list[dict[str, Any]]]


# --- Success and failure --------------------------------------------------------------------------


@pytest.mark.clause("API-1", "success is 200 with data")
def test_success_is_data_and_nothing_else(world: World):
    answer = world.ann.api("pools/list")
    assert (answer.status, set(answer.body), answer.headers["Content-Type"]) == (200, {"data"}, JSON)


@pytest.mark.clause("API-1", "shape of a failure")
def test_a_failure_has_every_member_and_no_other(world: World):
    for answer, details in (
        (world.ann.api("pools/get", poolId="pool_none"), False),
        (world.vic.api("reservations/create", **request("pool_none")), False),
        (world.ann.api("pools/list", limit=0), True),
        (Api("cpk_x", "acme")("pools/list"), False),
    ):
        error = answer.error
        assert set(answer.body) == {"error"}
        assert set(error) == {"code", "message", "requestId", "fix", "docs"} | ({"details"} if details else set())
        assert answer.status == CODES[error["code"]].status
        assert error["requestId"] == answer.headers["X-Request-Id"]
        assert error["message"]
        assert error["fix"]


@pytest.mark.clause("API-1", "docs of a failure")
@pytest.mark.clause("API-3", "one registry with fix and docs")
def test_the_docs_of_a_refusal_name_its_code_and_what_to_do(world: World):
    docs = world.ann.api("pools/get", poolId="pool_none").error["docs"]
    assert docs == "http://testserver/api/docs/errors/NOT_FOUND"
    for code in CODES.values():
        page = Client().get(f"/api/docs/errors/{code.name}")
        assert page.status_code == 200
        text = page.content.decode()
        assert f"<h1>{code.name}</h1>" in text
        assert str(code.status) in text
        assert "script-src" in page["Content-Security-Policy"]


@pytest.mark.clause("API-2", "WWW-Authenticate")
def test_a_call_without_a_credential_is_told_which_kind_is_wanted(world: World):
    answer = world.ann.api.raw(WHOAMI, "{}", authorization="")
    answer.refused("UNAUTHENTICATED")
    assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert "WWW-Authenticate" not in world.ann.api("pools/get", poolId="x").headers


@pytest.mark.clause("API-2", "bearer alone")
def test_a_token_counts_in_the_authorization_header_alone(world: World):
    token = world.ann.api.token
    for header in (
        *("", token, f"Basic {token}", f"Token {token}", "Bearer", "Bearer ", f"Bearer {token} x", f"Bearer {token}x"),
        *(
            f"Bearer {token[:-1]}",
            f"Bearer {token.upper()}",
            f"Bearer cpd_{token[4:]}",
            "Bearer \xff",
            f"Bearer:{token}",
        ),
    ):
        world.ann.api.raw(WHOAMI, "{}", authorization=header).refused("UNAUTHENTICATED")
    anonymous = Api("", "acme")
    anonymous.raw(f"{WHOAMI}?access_token={token}&token={token}", "{}").refused("UNAUTHENTICATED")
    anonymous.raw(WHOAMI, json.dumps({"token": token})).refused("UNAUTHENTICATED")
    anonymous.raw(WHOAMI, "{}", x_api_key=token, cookie=f"token={token}").refused("UNAUTHENTICATED")
    assert world.ann.api.raw(WHOAMI, "{}", authorization=f"bearer {token}").status == 200


@pytest.mark.clause("API-2", "no cookie")
def test_an_operators_session_opens_nothing_of_the_api(world: World, django_user_model: Any):
    operator = django_user_model(
        username="root", principal_id=world.admin("session/whoami", service="iam").data["principal"]["id"]
    )
    operator.is_staff = operator.is_superuser = True
    operator.last_login = django_now()
    operator.save()
    client = Client()
    client.force_login(operator)
    assert client.get("/admin/").status_code == 200
    for path in (WHOAMI, LIST):
        refused = client.post(path, "{}", JSON)
        assert (refused.status_code, refused.json()["error"]["code"]) == (401, "UNAUTHENTICATED")
    spoken = Client(headers={"authorization": f"Bearer {world.ann.api.token}"}).post(WHOAMI, "{}", JSON)
    assert (spoken.status_code, dict(spoken.cookies)) == (200, {})


# --- Request ids ----------------------------------------------------------------------------------


@pytest.mark.clause("API-6", "accepted")
@pytest.mark.parametrize("given", ["a", "A.b_c:d-9", "x" * 128])
def test_a_good_request_id_is_kept(world: World, given: str):
    for answer in (
        world.ann.api.raw(LIST, '{"tenantId": "acme"}', x_request_id=given),
        world.ann.api.raw(LIST, "{", x_request_id=given),
    ):
        assert answer.headers["X-Request-Id"] == given
    assert answer.error["requestId"] == given
    assert Client().get("/healthz", headers={"x-request-id": given})["X-Request-Id"] == given


@pytest.mark.clause("API-6", "made")
@pytest.mark.parametrize("given", ["", " ", "x" * 129, "a b", "ä", "a/b", "a\tb", "<script>", "a,b"])
def test_another_request_id_is_replaced_by_a_fresh_one(world: World, given: str):
    made = [world.ann.api.raw(LIST, "{", x_request_id=given) for _ in range(2)]
    ids = {answer.headers["X-Request-Id"] for answer in made}
    assert len(ids) == 2
    assert all(re.fullmatch(r"[A-Za-z0-9._:-]{1,128}", one) for one in ids)
    assert {answer.error["requestId"] for answer in made} == ids


@pytest.mark.clause("API-6", "stored on what the request created")
def test_the_request_id_is_on_the_event_and_the_decision(world: World):
    body = {"tenantId": "platform", "name": "h100", "region": "eu", "gpuModel": "h100", "deviceClass": "gpu"}
    made = world.admin.raw("/api/compute/pools/create", json.dumps(body), x_request_id="mine-1").data["pool"]
    assert rows("SELECT request_id FROM computeplatform_event WHERE subject_id = %s", made["id"]) == [("mine-1",)]
    assert rows("SELECT action FROM iam_decision WHERE request_id = 'mine-1'") == [("compute:pools:create",)]


@pytest.mark.clause("API-6", "stored on what the request created")
def test_a_denial_is_found_by_its_request_id(world: World):
    answer = world.vic.api("pools/create", name="n", region="eu", gpuModel="h100", deviceClass="gpu")
    answer.refused("ACCESS_DENIED")
    asked = rows("SELECT outcome FROM iam_decision WHERE request_id = %s", answer.error["requestId"])
    assert asked == [("deny",)]


@pytest.mark.clause("API-6", "logged")
@pytest.mark.parametrize("given", ["mine-2", "not good", None])
def test_every_line_of_a_request_has_the_id_that_was_echoed(world: World, log_lines: Lines, given: str | None):
    headers = {} if given is None else {"x_request_id": given}
    with broken_pools():
        answer = world.ann.api.raw(LIST, '{"tenantId": "acme"}', **headers)
    lines = log_lines()
    assert {"unexpected_error", "request_finished"} <= {line["event"] for line in lines}
    assert {line["request_id"] for line in lines if "request_id" in line} == {answer.headers["X-Request-Id"]}


# --- Faults ---------------------------------------------------------------------------------------


@contextmanager
def broken_pools() -> Iterator[None]:
    """A database that is not the one this code was written for."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE fleet_pool RENAME COLUMN gpu_model TO lost_column")
        yield
        transaction.set_rollback(True)


@pytest.mark.clause("API-7", "nothing of the inside")
def test_a_fault_shows_its_request_id_and_nothing_of_the_inside(world: World, log_lines: Lines):
    before = stored()
    with broken_pools():
        answer = world.ann.api("pools/list")
    error = answer.refused("INTERNAL_ERROR")
    assert (answer.status, set(error)) == (500, {"code", "message", "requestId", "fix", "docs"})
    shown = json.dumps(answer.body)
    for inside in ("column", "fleet", "gpu_model", "select", "psycopg", "programmingerror", "traceback", ".py"):
        assert inside not in shown.lower()
    (line,) = [line for line in log_lines() if line["event"] == "unexpected_error"]
    assert "gpu_model" in str(line["exc_info"])
    assert stored() == before


@pytest.mark.clause("API-2", "a token is shown once")
def test_the_log_of_a_fault_holds_no_token(world: World, caplog: pytest.LogCaptureFixture):
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("DROP FUNCTION compute_now()")
        answer = world.ann.api("pools/list")
        transaction.set_rollback(True)
    answer.refused("INTERNAL_ERROR")
    written = next(h for h in logging.getLogger().handlers if type(h) is logging.StreamHandler)
    logged = "".join(written.format(record) for record in caplog.records)
    assert "compute_now() does not exist" in logged
    assert world.ann.api.token not in logged


@pytest.mark.clause("API-1", "shape of a failure")
def test_a_host_that_is_not_ours_is_refused_in_the_envelope(db: None):
    answer = Client(headers={"host": "not ours"}).post(WHOAMI, "{}", JSON)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "INVALID_INPUT"


# --- Away -----------------------------------------------------------------------------------------

POOL = {"name": "h100", "region": "eu", "gpuModel": "h100", "deviceClass": "gpu", "idempotencyKey": "once"}


def told_to_come_back(answer: Answer) -> None:
    error = answer.refused("UNAVAILABLE")
    assert answer.status == 503
    assert error["retryAfterSeconds"] >= 1
    assert answer.headers["Retry-After"] == str(error["retryAfterSeconds"])


@pytest.mark.django_db(transaction=True)
@pytest.mark.clause("API-3", "Retry-After")
@pytest.mark.clause("API-7", "database away: nothing half-done, the same key continues later")
def test_a_database_that_does_not_answer_in_time_is_unavailable_and_the_key_works_later(world: World):
    before = stored()
    with connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = '10ms'")
    with session() as other, other.transaction():
        other.execute("LOCK TABLE quotas_quota IN ACCESS EXCLUSIVE MODE")
        told_to_come_back(world.admin("pools/create", **POOL))
    after = stored()
    assert after.pop("iam_decision") == before.pop("iam_decision") + 1
    assert after == before
    made = world.admin("pools/create", **POOL).data["pool"]
    assert world.admin("pools/create", **POOL).data["pool"] == made


@pytest.mark.clause("API-7", "database away: nothing half-done, the same key continues later")
def test_a_standby_that_takes_no_writes_is_unavailable(world: World, log_lines: Lines):
    before = stored()
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION READ ONLY")
        told_to_come_back(world.admin("pools/create", **POOL))
        transaction.set_rollback(True)
    assert "database_unavailable" in {line["event"] for line in log_lines()}
    assert stored() == before


@pytest.mark.clause("API-7", "broker away")
def test_a_wake_that_cannot_be_sent_is_unavailable_and_leaves_no_mark(
    settings: Any, monkeypatch: pytest.MonkeyPatch, redis_client: redis.Redis
):
    monkeypatch.setattr(redis_client_module, "_client", None)  # another process, whose broker is away
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    with pytest.raises(Unavailable) as caught:
        wakes.wake_now("admission", "pool_1")
    assert caught.value.retry_after_seconds == 2
    wakes.clear_mark("admission", "pool_1")
    monkeypatch.setattr(redis_client_module, "_client", redis_client)
    monkeypatch.setitem(settings.COMPUTE_WAKE_TASKS, "nowhere", "no.such.task")
    with pytest.raises(Exception, match="nowhere"):
        wakes.wake_now("nowhere", "pool_1")


@pytest.mark.clause("API-7", "broker away")
def test_a_wake_is_sent_once_until_its_mark_is_cleared(redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(redis_client_module, "_client", redis_client)
    for _ in range(3):
        wakes.wake_now("admission", "pool_1")
    assert redis_client.llen("admission") == 1
    assert 0 < redis_client.pttl("compute:wake:admission:pool_1") <= 5_000
    wakes.wake_now("admission", "pool_2")
    wakes.clear_mark("admission", "pool_1")
    wakes.wake_now("admission", "pool_1")
    assert redis_client.llen("admission") == 3


@pytest.mark.django_db(transaction=True)
@pytest.mark.clause("API-7", "broker away")
def test_a_wake_after_commit_is_not_sent_for_what_was_rolled_back_and_never_fails(
    settings: Any, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(redis_client_module, "_client", redis_client)
    with transaction.atomic():
        wakes.wake("placement", "pool_1")
        transaction.set_rollback(True)
    assert redis_client.llen("placement") == 0
    with transaction.atomic():
        wakes.wake("placement", "pool_1")
        assert redis_client.llen("placement") == 0
    assert redis_client.llen("placement") == 1
    monkeypatch.setattr(redis_client_module, "_client", None)
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    with transaction.atomic():
        wakes.wake("placement", "pool_2")
