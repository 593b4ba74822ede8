"""An extension that a person has to confirm first (EXT-7, IAM-6)."""

from typing import Any

import pytest

from iam.models import Confirmation
from reservations import reconcilers
from reservations.models import Reservation
from tests.reservations.conftest import event_types
from tests.support.clock import Clock
from tests.support.confirming import CREATE, EXTEND, HALF_HOUR, Asking, entries, must_confirm, stored
from tests.support.world import HOUR, World, request


@pytest.fixture
def running(asking: Asking, world: World) -> dict[str, Any]:
    """Two GPUs of ann's agent, at 2.00 EUR an hour each, running."""
    pool = world.offered_pool(policy={"price": {"perDeviceHour": "2.00", "currency": "EUR"}})
    made = asking.made(request(pool, 2, leaseSeconds=86_400))
    reconcilers.reconcile_tick()
    return dict(asking.session("reservations/get", reservationId=made["id"]).data["reservation"])


def state(reservation_id: str) -> dict[str, Any]:
    return {**Reservation.objects.values().get(id=reservation_id), "due_at": None}


@pytest.mark.clause("EXT-7", "CONFIRMATION_REQUIRED with the details of CRE-8; the pending change does not wait")
def test_it_is_asked(asking: Asking, running: dict[str, Any], clock: Clock):
    before = state(running["id"])
    details = must_confirm(asking.extend(running["id"], by="PT1H"))
    assert details["reservationId"] == running["id"]
    assert details["expiresAt"] == clock.now + HALF_HOUR
    assert state(running["id"]) == before
    shown = asking.shown(details["confirmationId"])
    assert (shown["action"], shown["resource"]) == (EXTEND, {"type": "compute-reservation", "id": running["id"]})
    assert shown["asked"] == {"reservationId": running["id"], "endsAt": running["endsAt"] + HOUR}
    # Of the total, as the decision has it.
    assert (shown["estimatedCost"], shown["currency"]) == ("8.00", "EUR")
    assert entries(EXTEND) == ["confirmation-required"]
    # The person needs nobody's confirmation.
    api = asking.world.ann.api
    assert api("reservations/extend", reservationId=running["id"], by=1000).data["extended"] is True


@pytest.mark.clause("EXT-7", "the same new end asked while pending is the same confirmation, by or until")
def test_the_same_end_is_the_same_question(asking: Asking, running: dict[str, Any]):
    end = running["endsAt"]
    first = must_confirm(asking.extend(running["id"], by="PT2H"))
    for same in ({"until": end + 2 * HOUR}, {"by": 2 * HOUR}, {"by": "PT120M"}):
        assert must_confirm(asking.extend(running["id"], **same)) == first
    others = [{"by": 2 * HOUR + 1}, {"until": end + 2 * HOUR - 1}, {"by": "PT200H"}]
    asked = [must_confirm(asking.extend(running["id"], **other))["confirmationId"] for other in others]
    assert len({first["confirmationId"], *asked}) == 4
    assert Confirmation.objects.filter(action=EXTEND).count() == 4


@pytest.mark.clause("EXT-7", "the caller extends again: the approval is bound to the absolute new end, and used once")
@pytest.mark.clause("IAM-6", "works once")
def test_it_is_approved(asking: Asking, running: dict[str, Any], clock: Clock):
    end = running["endsAt"] + HOUR
    one = must_confirm(asking.extend(running["id"], by="PT1H"))["confirmationId"]
    asking.decide(one)
    clock.advance(milliseconds=HALF_HOUR - 1)
    answer = asking.extend(running["id"], until=end).data
    assert (answer["extended"], answer["reservation"]["endsAt"]) == (True, end)
    used = stored(one)
    assert (used.state, used.used_at) == ("used", clock.now)
    assert event_types(running["id"])[-1] == "extended"
    # Reached already, nothing is decided; the same length again is another end.
    assert asking.extend(running["id"], until=end).data["extended"] is False
    assert must_confirm(asking.extend(running["id"], by="PT1H"))["confirmationId"] != one
    assert entries(EXTEND) == ["confirmation-required", "confirmation-required", "permitted"]


@pytest.mark.clause("EXT-7", "an approval for 2 hours never serves for 200")
def test_two_hours_are_not_two_hundred(asking: Asking, running: dict[str, Any]):
    one = must_confirm(asking.extend(running["id"], by="PT2H"))["confirmationId"]
    asking.decide(one)
    before = state(running["id"])
    for asked in ({"by": "PT200H"}, {"by": 2 * HOUR + 1}, {"by": "PT1H"}, {"until": running["endsAt"] + 2 * HOUR + 1}):
        must_confirm(asking.extend(running["id"], **asked))
    assert state(running["id"]) == before
    assert stored(one).state == "approved"
    # Nor after the end has moved otherwise: what was approved was an end, not a length.
    asking.world.ann.api("reservations/extend", reservationId=running["id"], by="PT1H").data  # noqa: B018
    must_confirm(asking.extend(running["id"], by="PT2H"))
    assert asking.extend(running["id"], by="PT1H").data["reservation"]["endsAt"] == running["endsAt"] + 2 * HOUR
    assert stored(one).state == "used"


@pytest.mark.clause("EXT-7", "an approval of one reservation does not serve for another")
def test_another_reservation(asking: Asking, running: dict[str, Any], world: World):
    other = asking.made(request(running["poolId"], 2))
    assert other["endsAt"] == running["endsAt"]
    asking.decide(must_confirm(asking.extend(running["id"], by="PT1H"))["confirmationId"])
    must_confirm(asking.extend(other["id"], by="PT1H"))


