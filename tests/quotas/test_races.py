"""Two connections at once: the rows' locks, not luck, keep the ledger."""

import threading

import pytest
from django.db import connection, transaction

from quotas.operations.charges import charge_each, refund
from quotas.operations.limits import set_max
from tests.quotas.conftest import BY, ask, grant, used

pytestmark = pytest.mark.django_db(transaction=True)


def together(*jobs):
    """Run the jobs at the same time, each on its own connection; returns their results, raises their errors."""
    results = [None] * len(jobs)
    errors = []
    start = threading.Barrier(len(jobs))

    def run(place, job):
        try:
            start.wait(timeout=10)
            results[place] = job()
        except Exception as error:  # noqa: BLE001 - raised again in the test's own thread
            errors.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(place, job)) for place, job in enumerate(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    if errors:
        raise errors[0]
    return results


def charging(*requests, hold=None):
    """A job that charges in one transaction of its own."""

    def job():
        with transaction.atomic():
            refused = charge_each(list(requests), now=1)
            if hold:
                hold.wait(timeout=10)
            return refused

    return job


@pytest.mark.clause("QTA-1", "two charges at once never pass max")
def test_many_charges_at_once_never_pass_max(ledger_holds):
    grant(gpu=10)
    results = together(*[charging(ask(f"r{i}", gpu=3)) for i in range(8)])
    assert sum(1 for refused in results if not refused) == 3
    assert used() == 9


def test_a_second_charge_waits_for_the_first_and_sees_what_it_took(ledger_holds):
    grant(gpu=4)
    released = threading.Event()
    first_has_charged = threading.Event()

    def first():
        with transaction.atomic():
            refused = charge_each([ask("r1", gpu=3)], now=1)
            first_has_charged.set()
            # The second one is blocked by now, or will be; either way it may not see the row as it was.
            released.wait(timeout=10)
            return refused

    def second():
        first_has_charged.wait(timeout=10)
        released.set()
        return charging(ask("r2", gpu=3))()

    one, two = together(first, second)
    assert one == {}
    assert two["r2"].details == {"resource": "gpu", "requested": 3, "used": 3, "max": 4}


def test_batches_in_opposite_order_do_not_deadlock(ledger_holds):
    for tenant in ("acme", "globex"):
        grant(tenant, gpu=1_000, vcpu=1_000)
    forth = [("acme", "gpu"), ("acme", "vcpu"), ("globex", "gpu"), ("globex", "vcpu")]

    def job(name, order):
        def run():
            for turn in range(15):
                requests = [ask(f"{name}{turn}{i}", tenant, **{res: 1}) for i, (tenant, res) in enumerate(order)]
                charging(*requests)()
                with transaction.atomic():
                    refund([request.reservation_id for request in requests], now=2)

        return run

    together(job("a", forth), job("b", forth[::-1]), job("c", forth[2:] + forth[:2]))
    assert used() == used("vcpu", "globex") == 0


def test_refunding_the_same_reservation_twice_at_once_gives_back_once(ledger_holds):
    grant(gpu=8)
    charging(ask("r1", gpu=5))()

    def job():
        with transaction.atomic():
            return refund(["r1"], now=2)

    assert sorted(together(job, job, job)) == [0, 0, 1]
    assert used() == 0


def test_setting_max_and_charging_at_once_keep_both(ledger_holds):
    grant(gpu=8)

    def raising():
        set_max(tenant_id="acme", pool_id="pool_a", resource="gpu", max=100, by=BY, now=1)

    together(raising, charging(ask("r1", gpu=5)), charging(ask("r2", gpu=3)))
    assert used() == 8
    assert grant(gpu=100)[0].max == 100
