"""A create that has to be confirmed, interrupted between its steps: what is stored carries it on (CRE-1, CRE-8)."""

from typing import Any

import pytest

from computeplatform.api.calls import Call, CallContext
from computeplatform.clock import compute_now
from fleet.queries import visible_pool
from iam.models import Confirmation
from iam.queries.credentials import live_callers
from quotas.models import Charge
from reservations import queries, reconcilers
from reservations.models import Reservation
from reservations.operations.admission import admit_decided, decide_drafts
from reservations.operations.drafts import reopen_draft
from tests.reservations.conftest import event_types
from tests.support.api import Answer, Api, admit_all
from tests.support.clock import Clock
from tests.support.confirming import Asking, draft, entries, must_confirm, stored
from tests.support.world import World, request


class Crashed(Exception):
    """The call's process died."""


def die() -> None:
    raise Crashed


def create(asking: Asking, asked: dict[str, Any], *, work: Any) -> Answer:
    """A create during which this happens instead of its admission."""
    return Api(asking.session.token, "acme", work=work)("reservations/create", **asked)


def once(reservation_id: str) -> None:
    """Admitted once, whatever happened in between."""
    assert draft(reservation_id).state == "placed"
    assert Charge.objects.filter(reservation_id=reservation_id, refunded_at=None).count() == 1
    assert event_types(reservation_id)[-1] == "placed"
    assert event_types(reservation_id).count("placed") == 1


@pytest.mark.clause("CRE-1", "a crash before the first decision of a gated create: the tick asks the person")
@pytest.mark.clause("CRE-20", "the tick finishes a gated draft whose call is unanswered")
def test_the_web_process_dies_before_the_question(asking: Asking, pool: str, clock: Clock):
    asked = request(pool)
    with pytest.raises(Crashed):
        create(asking, asked, work=die)
    clock.advance(seconds=2)
    reconcilers.admission_tick()
    row = Reservation.objects.get()
    assert (row.state, Confirmation.objects.get().id) == ("awaiting-confirmation", row.confirmation_id)
    assert must_confirm(asking.create(asked))["confirmationId"] == row.confirmation_id
    assert entries() == ["confirmation-required"]


@pytest.mark.clause("CRE-1", "a crash between approval and decision: the next call or the tick goes on")
@pytest.mark.parametrize("ticked", [True, False])
def test_the_web_process_dies_before_the_decision(asking: Asking, pool: str, clock: Clock, ticked: bool):
    asked = request(pool)
    details = asking.approved(asked)
    with pytest.raises(Crashed):
        create(asking, asked, work=die)
    row = draft(details["reservationId"])
    assert (row.state, row.due_at, row.decided) == ("draft", None, False)
    assert stored(details["confirmationId"]).state == "approved"
    clock.advance(seconds=2 if ticked else 61)
    if ticked:
        reconcilers.admission_tick()
        once(row.id)
    assert asking.create(asked).data["reservation"]["id"] == row.id
    once(row.id)
    assert stored(details["confirmationId"]).state == "used"


@pytest.mark.clause("CRE-1", "a crash between decision and charge: the stored allow continues for 60 s")
@pytest.mark.clause("IAM-6", "later it is decided again, and the approval is used up: asked anew")
@pytest.mark.parametrize("late", [True, False])
def test_the_worker_dies_after_the_decision(asking: Asking, pool: str, clock: Clock, late: bool):
    asked = request(pool)
    details = asking.approved(asked)

    def decide_and_die() -> None:
        assert decide_drafts(pool_id=pool, now=compute_now()) == 1
        die()

    with pytest.raises(Crashed):
        create(asking, asked, work=decide_and_die)
    assert stored(details["confirmationId"]).state == "used"
    clock.advance(seconds=60 if late else 59)
    if late:
        again = must_confirm(asking.create(asked))
        assert again["reservationId"] == details["reservationId"]
        assert again["confirmationId"] != details["confirmationId"]
        assert not Charge.objects.filter(refunded_at=None).exists()
    else:
        assert asking.create(asked).data["reservation"]["state"] == "placed"
        once(details["reservationId"])
        assert entries() == ["confirmation-required", "permitted"]


@pytest.mark.clause("IAM-6", "fails if the estimated cost has risen, also between the decision and the charge")
def test_the_price_rises_between_decision_and_charge(asking: Asking, world: World, clock: Clock):
    pool = world.offered_pool(policy={"price": {"perDeviceHour": "2.00", "currency": "EUR"}})
    asked = request(pool)
    details = asking.approved(asked)

    def decide_raise_and_admit() -> None:
        assert decide_drafts(pool_id=pool, now=compute_now()) == 1
        raised = {"price": {"perDeviceHour": "200.00", "currency": "EUR"}}
        assert world.admin("pools/update", poolId=pool, policy=raised).status == 200
        admit_decided(pool_id=pool, now=compute_now())
        assert Reservation.objects.get().state == "draft"
        assert not Charge.objects.exists()
        clock.advance(seconds=2)
        reconcilers.admission_tick()

    again = must_confirm(create(asking, asked, work=decide_raise_and_admit))
    assert again["confirmationId"] != details["confirmationId"]
    assert asking.shown(again["confirmationId"])["estimatedCost"] == "200.00"
    asking.decide(again["confirmationId"])
    assert asking.create(asked).data["reservation"]["estimatedCost"] == "200.00"
    once(details["reservationId"])


