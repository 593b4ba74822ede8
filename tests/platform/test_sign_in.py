"""The operators' sign-in form limits failed attempts, by address and by user name."""

from collections.abc import Callable
from typing import Any

import pytest
import redis
from django.test import Client

from computeplatform.limits import LocalBuckets, limiter
from iam.models import Operator

PASSWORD = "correct horse battery"


@pytest.fixture
def _operators(db: None, clock: Any, settings: Any) -> None:
    settings.COMPUTE_LIMITS = settings.COMPUTE_LIMITS | {"operator": 3, "operator-address": 5}
    for name in ("olga", "otto"):
        Operator.objects.create_superuser(name, password=PASSWORD)


def attempt(name: str, password: str, address: str = "198.51.100.7") -> str:
    """``in``, ``wrong``, or what the form says about the limit."""
    client = Client(REMOTE_ADDR=address)
    answer = client.post("/admin/login/", {"username": name, "password": password})
    if answer.status_code == 302:
        assert "_auth_user_id" in client.session
        return "in"
    assert answer.status_code == 200
    assert "_auth_user_id" not in client.session
    page = answer.content.decode()
    errors = answer.context["form"].non_field_errors()
    assert len(errors) == 1
    assert "Too many" not in page or str(errors[0]) in page
    return str(errors[0]) if "Too many" in errors[0] else "wrong"


@pytest.mark.usefixtures("_operators")
@pytest.mark.clause("API-12", "failed sign-ins to the admin, per user name")
def test_guesses_at_one_name_from_everywhere_are_stopped(clock: Any):
    assert [attempt("olga", "guess", f"203.0.113.{i}") for i in range(3)] == ["wrong"] * 3
    too_many = "Too many failed sign-ins. Try again in 20 seconds."
    # However it is spelt, and be it right: otherwise guessing would go on at full speed.
    assert attempt("olga", "guess", "203.0.113.9") == attempt("OLGA", "guess", "203.0.113.8") == too_many
    assert attempt("olga", PASSWORD) == too_many
    assert attempt("otto", PASSWORD) == "in"
    clock.advance(seconds=20)
    assert attempt("olga", PASSWORD) == "in"


@pytest.mark.usefixtures("_operators")
@pytest.mark.clause("API-12", "failed sign-ins to the admin, per address")
def test_guesses_from_one_address_at_many_names_are_stopped(clock: Any):
    assert [attempt(f"name{i}", PASSWORD) for i in range(5)] == ["wrong"] * 5
    assert attempt("olga", PASSWORD) == "Too many failed sign-ins. Try again in 12 seconds."
    assert attempt("olga", PASSWORD, "203.0.113.9") == "in"
    clock.advance(seconds=12)
    assert attempt("olga", PASSWORD) == "in"


@pytest.mark.usefixtures("_operators")
@pytest.mark.clause("API-12", "sign-ins to the admin that succeed do not count")
def test_who_signs_in_takes_nothing(redis_client: redis.Redis):
    assert [attempt("olga", PASSWORD) for _ in range(8)] == ["in"] * 8
    assert attempt("olga", "guess") == "wrong"
    assert [attempt("olga", PASSWORD) for _ in range(8)] == ["in"] * 8
    assert [attempt("olga", "guess") for _ in range(2)] == ["wrong"] * 2
    assert attempt("olga", PASSWORD).startswith("Too many")
    assert not [key for key in redis_client.keys("*") if b"olga" in key]


@pytest.mark.usefixtures("_operators")
def test_a_form_that_is_not_filled_in_is_no_attempt():
    for _ in range(8):
        Client().post("/admin/login/", {"username": "olga"})
        Client().post("/admin/login/", {"password": "guess"})
    assert attempt("olga", PASSWORD) == "in"


@pytest.mark.usefixtures("_operators")
@pytest.mark.clause("API-7", "without Redis failed sign-ins to the admin stay limited")
def test_without_redis_too(monkeypatch: pytest.MonkeyPatch):
    gone: Callable[[], redis.Redis] = lambda: redis.Redis.from_url("redis://127.0.0.1:1/0", retry=None)  # noqa: E731
    monkeypatch.setattr(limiter, "_client", gone)
    monkeypatch.setattr(limiter, "_away_until", None)
    monkeypatch.setattr(limiter, "_local", LocalBuckets())
    assert attempt("olga", PASSWORD) == "in"
    assert [attempt("olga", "guess")[:8] for _ in range(4)] == ["wrong", "wrong", "wrong", "Too many"]
    assert attempt("olga", PASSWORD) == "Too many failed sign-ins. Try again in 20 seconds."
