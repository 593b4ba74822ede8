"""The first rows, operators, the services of nodes, and what must always hold."""

from collections.abc import Callable

import pytest
from django.contrib.admin.utils import quote
from django.db import IntegrityError, connection, transaction
from django.test import Client
from django.urls import reverse

from computeplatform.api.calls import system_actor
from computeplatform.clock import compute_now
from computeplatform.errors import Conflict
from computeplatform.invariants import check_names, violations
from iam.models import ApiKey, Decision, Operator, Policy, Principal, Tenant
from iam.operations.bootstrap import ensure_operator, ensure_platform
from iam.operations.principals import create_node_service, end_node_service, resume_principal
from tests.iam.support import NOT_US_EAST, put, tokens_of
from tests.support.api import Api
from tests.support.world import World

BY = system_actor("test")


@pytest.mark.django_db
def test_the_platform_is_made_once() -> None:
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE iam_tenant CASCADE")
    first = ensure_platform(compute_now())
    assert first.token is not None
    assert first.admin.roles == ("tenant-admin", "fleet-admin")
    second = ensure_platform(compute_now())
    assert (second.admin, second.token) == (first.admin, None)
    assert (Tenant.objects.count(), Principal.objects.count(), ApiKey.objects.count()) == (1, 1, 1)
    assert Api(first.token, "platform").iam("session/whoami").data["tenant"] == {"id": "platform", "name": "Platform"}


@pytest.mark.clause("IAM-4", "the database refuses fleet administrators elsewhere")
def test_constraints_hold_without_the_operations(world: World) -> None:
    wrong: list[Callable[[], object]] = [
        lambda: Principal.objects.filter(id=world.ann.id).update(roles=["fleet-admin"]),
        lambda: Principal.objects.filter(id=world.ann.id).update(node_id="node_1"),
        lambda: Principal.objects.filter(id=world.ann.id).update(kind="agent"),
        lambda: Principal.objects.filter(id=world.ann.id).update(kind="robot"),
        lambda: ApiKey.objects.filter(principal_id=world.ann.id).update(scopes=[]),
        lambda: ApiKey.objects.filter(principal_id=world.ann.id).update(status="revoked"),
        lambda: ApiKey.objects.update(prefix="cpk_aaaaaaaa"),
    ]
    for change in wrong:
        with pytest.raises(IntegrityError), transaction.atomic():
            change()


@pytest.mark.clause("NOD-1", "a service of the platform with its own key")
def test_a_node_has_one_service_until_it_ends(world: World) -> None:
    now = compute_now()
    service, token = create_node_service(node_id="node_x", name="n1", by=BY, now=now)
    assert (service.tenant_id, service.kind, service.node_id, service.roles) == ("platform", "service", "node_x", ())
    with pytest.raises(Conflict):
        create_node_service(node_id="node_x", name="n1", by=BY, now=now)
    shown = world.admin.iam("principals/get", principalId=service.id).data["principal"]
    assert shown["nodeId"] == "node_x"
    end_node_service(node_id="node_x", by=BY, now=now)
    end_node_service(node_id="node_x", by=BY, now=now)
    Api(token, "platform").iam("session/whoami").refused("UNAUTHENTICATED")
    assert ApiKey.objects.get(principal_id=service.id).status == "revoked"
    again, second = create_node_service(node_id="node_x", name="n1", by=BY, now=now)
    assert Api(second, "platform").iam("session/whoami").data["scopes"] == ["compute:nodes:sync"]
    with pytest.raises(Conflict):
        resume_principal(tenant_id="platform", principal_id=service.id, by=BY, now=now)
    assert again.id != service.id


@pytest.fixture
def operator(world: World) -> Client:
    """A browser in which the platform's administrator has signed in to the admin."""
    admin_id = world.admin.iam("session/whoami").data["principal"]["id"]
    for password in ("first password", "a good password"):
        ensure_operator(username="op", password=password, principal_id=admin_id, by=BY, now=compute_now())
    assert Operator.objects.get().principal_id == admin_id
    client = Client()
    assert not client.login(username="op", password="first password")
    assert client.login(username="op", password="a good password")
    return client


def test_an_operator_is_a_user_of_the_platform(world: World) -> None:
    with pytest.raises(Principal.DoesNotExist):
        ensure_operator(username="op", password="x" * 12, principal_id=world.ann.id, by=BY, now=compute_now())
    assert Operator.objects.count() == 0