@pytest.mark.clause("CRE-18", "an approved create that is not admitted in time rests, and its key picks it up")
def test_no_worker_comes(asking: Asking, pool: str, clock: Clock):
    asked = request(pool)
    details = asking.approved(asked)
    create(asking, asked, work=lambda: None).refused("UNAVAILABLE", reservationId=details["reservationId"])
    assert draft(details["reservationId"]).state == "draft"
    assert stored(details["confirmationId"]).state == "approved"
    clock.advance(seconds=60)
    assert asking.create(asked).data["reservation"]["state"] == "placed"
    once(details["reservationId"])


@pytest.mark.clause("CRE-8", "once either time has run out it is ACCESS_DENIED: a resting draft too")
@pytest.mark.clause("CRE-21", "ACCESS_DENIED of such a key before the pool")
def test_no_worker_comes_in_time(asking: Asking, pool: str, clock: Clock):
    asked = request(pool)
    details = asking.approved(asked)
    create(asking, asked, work=lambda: None).refused("UNAVAILABLE")
    clock.advance(seconds=30 * 60)
    asking.world.admin("pools/archive", poolId=pool).data  # noqa: B018
    asking.create(asked).refused("ACCESS_DENIED")
    assert entries() == ["confirmation-refused", "confirmation-required"]
    assert draft(details["reservationId"]).state == "denied"


@pytest.mark.clause("CRE-8", "the approval lapses while a worker comes late")
def test_the_worker_comes_too_late(asking: Asking, pool: str, clock: Clock):
    asked = request(pool)
    details = asking.approved(asked)
    clock.advance(seconds=30 * 60 - 1)

    def too_late() -> None:
        clock.advance(seconds=1)
        decide_drafts(pool_id=pool, now=compute_now())

    create(asking, asked, work=too_late).refused("ACCESS_DENIED")
    assert draft(details["reservationId"]).state == "denied"
    assert stored(details["confirmationId"]).state == "lapsed"
    assert entries() == ["confirmation-refused", "confirmation-required"]


@pytest.mark.clause("IAM-5", "an agent stopped after its call was accepted: the draft rests, the approval is kept")
def test_the_agent_is_stopped_meanwhile(asking: Asking, pool: str):
    asked = request(pool)
    details = asking.approved(asked)

    def stop() -> None:
        asking.world.ann.api.iam("agents/suspend", agentId=asking.agent.id).data  # noqa: B018
        decide_drafts(pool_id=pool, now=compute_now())

    create(asking, asked, work=stop).refused("UNAUTHENTICATED")
    assert draft(details["reservationId"]).state == "draft"
    assert stored(details["confirmationId"]).state == "approved"
    asking.world.ann.api.iam("agents/resume", agentId=asking.agent.id).data  # noqa: B018
    asking.create(asked).refused("UNAUTHENTICATED")
    session = asking.world.assume(asking.agent, asking.session.delegation_id)
    assert session("reservations/create", **asked).data["reservation"]["state"] == "placed"
    once(details["reservationId"])


@pytest.mark.clause("IAM-6", "a question that its delegation has ended is void for good once its key is retried")
@pytest.mark.parametrize("died", [True, False])
def test_the_retry_after_a_revoked_delegation_is_not_decided(asking: Asking, pool: str, died: bool):
    """Found by 20 calls raced with a revocation: the draft rested, and its question stood open on it."""
    asked = request(pool)
    details = must_confirm(asking.create(asked))
    ann, later = asking.world.ann.api, asking.renewed()
    ann.iam("delegations/revoke", delegationId=asking.session.delegation_id)

    def revoked_before_the_decision() -> None:
        ann.iam("delegations/revoke", delegationId=later.session.delegation_id)
        admit_all()

    if died:
        with pytest.raises(Crashed):
            create(later, asked, work=die)
    else:
        create(later, asked, work=revoked_before_the_decision).refused("UNAUTHENTICATED")
    assert draft(details["reservationId"]).state == "draft"
    assert stored(details["confirmationId"]).state == "void"
    assert Confirmation.objects.count() == 1


@pytest.mark.clause("CRE-8", "while it waits for the second answer, a retry that saw the first is over opens nothing")
def test_a_retry_that_comes_late_to_the_row(asking: Asking, pool: str, clock: Clock):
    asked = request(pool)
    first = must_confirm(asking.create(asked))
    asking.world.ann.api.iam("delegations/revoke", delegationId=asking.session.delegation_id)
    seen = draft(first["reservationId"])
    later = asking.renewed()
    second = must_confirm(later.create(asked))
    who = (asking.session.user_id, later.session.session_id, asking.session.agent_id)
    call = Call(live_callers([who], now=clock.now)[who], "acme", CallContext(clock.now, request_id="late"), clock.now)
    view = visible_pool(tenant_id="acme", pool_id=pool)
    reopen_draft(call=call, reservation=seen, request=queries.asked(seen), pool=view)
    row = draft(first["reservationId"])
    assert (row.state, row.confirmation_id) == ("awaiting-confirmation", second["confirmationId"])
    assert row.due_at == second["expiresAt"]
    assert event_types(row.id) == ["awaiting-confirmation", "awaiting-confirmation"]
