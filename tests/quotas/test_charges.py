"""Charging and refunding, in one transaction after the other."""

import pytest
from django.db import IntegrityError, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quotas.contracts import UNLIMITED
from quotas.models import Charge, Quota
from quotas.operations.charges import charge_each, refund
from quotas.queries import live_lines, used_by_tenant
from tests.quotas.conftest import ask, grant, used

pytestmark = pytest.mark.django_db


@pytest.mark.clause("QTA-1", "all or nothing over all resources")
def test_a_charge_that_does_not_fit_charges_nothing(ledger_holds):
    grant(gpu=8, vcpu=10)
    refused = charge_each([ask("r1", gpu=4, vcpu=11)], now=1)
    assert refused["r1"].code == "QUOTA_EXCEEDED"
    assert refused["r1"].details == {"resource": "vcpu", "requested": 11, "used": 0, "max": 10}
    assert used("gpu") == used("vcpu") == 0
    assert not Charge.objects.exists()


@pytest.mark.clause("QTA-1", "in the given order, each on its own")
def test_a_batch_charges_in_order_and_passes_over_what_does_not_fit(ledger_holds):
    grant(gpu=8)
    refused = charge_each([ask("r1", gpu=5), ask("r2", gpu=4), ask("r3", gpu=3)], now=7)
    assert list(refused) == ["r2"]
    assert refused["r2"].details == {"resource": "gpu", "requested": 4, "used": 5, "max": 8}
    assert used() == 8
    assert [(line.reservation_id, line.amount) for line in live_lines(["r1", "r2", "r3"])] == [("r1", 5), ("r3", 3)]


@pytest.mark.clause("CRE-12", "a missing row grants 0")
def test_without_a_row_nothing_is_granted(ledger_holds):
    refused = charge_each([ask("r1", gpu=1), ask("r2", gpu=0)], now=1)
    assert refused["r1"].details == {"resource": "gpu", "requested": 1, "used": 0, "max": 0}
    assert "r2" not in refused
    assert not Quota.objects.exists()


def test_equal_to_the_maximum_fits_and_unlimited_is_the_largest_number(ledger_holds):
    grant(gpu=4, vcpu=UNLIMITED)
    assert charge_each([ask("r1", gpu=4, vcpu=UNLIMITED)], now=1) == {}
    assert charge_each([ask("r2", vcpu=1)], now=1)["r2"].details["max"] == UNLIMITED


@pytest.mark.clause("QTA-1", "a lowered max stops new charges and breaks nothing")
def test_lowering_max_below_used(ledger_holds):
    grant(gpu=8)
    charge_each([ask("r1", gpu=6)], now=1)
    grant(gpu=2)
    assert charge_each([ask("r2", gpu=1)], now=2)["r2"].details == {
        "resource": "gpu",
        "requested": 1,
        "used": 6,
        "max": 2,
    }
    assert used() == 6
    assert refund(["r1"], now=3) == 1
    assert charge_each([ask("r2", gpu=1)], now=4) == {}


def test_a_refund_is_exact_and_repeating_it_does_nothing(ledger_holds):
    grant(gpu=8, vcpu=8)
    charge_each([ask("r1", gpu=2, vcpu=3), ask("r2", gpu=4)], now=10)
    assert refund(["r1", "never-charged"], now=20) == 2
    assert refund(["r1"], now=30) == 0
    assert (used("gpu"), used("vcpu")) == (4, 0)
    assert set(Charge.objects.filter(reservation_id="r1").values_list("refunded_at", flat=True)) == {20}


def test_a_reservation_cannot_be_charged_twice_at_a_time(ledger_holds):
    grant(gpu=8)
    charge_each([ask("r1", gpu=2)], now=1)
    with pytest.raises(IntegrityError, match="charge_live_unique"), transaction.atomic():
        charge_each([ask("r1", gpu=2)], now=2)
    assert used() == 2
    refund(["r1"], now=3)
    assert charge_each([ask("r1", gpu=2)], now=4) == {}, "refunded, it may be charged anew"


def test_charging_takes_three_queries_and_refunding_three_whatever_the_number(django_assert_num_queries):
    grant(gpu=1_000, vcpu=1_000)
    grant("globex", gpu=1_000, vcpu=1_000)
    batch = [ask(f"r{i}", "acme" if i % 2 else "globex", gpu=1, vcpu=2) for i in range(100)]
    with django_assert_num_queries(3):
        assert charge_each(batch, now=1) == {}
    with django_assert_num_queries(3):
        assert refund([request.reservation_id for request in batch], now=2) == 200


def test_outside_a_transaction_nothing_is_charged(transactional_db):
    grant(gpu=8)
    with pytest.raises(RuntimeError, match="transaction"):
        charge_each([ask("r1", gpu=1)], now=1)
    with pytest.raises(RuntimeError, match="transaction"):
        refund(["r1"], now=1)
    assert used() == 0


def test_what_each_tenant_holds_is_read_at_once():
    grant(gpu=8)
    grant("globex", gpu=8)
    charge_each([ask("r1", gpu=3), ask("r2", "globex", gpu=1)], now=1)
    assert used_by_tenant(pool_id="pool_a", resource="gpu") == {"acme": 3, "globex": 1}


amounts = st.dictionaries(st.sampled_from(["gpu", "vcpu"]), st.integers(0, 5), max_size=2)
steps = st.lists(st.tuples(st.sampled_from(["charge", "refund"]), st.integers(0, 5), amounts), max_size=25)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=steps, gpu=st.integers(0, 8), vcpu=st.integers(0, 8))
@pytest.mark.clause("REC-5", "used is the sum of charges")
def test_any_sequence_of_charges_and_refunds_keeps_the_books(ledger_holds, steps, gpu, vcpu):
    with transaction.atomic():
        grant(gpu=gpu, vcpu=vcpu)
        charged = {}
        for kind, number, wanted in steps:
            name = f"r{number}"
            if kind == "refund":
                assert refund([name], now=1) == len([a for a in charged.pop(name, {}).values() if a])
            elif name not in charged:
                held = {r: sum(c.get(r, 0) for c in charged.values()) for r in ("gpu", "vcpu")}
                fits = all(held[r] + a <= {"gpu": gpu, "vcpu": vcpu}[r] for r, a in wanted.items() if a)
                assert (name not in charge_each([ask(name, **wanted)], now=1)) == fits
                if fits:
                    charged[name] = wanted
        for resource in ("gpu", "vcpu"):
            assert used(resource) == sum(c.get(resource, 0) for c in charged.values())
        ledger_holds()
        transaction.set_rollback(True)