@pytest.mark.clause("OPS-1", "principals, keys, policies, decisions")
@pytest.mark.clause("OPS-2", "secrets are not shown")
@pytest.mark.parametrize("model", [Tenant, Principal, ApiKey, Policy, Decision, Operator])
def test_the_admin_shows_rows_without_secrets(world: World, operator: Client, model: type) -> None:
    put(world, NOT_US_EAST)
    name = f"admin:iam_{model.__name__.lower()}"
    row_id = quote(model.objects.first().pk)  # type: ignore[attr-defined]
    pages = [operator.get(reverse(f"{name}_changelist")), operator.get(reverse(f"{name}_change", args=[row_id]))]
    pages.append(operator.get(reverse(f"{name}_changelist"), {"q": "ann"}))
    secrets = [token[12:] for token in tokens_of(world)] + list(ApiKey.objects.values_list("token_hash", flat=True))
    secrets.append(Operator.objects.get().password)
    for page in pages:
        assert page.status_code == 200
        text = page.content.decode()
        assert not any(secret in text for secret in secrets)
    assert operator.get(reverse(f"{name}_add")).status_code == 403
    assert operator.post(reverse(f"{name}_delete", args=[row_id]), {"post": "yes"}).status_code == 403


BREAK = {
    "iam.platform-has-admin": "UPDATE iam_principal SET status = 'suspended' WHERE tenant_id = 'platform'",
    "iam.policy-version": "UPDATE iam_policy SET version = version + 1",
    "iam.policy-revision": "UPDATE iam_tenant SET policy_revision = 0",
    "iam.key-tenant": "UPDATE iam_apikey SET tenant_id = 'globex' WHERE tenant_id = 'acme'",
    "iam.sponsor-tenant": (
        "UPDATE iam_principal SET kind = 'agent', sponsor_id ="
        " (SELECT id FROM iam_principal WHERE tenant_id = 'globex' LIMIT 1) WHERE name = 'ann'"
    ),
    "iam.agent-suspension": "UPDATE iam_principal SET end_reservations = true WHERE kind = 'agent'",
    "iam.delegation-parties": "UPDATE iam_delegation SET user_id = (SELECT id FROM iam_principal WHERE name = 'gil')",
    "iam.session-bounds": "UPDATE iam_delegatedsession SET scopes = '{*}'",
    "iam.sessions-of-suspended": (
        "UPDATE iam_principal SET status = 'suspended', suspended_by = 'sponsor', status_at = created_at"
        " WHERE kind = 'agent'"
    ),
    "iam.confirmations": (
        "INSERT INTO iam_confirmation (id, tenant_id, user_id, agent_id, delegation_id, action, resource_type,"
        " resource_id, asked, digest, estimated_cost, currency, state, created_at, expires_at, decide_reason,"
        " decision_id) SELECT 'cnf_1', tenant_id, (SELECT id FROM iam_principal WHERE name = 'ann'), agent_id, id, 'a',"
        " 'r', 'r', '{}', '', 0, '', 'lapsed', 1, 2, '', '' FROM iam_delegation"
    ),
    "iam.operator-tenant": (
        "INSERT INTO iam_operator (username, password, first_name, last_name, email, is_superuser, is_staff, is_active,"
        " date_joined, principal_id) SELECT 'op', '', '', '', '', true, true, true, now(), id"
        " FROM iam_principal WHERE name = 'ann'"
    ),
    "iam.audit-complete": "DELETE FROM iam_unsealeddecision",
    "iam.audit-chain": (
        "INSERT INTO iam_decisionbatch (tenant_id, number, entries, first_at, last_at, previous, hash, sealed_at,"
        " exported_to, export_hash) VALUES ('acme', 2, '[]', 1, 1, '', '', 1, '', '')"
    ),
}


@pytest.mark.clause("REC-5", "every other invariant")
@pytest.mark.parametrize("check", sorted(BREAK))
def test_every_invariant_can_break(world: World, check: str) -> None:
    put(world, NOT_US_EAST)
    world.session(world.agent(world.bob), world.bob)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(BREAK[check])
        assert {violation.check for violation in violations()} == {check}
        transaction.set_rollback(True)
    assert {name for name in check_names() if name.startswith("iam.")} == set(BREAK)
