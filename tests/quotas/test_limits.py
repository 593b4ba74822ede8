"""Maxima: who has which row, and what is told about a change."""

import pytest

from computeplatform.errors import StaleVersion
from computeplatform.events.models import Event
from computeplatform.invariants import check_names
from quotas.models import Charge, Quota
from quotas.operations.limits import set_max
from quotas.queries import quotas_of
from tests.quotas.conftest import BY, broken, grant

pytestmark = pytest.mark.django_db


def put(value, version=None):
    return set_max(tenant_id="acme", pool_id="pool_a", resource="gpu", max=value, by=BY, now=5, version=version)


def test_rows_are_created_set_and_left_alone():
    grant(gpu=4, vcpu=8)
    grant(gpu=6)
    assert [(q.resource, q.max, q.version) for q in quotas_of(tenant_id="acme")] == [("gpu", 6, 2), ("vcpu", 8, 1)]


@pytest.mark.clause("EVT-1", "quota.changed in the transaction of its change")
def test_a_change_is_told_once_and_no_change_is_not():
    put(4)
    put(4)
    put(9)
    told = [(e.type, e.subject_version, e.data) for e in Event.objects.order_by("position")]
    assert told == [
        ("quota.changed", 1, {"poolId": "pool_a", "resource": "gpu", "max": 4, "used": 0}),
        ("quota.changed", 2, {"poolId": "pool_a", "resource": "gpu", "max": 9, "used": 0, "maxBefore": 4}),
    ]
    assert {e.tenant_id for e in Event.objects.all()} == {"acme"}


def test_a_new_row_with_max_0_is_a_change_too():
    assert put(0).version == 1
    assert Event.objects.count() == 1


def test_a_stale_version_changes_nothing():
    put(4)
    put(5, version=1)
    with pytest.raises(StaleVersion) as refused:
        put(6, version=1)
    assert refused.value.details == {"reason": "stale-version", "version": 2}
    assert Quota.objects.get().max == 5
    assert Event.objects.count() == 2


@pytest.mark.parametrize("value", [-1, 2**53])
def test_a_maximum_outside_the_range_is_a_fault(value):
    with pytest.raises(ValueError, match="whole number"):
        put(value)


@pytest.mark.clause("REC-5", "verify_invariants names what differs")
def test_the_invariants_name_what_differs():
    grant(gpu=8)
    Quota.objects.update(used=3)
    line = {"tenant_id": "globex", "pool_id": "pool_a", "resource": "gpu", "amount": 2, "charged_at": 1}
    Charge.objects.create(reservation_id="r9", **line)
    assert broken(["pool_a"]) == [
        ("acme/pool_a/gpu", "used is 3, the live charges sum to 0"),
        ("globex/pool_a/gpu", "2 charged, but there is no quota row"),
    ]
    assert broken(["pool_b"]) == []
    assert {"quotas.used-is-sum-of-charges", "quotas.charge-has-row"} <= set(check_names())
