"""Confirmations raced, on connections of their own (IAM-6, CRE-6, CRE-8)."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from computeplatform.api.calls import Actor
from computeplatform.errors import Refusal
from iam.models import Confirmation
from iam.operations.confirmations import decide_confirmation
from quotas.models import Charge
from reservations import reconcilers
from reservations.models import Reservation
from reservations.operations.confirming import end_waits
from tests.iam.test_races import while_open
from tests.reservations.conftest import event_types
from tests.support.api import Answer, Api
from tests.support.clock import Clock
from tests.support.confirming import EXTEND, HALF_HOUR, Asking, answer_of, draft, entries, must_confirm, stored
from tests.support.threads import at_once
from tests.support.world import request

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def db(transactional_db: None) -> None:
    """Threads see only what is committed."""


def patient(api: Api) -> Api:
    """A client of its own that looks often before its time is up."""
    return Api(api.token, api.tenant_id, looks=100)


def creates(asking: Asking, asked: dict[str, Any], number: int) -> list[Answer]:
    return at_once([partial(patient(asking.session), "reservations/create", **asked) for _ in range(number)])


@pytest.mark.clause("CRE-6", "N callers with one key: one question, one decision, one event, the same answer")
def test_eight_calls_ask_once(asking: Asking, pool: str):
    answers = creates(asking, request(pool), 8)
    assert len({tuple(must_confirm(answer).values()) for answer in answers}) == 1
    assert Confirmation.objects.count() == 1
    assert entries() == ["confirmation-required"]
    assert event_types(Reservation.objects.get().id) == ["awaiting-confirmation"]


@pytest.mark.clause("IAM-6", "two approvals raced: one wins")
def test_two_answers_at_once(asking: Asking, pool: str):
    for other in (True, False):
        one = must_confirm(asking.create(request(pool)))["confirmationId"]
        api = asking.world.ann.api
        answers = at_once([partial(answer_of, patient(api), one, approve=approve) for approve in (True, other)] * 2)
        [won] = [answer.data["confirmation"] for answer in answers if answer.status == 200]
        for answer in answers:
            if answer.status != 200:
                answer.refused("INVALID_STATE", reason="decided", state=won["state"])
        assert stored(one).state == won["state"]


@pytest.mark.clause("IAM-6", "two approvals raced: one wins")
@pytest.mark.parametrize("approve", [True, False])
def test_an_answer_waits_for_the_one_before(asking: Asking, pool: str, clock: Clock, approve: bool):
    one = must_confirm(asking.create(request(pool)))["confirmationId"]
    answer = while_open(
        answering(asking, one, now=clock.now), lambda: answer_of(asking.world.ann.api, one, approve=approve)
    )
    answer.refused("INVALID_STATE", reason="decided", state="approved")
    assert stored(one).state == "approved"


@pytest.mark.clause("CRE-6", "retries of one key with one approval: one decision, one charge, the same answer")
@pytest.mark.clause("IAM-6", "two retries raced with one approval: one use")
def test_retries_with_one_approval(asking: Asking, pool: str):
    asked = request(pool, 2)
    one = asking.approved(asked)["confirmationId"]
    answers = creates(asking, asked, 8)
    assert {answer.data["reservation"]["state"] for answer in answers} == {"placed"}
    assert len({answer.data["reservation"]["id"] for answer in answers}) == 1
    assert entries() == ["confirmation-required", "permitted"]
    assert Charge.objects.count() == 1
    assert stored(one).state == "used"
    assert event_types(Reservation.objects.get().id) == ["awaiting-confirmation", "placed"]


@pytest.mark.clause("IAM-6", "one approval, extends raced: one use")
def test_extends_with_one_approval(asking: Asking, pool: str):
    made = asking.made(request(pool))
    one = must_confirm(asking.extend(made["id"], by=1000))["confirmationId"]
    asking.decide(one)
    end = made["endsAt"] + 1000
    calls = [
        partial(patient(asking.session), "reservations/extend", reservationId=made["id"], until=end) for _ in range(6)
    ]
    answers = at_once(calls)
    moved = [answer for answer in answers if answer.status == 200 and answer.data["extended"]]
    assert len(moved) == 1
    for answer in answers:
        if answer.status != 200:
            answer.refused("CONFLICT", reason="extend-in-flight")
    assert entries(EXTEND) == ["confirmation-required", "permitted"]
    assert stored(one).state == "used"
    assert Reservation.objects.get().ends_at == end


@pytest.mark.clause("EXT-7", "the same new end asked by several at once is the same confirmation")
def test_extends_ask_once(asking: Asking, pool: str):
    made = asking.made(request(pool))
    calls = [partial(patient(asking.session), "reservations/extend", reservationId=made["id"], by=1000)] * 6
    codes = Counter(answer.error["code"] for answer in at_once(calls))
    assert set(codes) <= {"CONFIRMATION_REQUIRED", "CONFLICT"}
    assert codes["CONFIRMATION_REQUIRED"] >= 1
    assert Confirmation.objects.filter(action=EXTEND).count() == 1


def answering(asking: Asking, confirmation_id: str, *, now: int) -> Callable[[], str]:
    """Ann's approval, which arrived at this time."""

    def approve() -> str:
        by = Actor(asking.world.ann.id)
        try:
            found = decide_confirmation(tenant_id="acme", confirmation_id=confirmation_id, approve=True, by=by, now=now)
        except Refusal as refusal:
            return str(refusal.details and refusal.details["reason"])
        return found.state

    return approve


