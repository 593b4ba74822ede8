"""The operators' pages of the fleet and the ledger: everything is shown, nothing is edited."""

import pytest
from django.contrib.admin.utils import quote
from django.contrib.auth import get_user_model
from django.db import transaction
from django.test import Client
from django.urls import reverse

from fleet.models import Allocation, Device, Node, Offer, Pool, Taint
from fleet.operations.taints import set_taint
from quotas.models import Charge, Quota
from quotas.operations.charges import charge_each
from tests.quotas.conftest import BY, ask

MODELS = [Allocation, Charge, Device, Node, Offer, Pool, Quota, Taint]


@pytest.fixture
def operator(site, world, clock):
    """Signed in, with at least one row of every model to look at."""
    node, want = site
    want.plan("res_1")
    set_taint([node.id], "Updating", by=BY, now=clock.now, until=clock.now + 1_000)
    world.offer(want.pool_id, "acme")
    with transaction.atomic():
        charge_each([ask("res_1", "acme", want.pool_id, gpu=1)], now=clock.now)
    client = Client()
    client.force_login(get_user_model().objects.create_superuser("op", "op@example.org", "a-long-password"))
    yield client
    Charge.objects.all().delete()
    Quota.objects.update(used=0)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.clause("OPS-1", "the admin shows pools, offers, quotas, nodes, taints, allocations; read-only")
def test_every_row_is_shown_and_none_is_edited(operator, model):
    name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
    row = model.objects.first()
    assert row is not None
    listed = operator.get(reverse(f"{name}_changelist"))
    assert listed.status_code == 200
    assert reverse(f"{name}_change", args=[quote(row.pk)]) in listed.content.decode()
    assert operator.get(reverse(f"{name}_change", args=[quote(row.pk)])).status_code == 200
    assert operator.get(reverse(f"{name}_add")).status_code == 403
    before = list(model.objects.values())
    assert operator.post(reverse(f"{name}_change", args=[quote(row.pk)]), {}).status_code == 403
    assert operator.post(reverse(f"{name}_delete", args=[quote(row.pk)]), {"post": "yes"}).status_code == 403
    assert list(model.objects.values()) == before