@pytest.mark.clause("EXT-7", "a refused question stays refused, ACCESS_DENIED; another end can be asked for")
def test_it_is_refused(asking: Asking, running: dict[str, Any], clock: Clock):
    one = must_confirm(asking.extend(running["id"], by="PT1H"))["confirmationId"]
    asking.decide(one, approve=False)
    before = state(running["id"])
    clock.advance(milliseconds=HALF_HOUR)
    for same in ({"by": "PT1H"}, {"until": running["endsAt"] + HOUR}):
        assert "details" not in asking.extend(running["id"], **same).refused("ACCESS_DENIED")
    assert state(running["id"]) == before
    assert entries(EXTEND) == ["confirmation-refused"] * 2 + ["confirmation-required"]
    must_confirm(asking.extend(running["id"], by="PT2H"))
    # Another delegation is another question.
    must_confirm(asking.renewed().extend(running["id"], by="PT1H"))


@pytest.mark.clause("IAM-6", "of extend, what has lapsed is asked anew")
@pytest.mark.parametrize("approve", [True, False])
def test_it_lapses(asking: Asking, running: dict[str, Any], clock: Clock, approve: bool):
    one = must_confirm(asking.extend(running["id"], until=running["endsAt"] + HOUR))["confirmationId"]
    if approve:
        asking.decide(one)
    clock.advance(milliseconds=HALF_HOUR)
    two = must_confirm(asking.extend(running["id"], until=running["endsAt"] + HOUR))
    assert two["confirmationId"] != one
    assert stored(one).state == "lapsed"
    asking.decide(two["confirmationId"])
    assert asking.extend(running["id"], until=running["endsAt"] + HOUR).data["extended"] is True


@pytest.mark.clause("IAM-6", "a delegation that ends makes its pending confirmations void, of extensions too")
def test_its_delegation_ends(asking: Asking, running: dict[str, Any]):
    one = must_confirm(asking.extend(running["id"], by="PT1H"))["confirmationId"]
    asking.world.ann.api.iam("delegations/revoke", delegationId=asking.session.delegation_id).data  # noqa: B018
    assert asking.shown(one)["state"] == "void"
    another = asking.renewed()
    two = must_confirm(another.extend(running["id"], by="PT1H"))["confirmationId"]
    another.decide(two)
    assert another.extend(running["id"], by="PT1H").data["extended"] is True


@pytest.mark.clause("IAM-6", "an approval counts only in a session of its own delegation, of extensions too")
def test_another_delegation(asking: Asking, running: dict[str, Any]):
    one = must_confirm(asking.extend(running["id"], by="PT1H"))["confirmationId"]
    asking.decide(one)
    must_confirm(asking.renewed().extend(running["id"], by="PT1H"))
    assert stored(one).state == "approved"
    assert asking.renewed(confirm=(CREATE,)).extend(running["id"], by=1000).data["extended"] is True


@pytest.mark.clause("IAM-6", "fails if the estimated cost has risen: of an extension, by a later start")
def test_the_cost_has_risen(asking: Asking, running: dict[str, Any], clock: Clock):
    one = must_confirm(asking.extend(running["id"], by="PT1H"))["confirmationId"]
    asking.decide(one)
    # As a re-placement at a time before would leave it: the same end, and a longer window.
    Confirmation.objects.filter(id=one).update(estimated_cost="7.99")
    clock.advance(seconds=1)
    two = must_confirm(asking.extend(running["id"], by="PT1H"))["confirmationId"]
    assert (stored(one).state, two != one) == ("void", True)
    asking.decide(two)
    assert asking.extend(running["id"], by="PT1H").data["extended"] is True


@pytest.mark.clause("IAM-6", "the decision uses it up, also where nothing moves then")
def test_others_are_in_the_way(asking: Asking, running: dict[str, Any], world: World):
    one = must_confirm(asking.extend(running["id"], by="PT1H"))["confirmationId"]
    asking.decide(one)
    neighbour = world.gil.api("reservations/create", **request(running["poolId"], 8, startsAt=running["endsAt"]))
    assert neighbour.data["reservation"]["state"] == "placed"
    answer = asking.extend(running["id"], by="PT1H").data
    assert (answer["extended"], answer["availableUntil"]) == (False, running["endsAt"])
    assert stored(one).state == "used"
    must_confirm(asking.extend(running["id"], by="PT1H"))


@pytest.mark.clause("EXT-7", "refused only for want of confirmation: what the pool or a policy refuses asks nobody")
def test_what_is_refused_anyway_is_not_asked(asking: Asking, running: dict[str, Any], world: World):
    asking.extend(running["id"], by="PT800H").refused_at("by")
    forbid = f'forbid (principal, action == Compute::Action::"{EXTEND}", resource);'
    assert world.acme.api.iam("policies/put", name="none", text=forbid).status == 200
    asking.extend(running["id"], by=1000).refused("ACCESS_DENIED")
    assert not Confirmation.objects.filter(action=EXTEND).exists()
    assert Reservation.objects.get().pending_change is None


@pytest.mark.clause("IAM-5", "renew is never gated, nor is any other method")
def test_other_methods_are_not_gated(asking: Asking, running: dict[str, Any]):
    for method in ("renew", "get", "release"):
        assert asking.session(f"reservations/{method}", reservationId=running["id"]).status == 200
    assert not Confirmation.objects.filter(action=EXTEND).exists()
