"""A pool's policy, between the wire and the types."""

from decimal import Decimal

import pytest

from computeplatform.api.fields import read_input
from computeplatform.errors import InvalidInput
from fleet.api.shapes import PolicyShape
from fleet.contracts import PerGpu, Policy, Price

DEFAULTS = {
    "placer": "inline",
    "preemptSpot": True,
    "budgetCheck": False,
    "maxDurationHours": 720,
    "maxAdvanceDays": 90,
    "nodeLostGraceSeconds": 300,
    "bindTimeoutSeconds": 300,
    "maxPendingHours": 168,
    "spotNoticeSeconds": 0,
    "agentsNeedLease": False,
}
FULL = {
    "tenantRoot": "/srv/tenants",
    "kubernetes": {"cluster": "k1"},
    "perGpu": {"vcpu": 12, "memoryGiB": 120},
    "placer": "pool-lease",
    "preemptSpot": False,
    "budgetCheck": True,
    "price": {"perDeviceHour": "2.20", "perVcpuHour": "0.01", "perGiBHour": "0.002", "currency": "EUR"},
    "maxDurationHours": 24,
    "maxAdvanceDays": 0,
    "nodeLostGraceSeconds": 0,
    "bindTimeoutSeconds": 1,
    "maxPendingHours": 1,
    "spotNoticeSeconds": 120,
    "agentsNeedLease": True,
}


def test_what_is_left_out_has_its_default():
    assert Policy.from_json({}) == Policy()
    assert Policy().as_json() == DEFAULTS


@pytest.mark.parametrize(
    "stored", [DEFAULTS, FULL, {**DEFAULTS, "price": {"perDeviceHour": "17.60", "currency": "USD"}}]
)
def test_it_comes_back_as_it_went(stored):
    assert Policy.from_json(stored).as_json() == stored


def test_its_members_are_typed():
    policy = Policy.from_json(read_input(PolicyShape, FULL))
    assert policy.per_gpu == PerGpu(12, 120)
    assert policy.price == Price(Decimal("2.20"), "EUR", Decimal("0.01"), Decimal("0.002"))
    assert (policy.tenant_root, policy.kubernetes_cluster, policy.preempt_spot) == ("/srv/tenants", "k1", False)


@pytest.mark.parametrize(
    ("policy", "path"),
    [
        ({"colour": "red"}, "colour"),
        ({"tenantRoot": "srv"}, "tenantRoot"),
        ({"tenantRoot": "/srv/../etc"}, "tenantRoot"),
        ({"tenantRoot": "/srv/"}, "tenantRoot"),
        ({"tenantRoot": None}, "tenantRoot"),
        ({"kubernetes": {}}, "kubernetes.cluster"),
        ({"perGpu": {"vcpu": 1.5, "memoryGiB": 1}}, "perGpu.vcpu"),
        ({"placer": "magic"}, "placer"),
        ({"preemptSpot": 1}, "preemptSpot"),
        ({"price": {"perDeviceHour": 2.2, "currency": "EUR"}}, "price.perDeviceHour"),
        ({"price": {"perDeviceHour": "-1", "currency": "EUR"}}, "price.perDeviceHour"),
        ({"price": {"perDeviceHour": "1e3", "currency": "EUR"}}, "price.perDeviceHour"),
        ({"price": {"perDeviceHour": "1", "currency": "euro"}}, "price.currency"),
        ({"maxDurationHours": 0}, "maxDurationHours"),
        ({"bindTimeoutSeconds": 0}, "bindTimeoutSeconds"),
        ({"nodeLostGraceSeconds": -1}, "nodeLostGraceSeconds"),
        ({"maxPendingHours": "168"}, "maxPendingHours"),
    ],
)
@pytest.mark.clause("API-4", "numbers outside their range and unknown fields are refused")
def test_what_it_may_not_say(policy, path):
    with pytest.raises(InvalidInput) as refused:
        read_input(PolicyShape, policy)
    assert [issue.path for issue in refused.value.issues] == [path]