@pytest.mark.clause("IAM-6", "approve versus expire: whichever comes to the row first counts, for both")
def test_approve_and_expire(asking: Asking, pool: str, clock: Clock):
    waiting = [must_confirm(asking.create(request(pool))) for _ in range(6)]
    end = clock.now + HALF_HOUR
    clock.set(end)
    outcomes: Counter[str] = Counter()
    for details in waiting:
        # It arrived in time, and the tick is on time.
        def expire() -> str:
            return str(end_waits(pool_id=pool, now=end))

        answered, _ = at_once([answering(asking, details["confirmationId"], now=end - 1), expire])
        row = draft(details["reservationId"])
        expected = ("approved", "awaiting-confirmation") if answered == "approved" else ("lapsed", "denied")
        assert (stored(details["confirmationId"]).state, row.state) == expected
        outcomes[answered] += 1
    assert sum(outcomes.values()) == len(waiting)


@pytest.mark.clause("IAM-6", "approve versus expire: whichever comes to the row first counts, for both")
def test_the_end_waits_for_an_answer_that_is_under_way(asking: Asking, pool: str, clock: Clock):
    details = must_confirm(asking.create(request(pool)))
    end = clock.now + HALF_HOUR
    clock.set(end)
    looked_at = while_open(
        answering(asking, details["confirmationId"], now=end - 1), lambda: end_waits(pool_id=pool, now=end)
    )
    assert looked_at == 1
    row = draft(details["reservationId"])
    assert (stored(details["confirmationId"]).state, row.state) == ("approved", "awaiting-confirmation")


@pytest.mark.clause("IAM-6", "approve versus expire: the order of the two, one after the other")
@pytest.mark.parametrize("approve_first", [True, False])
def test_approve_then_expire(asking: Asking, pool: str, clock: Clock, approve_first: bool):
    details = must_confirm(asking.create(request(pool)))
    end = clock.now + HALF_HOUR
    approve = answering(asking, details["confirmationId"], now=end - 1)
    if approve_first:
        assert approve() == "approved"
    clock.set(end)
    reconcilers.reconcile_tick()
    if not approve_first:
        assert approve() == "lapsed"
    assert draft(details["reservationId"]).state == ("awaiting-confirmation" if approve_first else "denied")


@pytest.mark.clause("CRE-8", "a retry raced with the end of its approval: admitted or refused, and both say so")
def test_use_and_expire(asking: Asking, pool: str, clock: Clock):
    asked = request(pool)
    details = asking.approved(asked)
    clock.advance(milliseconds=HALF_HOUR - 1)

    def expire() -> Answer | None:
        clock.advance(milliseconds=1)
        reconcilers.reconcile_tick()
        return None

    retry: Callable[[], Answer | None] = partial(patient(asking.session), "reservations/create", **asked)
    answer, _ = at_once([retry, expire])
    assert answer is not None
    row, used = draft(details["reservationId"]), stored(details["confirmationId"]).state
    if answer.status == 200:
        assert (row.state, used) in (("placed", "used"), ("active", "used"))
    else:
        answer.refused("ACCESS_DENIED")
        assert (row.state, used) == ("denied", "lapsed")


@pytest.mark.clause("IAM-6", "approve versus revoke: an approval of a delegation that has ended is good for nothing")
def test_approve_and_revoke(asking: Asking, pool: str):
    asked = request(pool)
    details = must_confirm(asking.create(asked))
    api = asking.world.ann.api
    revoke = partial(patient(api).iam, "delegations/revoke", delegationId=asking.session.delegation_id)
    answered, revoked = at_once([partial(answer_of, patient(api), details["confirmationId"]), revoke])
    assert revoked.status == 200
    if answered.status != 200:
        answered.refused("INVALID_STATE", reason="void")
    asking.create(asked).refused("UNAUTHENTICATED")
    again = must_confirm(asking.renewed().create(asked))
    assert again["confirmationId"] != details["confirmationId"]
