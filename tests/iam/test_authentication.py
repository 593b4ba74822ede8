"""Who a credential makes the caller, and what is no credential (API-2, IAM-8)."""

from typing import Any

import pytest
from django.test import Client

from iam.domain import tokens
from iam.models import ApiKey, Decision
from tests.support.api import Answer, Api
from tests.support.clock import Clock
from tests.support.world import World

WHOAMI = "/api/iam/session/whoami"


def refused(answer: Answer) -> dict[str, Any]:
    assert answer.status == 401
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    return {k: v for k, v in answer.refused("UNAUTHENTICATED").items() if k != "requestId"}


@pytest.mark.clause("IAM-8", "whoami")
def test_whoami_answers_principal_tenant_scopes_and_expiry(world: World) -> None:
    key = ApiKey.objects.get(principal_id=world.ann.id)
    assert world.ann.api.iam("session/whoami").data == {
        "principal": {"id": world.ann.id, "kind": "user", "name": "ann", "roles": ["reserver"], "groups": []},
        "tenant": {"id": "acme", "name": "Acme"},
        "scopes": ["*"],
        "expiresAt": key.created_at + 7_776_000_000,
        "credential": {"kind": "api-key", "id": key.id},
    }


def test_whoami_takes_no_field(world: World) -> None:
    assert world.ann.api.raw(WHOAMI, '{"tenantId": "acme"}').refused_at("tenantId") == "unknown field"


@pytest.mark.clause("API-2", "missing, unknown and malformed tokens")
def test_what_is_no_token_is_refused_always_alike(world: World) -> None:
    good = world.ann.api.token
    other_secret = good[:12] + tokens.mint().text[12:44]
    same_prefix = other_secret + tokens.checksum(other_secret)
    session = tokens.mint(tokens.SESSION_TYPE).text
    before = Decision.objects.count()
    answers = [
        refused(Api(token, "acme").iam("session/whoami"))
        for token in (tokens.mint().text, same_prefix, session, good[:-1] + "~", good[:-1], "cpk_", "x", "Bearer")
    ]
    assert all(answer == answers[0] for answer in answers)
    assert Decision.objects.count() == before


@pytest.mark.clause("API-2", "bearer only")
@pytest.mark.parametrize("scheme", ["", "Basic ", "Token "])
def test_another_scheme_is_refused(world: World, scheme: str) -> None:
    refused(world.ann.api.raw(WHOAMI, "{}", authorization=f"{scheme}{world.ann.api.token}"))


@pytest.mark.clause("API-2", "no cookie, no query parameter")
def test_nothing_but_the_header_counts(world: World) -> None:
    client = Client()
    client.cookies["Authorization"] = f"Bearer {world.ann.api.token}"
    response = client.post(f"{WHOAMI}?token={world.ann.api.token}", data="{}", content_type="application/json")
    assert response.status_code == 401


@pytest.mark.clause("API-2", "expired, revoked, suspended")
def test_a_key_ends_with_its_time(world: World, clock: Clock) -> None:
    short = world.person(world.acme, "short", expiresInSeconds=10)
    clock.advance(milliseconds=9_999)
    assert short.api.iam("session/whoami").status == 200
    clock.advance(milliseconds=1)
    refused(short.api.iam("session/whoami"))


@pytest.mark.clause("API-2", "expired, revoked, suspended")
@pytest.mark.clause("IAM-1", "a revoked key bites at the next call")
def test_a_revoked_key_and_a_suspended_principal_stop_at_the_next_call(world: World) -> None:
    key = ApiKey.objects.get(principal_id=world.ann.id)
    assert world.ann.api.iam("session/whoami").status == 200
    world.acme.api.iam("keys/revoke", keyId=key.id, reason="lost").data  # noqa: B018
    refused(world.ann.api.iam("session/whoami"))

    world.acme.api.iam("principals/suspend", principalId=world.bob.id).data  # noqa: B018
    refused(world.bob.api.iam("session/whoami"))
    world.acme.api.iam("principals/resume", principalId=world.bob.id).data  # noqa: B018
    assert world.bob.api.iam("session/whoami").status == 200


@pytest.mark.clause("API-2", "expired, revoked, suspended")
@pytest.mark.clause("IAM-4", "tenants are suspended by the platform")
def test_a_suspended_tenant_has_no_credential(world: World) -> None:
    world.admin.iam("tenants/suspend", id="acme").data  # noqa: B018
    refused(world.ann.api.iam("session/whoami"))
    refused(world.acme.api.iam("session/whoami"))
    assert world.gil.api.iam("session/whoami").status == 200
    world.admin.iam("tenants/resume", id="acme").data  # noqa: B018
    assert world.ann.api.iam("session/whoami").status == 200


@pytest.mark.clause("API-2", "an agent whose sponsor is not active")
def test_an_agent_depends_on_its_sponsor(world: World) -> None:
    agent = world.agent(world.ann)
    assert agent.api.iam("session/whoami").data["principal"]["kind"] == "agent"
    world.acme.api.iam("principals/suspend", principalId=world.ann.id).data  # noqa: B018
    refused(agent.api.iam("session/whoami"))


@pytest.mark.clause("API-2", "shown once, stored as a hash")
def test_the_token_is_in_no_row(world: World) -> None:
    key = ApiKey.objects.get(principal_id=world.ann.id)
    token = world.ann.api.token
    assert key.prefix == token[:12]
    assert key.token_hash == tokens.read(token).digest  # type: ignore[union-attr]
    assert token[12:] not in str(list(ApiKey.objects.values()))


def test_last_use_is_noted_to_the_minute_and_once_a_minute(
    world: World, clock: Clock, django_assert_num_queries: Any
) -> None:
    clock.set(clock.now - clock.now % 60_000 + 60_500)
    assert world.ann.api.iam("session/whoami").status == 200
    key = world.ann.api.iam("keys/list", principalId=world.ann.id).data["keys"][0]
    assert key["lastUsedAt"] == clock.now - 500
    clock.advance(seconds=59)
    with django_assert_num_queries(2):  # the clock and the credential: nothing is written
        world.ann.api.iam("session/whoami")
    clock.advance(seconds=1)
    world.ann.api.iam("session/whoami")
    assert ApiKey.objects.get(principal_id=world.ann.id).last_used_at == clock.now - 500


@pytest.mark.clause("API-5", "a credential of another tenant")
def test_a_credential_of_another_tenant_is_denied(world: World) -> None:
    world.gil.api.iam("principals/list", tenantId="acme").refused("ACCESS_DENIED")
    world.gil.api.iam("principals/list", tenantId="no-such-tenant").refused("ACCESS_DENIED")
