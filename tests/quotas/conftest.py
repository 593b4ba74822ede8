"""Builders for the ledger's tests."""

import pytest

from computeplatform.api.calls import system_actor
from computeplatform.clock import compute_now
from quotas.contracts import ChargeRequest
from quotas.invariants import charge_has_row, used_is_sum_of_charges
from quotas.models import Quota
from quotas.operations.limits import ensure_rows

BY = system_actor("test")


def grant(tenant_id="acme", pool_id="pool_a", **maxima):
    """Rows with these maxima."""
    return ensure_rows(tenant_id=tenant_id, pool_id=pool_id, maxima=maxima, by=BY, now=compute_now())


def ask(reservation_id, tenant_id="acme", pool_id="pool_a", **amounts):
    """A request for a charge."""
    return ChargeRequest(reservation_id, tenant_id, pool_id, amounts)


def used(resource="gpu", tenant_id="acme", pool_id="pool_a"):
    """What the row says is in use."""
    return Quota.objects.get(tenant_id=tenant_id, pool_id=pool_id, resource=resource).used


def broken(pools=None):
    """What the ledger's own checks find. The other apps' checks know nothing of the reservations charged here."""
    return [*used_is_sum_of_charges(pools), *charge_has_row(pools)]


@pytest.fixture
def ledger_holds():
    """The ledger's checks: at the end of the test, and whenever it is called."""

    def check():
        assert broken() == []

    yield check
    check()
