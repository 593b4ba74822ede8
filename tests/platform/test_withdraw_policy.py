"""manage.py withdraw_policy: the way back for a tenant that has locked itself out."""

from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from tests.support.world import World

LOCK = "forbid (principal, action, resource);"


@pytest.mark.clause("IAM-1", "a changed policy bites at the next call")
@pytest.mark.parametrize("tenant", ["acme", "platform"])
def test_a_tenant_that_has_locked_itself_out(world: World, tenant: str):
    admin = world.acme.api if tenant == "acme" else world.admin
    admin.iam("policies/put", name="lock", text=LOCK).data  # noqa: B018
    admin.iam("policies/delete", name="lock").refused("ACCESS_DENIED")
    out = StringIO()
    call_command("withdraw_policy", tenant, "lock", stdout=out)
    assert out.getvalue().strip() == f"{tenant}/lock, version 1, is out of force."
    assert admin.iam("policies/list").data["policies"] == []
    old = admin.iam("policies/get", name="lock", version=1).data["policy"]
    assert old["text"] == LOCK


@pytest.mark.parametrize(("tenant", "name"), [("acme", "none"), ("nobody", "lock")])
def test_what_is_not_there_is_said(world: World, tenant: str, name: str):
    with pytest.raises(CommandError, match="no such"):
        call_command("withdraw_policy", tenant, name)
