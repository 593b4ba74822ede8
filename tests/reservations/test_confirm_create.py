"""A create that a person has to confirm first (CRE-8, IAM-6)."""

from collections.abc import Callable
from typing import Any

import pytest

from computeplatform.models import Event
from iam.models import Confirmation, Decision
from quotas.models import Quota
from reservations import reconcilers
from reservations.models import Reservation
from tests.reservations.conftest import event_types
from tests.support.clock import Clock
from tests.support.confirming import CREATE, HALF_HOUR, Asking, draft, entries, must_confirm, stored
from tests.support.world import HOUR, World, request

Left = Callable[..., dict[str, int]]
PRICE = {"perDeviceHour": "2.00", "currency": "EUR"}
FORBID = 'forbid (principal, action == Compute::Action::"compute:reservations:create", resource);'


@pytest.fixture
def priced(world: World) -> str:
    return world.offered_pool(policy={"price": PRICE})


def set_price(world: World, pool: str, amount: str | None, currency: str = "EUR") -> None:
    price = None if amount is None else {"perDeviceHour": amount, "currency": currency}
    assert world.admin("pools/update", poolId=pool, policy={"price": price}).status == 200


@pytest.mark.clause("CRE-8", "IAM opens a request; CONFIRMATION_REQUIRED with reservationId, confirmationId, expiresAt")
@pytest.mark.clause("CRE-12", "an awaiting draft holds no quota")
@pytest.mark.clause("CRE-17", "exactly one reservation.awaiting-confirmation")
def test_it_is_asked(asking: Asking, pool: str, clock: Clock, left: Left):
    error = asking.create(request(pool, 8)).refused("CONFIRMATION_REQUIRED")
    details = error["details"]
    assert details["expiresAt"] == clock.now + HALF_HOUR
    assert "fix" in error
    assert left() == {"drafts": 1, "decisions": 1, "confirmations": 1, "events": 1}
    row = draft(details["reservationId"])
    assert (row.state, row.confirmation_id, row.due_at) == (
        "awaiting-confirmation", details["confirmationId"], details["expiresAt"],
    )  # fmt: skip
    told = Event.objects.get(subject_id=row.id)
    assert (told.type, told.subject_version) == ("reservation.awaiting-confirmation", 1)
    assert (told.actor_id, told.agent_id) == (asking.world.ann.id, asking.agent.id)
    assert told.request_id == Decision.objects.get(action=CREATE).request_id
    assert told.data == {
        "poolId": pool,
        "state": "awaiting-confirmation",
        "confirmationId": details["confirmationId"],
        "expiresAt": details["expiresAt"],
    }
    assert Quota.objects.get(tenant_id="acme", resource="gpu").used == 0
    # Nothing is kept for it either.
    assert asking.world.gil.api("reservations/create", **request(pool, 8)).data["reservation"]["state"] == "placed"


@pytest.mark.clause("CRE-8", "refused only for want of confirmation: with another reason nobody is asked")
def test_what_is_refused_anyway_is_not_asked(asking: Asking, pool: str, left: Left):
    assert asking.world.acme.api.iam("policies/put", name="none", text=FORBID).status == 200
    asking.create(request(pool)).refused("ACCESS_DENIED")
    assert left() == {"drafts": 1, "decisions": 1}
    assert entries() == ["forbidden"]


@pytest.mark.clause("IAM-1", "the confirmation gate comes last: a ceiling is first")
def test_the_gate_is_the_last(asking: Asking, pool: str):
    world = asking.world
    narrow = world.session(asking.agent, world.ann, scopes=["compute:*:read"], confirm=[CREATE])
    narrow("reservations/create", **request(pool)).refused("ACCESS_DENIED")
    assert entries() == ["delegation-scope"]
    assert not Confirmation.objects.exists()


@pytest.mark.clause("CRE-8", "while it waits, the same key answers the same ids and decides nothing")
@pytest.mark.clause("CRE-4", "one that awaits confirmation answers as CRE-8 says")
@pytest.mark.clause("CRE-5", "another request is CONFLICT also while it waits")
def test_the_same_key_while_it_waits(asking: Asking, pool: str, clock: Clock, left: Left):
    asked = request(pool)
    details = must_confirm(asking.create(asked))
    before, row = left(), Reservation.objects.values().get()
    clock.advance(milliseconds=HALF_HOUR - 1)
    reconcilers.admission_tick()
    reconcilers.reconcile_tick()
    assert must_confirm(asking.create(asked)) == details
    # Another session of the agent for the same person is the same caller.
    assert must_confirm(asking.renewed().create(asked)) == details
    conflict = asked | {"devices": {"class": "gpu", "count": 2}}
    asking.create(conflict).refused("CONFLICT", reservationId=details["reservationId"])
    assert left() == before
    assert Reservation.objects.values().get() == row


@pytest.mark.clause("CRE-8", "approval ends the wait: the same key decides once more, with the approval, and continues")
@pytest.mark.clause("IAM-6", "the decision that it turns into an allow uses it up")
@pytest.mark.clause("GET-1", "createdBy names the person and the agent")
def test_it_is_approved(asking: Asking, pool: str, clock: Clock, left: Left):
    asked = request(pool, 8)
    details = asking.approved(asked)
    row = draft(details["reservationId"])
    # The answer alone moves nothing.
    assert (row.state, row.version) == ("awaiting-confirmation", 1)
    clock.advance(seconds=5)
    made = asking.create(asked).data["reservation"]
    assert (made["id"], made["state"], made["version"]) == (details["reservationId"], "placed", 2)
    assert made["createdBy"] == {"principal": asking.world.ann.id, "agent": asking.agent.id}
    after = left()
    assert {name: after[name] for name in ("decisions", "reservations", "charges", "confirmations")} == {
        "decisions": 2, "reservations": 1, "charges": 1, "confirmations": 1,
    }  # fmt: skip
    used = stored(details["confirmationId"])
    assert (used.state, used.used_at) == ("used", clock.now)
    assert Reservation.objects.get().decision_id == used.decision_id
    assert event_types(made["id"]) == ["awaiting-confirmation", "placed"]
    told = Event.objects.get(type="reservation.placed")
    assert (told.actor_id, told.agent_id) == (asking.world.ann.id, asking.agent.id)
    # A replay shows what is stored, and nobody is asked again.
    before = left()
    assert asking.create(asked).data["reservation"] == made
    assert left() == before


@pytest.mark.clause("CRE-8", "the same key within 30 minutes of the approval, half-open")
@pytest.mark.parametrize("late", [False, True])
def test_an_approval_lasts_half_an_hour(asking: Asking, pool: str, clock: Clock, late: bool):
    asked = request(pool)
    details = must_confirm(asking.create(asked))
    # The two times add up.
    clock.advance(milliseconds=HALF_HOUR - 1)
    asking.decide(details["confirmationId"])
    clock.advance(milliseconds=1)
    reconcilers.reconcile_tick()
    assert draft(details["reservationId"]).state == "awaiting-confirmation"
    clock.advance(milliseconds=HALF_HOUR - 2 + late)
    if late:
        asking.create(asked).refused("ACCESS_DENIED")
    else:
        assert asking.create(asked).data["reservation"]["state"] == "placed"
    assert stored(details["confirmationId"]).state == ("lapsed" if late else "used")


@pytest.mark.clause("CRE-8", "after refusal it is ACCESS_DENIED")
@pytest.mark.clause("CRE-5", "a key whose request IAM refused stays ACCESS_DENIED")
@pytest.mark.clause("CRE-21", "a refused key before the pool")
def test_it_is_refused(asking: Asking, pool: str, clock: Clock, left: Left):
    asked = request(pool, endsAt=clock.now + 60_000)
    del asked["durationSeconds"]
    details = must_confirm(asking.create(asked))
    asking.decide(details["confirmationId"], approve=False)
    # Nothing of the pool, nor the time, is told any more.
    assert asking.world.admin("pools/archive", poolId=pool).status == 200
    clock.advance(seconds=120)
    error = asking.create(asked).refused("ACCESS_DENIED")
    assert "details" not in error
    assert entries(request_id=error["requestId"]) == ["confirmation-refused"]
    row = draft(details["reservationId"])
    assert (row.state, row.due_at) == ("denied", None)
    before = left()
    asking.create(asked).refused("ACCESS_DENIED")
    assert left() == before
    assert event_types(row.id) == ["awaiting-confirmation"]
    assert stored(details["confirmationId"]).state == "refused"


@pytest.mark.clause("CRE-8", "once either time has run out, it is ACCESS_DENIED")
@pytest.mark.clause("CRE-8", "it waits for at most 30 minutes")
@pytest.mark.parametrize("approve", [True, False])
@pytest.mark.parametrize("ticked", [True, False])
def test_time_runs_out(asking: Asking, pool: str, clock: Clock, approve: bool, ticked: bool):
    asked = request(pool)
    details = asking.approved(asked) if approve else must_confirm(asking.create(asked))
    clock.advance(milliseconds=HALF_HOUR)
    if ticked:
        reconcilers.reconcile_tick()
        assert draft(details["reservationId"]).state == "denied"
        assert stored(details["confirmationId"]).state == "lapsed"
    # The sessions from before are over by now.
    asking.session = asking.world.assume(asking.agent, asking.session.delegation_id)
    asking.create(asked).refused("ACCESS_DENIED")
    assert entries() == ["confirmation-refused", "confirmation-required"][ticked:]
    assert draft(details["reservationId"]).state == "denied"
    assert stored(details["confirmationId"]).state == "lapsed"
    asking.create(asked).refused("ACCESS_DENIED")


@pytest.mark.clause("CRE-8", "a refused or approved draft is looked at when its time comes")
@pytest.mark.parametrize(("approve", "state"), [(True, "awaiting-confirmation"), (False, "denied")])
def test_the_reconciler_reads_what_was_answered(asking: Asking, pool: str, clock: Clock, approve: bool, state: str):
    details = must_confirm(asking.create(request(pool)))
    clock.advance(seconds=60)
    answered = asking.decide(details["confirmationId"], approve=approve)
    clock.set(details["expiresAt"])
    for _ in range(2):
        reconcilers.reconcile_tick()
        row = draft(details["reservationId"])
        assert (row.state, row.due_at) == (state, answered["expiresAt"] if approve else None)


@pytest.mark.clause("IAM-6", "a delegation that ends makes its pending confirmations void; another one asks anew")
def test_its_delegation_ends(asking: Asking, pool: str, clock: Clock):
    asked = request(pool)
    first = must_confirm(asking.create(asked))
    asking.world.ann.api.iam("delegations/revoke", delegationId=asking.session.delegation_id).data  # noqa: B018
    asking.create(asked).refused("UNAUTHENTICATED")
    assert draft(first["reservationId"]).state == "awaiting-confirmation"
    clock.advance(seconds=1)
    another = asking.renewed()
    second = must_confirm(another.create(asked))
    assert second["reservationId"] == first["reservationId"]
    assert second["confirmationId"] != first["confirmationId"]
    assert second["expiresAt"] == clock.now + HALF_HOUR
    assert stored(first["confirmationId"]).state == "void"
    assert stored(second["confirmationId"]).delegation_id == another.session.delegation_id
    assert event_types(first["reservationId"]) == ["awaiting-confirmation"] * 2
    another.decide(second["confirmationId"])
    assert another.create(asked).data["reservation"]["version"] == 3


@pytest.mark.clause("CRE-8", "one whose delegation has ended waits for 30 minutes as well")
@pytest.mark.parametrize("ticked", [True, False])
def test_its_delegation_ends_and_the_time_runs_out(asking: Asking, pool: str, clock: Clock, ticked: bool):
    asked = request(pool)
    details = must_confirm(asking.create(asked))
    asking.world.ann.api.iam("delegations/revoke", delegationId=asking.session.delegation_id).data  # noqa: B018
    clock.advance(milliseconds=HALF_HOUR)
    if ticked:
        reconcilers.reconcile_tick()
        assert draft(details["reservationId"]).state == "denied"
    asking.renewed().create(asked).refused("ACCESS_DENIED")
    assert stored(details["confirmationId"]).state == "void"
    assert draft(details["reservationId"]).state == "denied"


@pytest.mark.clause("CRE-8", "the retry is decided once more, in its own circumstances")
def test_a_retry_is_decided_in_its_own_circumstances(asking: Asking, pool: str, clock: Clock):
    asked = request(pool)
    asking.approved(asked)
    clock.advance(seconds=5)
    assert asking.create(asked).data["reservation"]["state"] == "placed"
    first, second = Decision.objects.filter(action=CREATE).order_by("at")
    assert (first.reason, second.reason) == ("confirmation-required", "permitted")
    assert (second.at, second.context["time"]) == (clock.now, clock.now)
    assert first.request_id != second.request_id


@pytest.mark.clause("IAM-6", "an approval is bound to what was asked (create: the stored request)")
def test_alike_requests_are_asked_one_by_one(asking: Asking, pool: str):
    one, other = request(pool), request(pool)
    assert one | {"idempotencyKey": ""} == other | {"idempotencyKey": ""}
    asking.approved(one)
    waiting = must_confirm(asking.create(other))
    assert asking.shown(waiting["confirmationId"])["state"] == "pending"
    assert asking.create(one).data["reservation"]["state"] == "placed"
    assert must_confirm(asking.create(other)) == waiting


@pytest.mark.clause("IAM-6", "an approval counts only in a session of its own delegation")
@pytest.mark.parametrize("confirm", [(CREATE,), ()])
def test_another_delegation(asking: Asking, pool: str, confirm: tuple[str, ...]):
    asked = request(pool)
    first = asking.approved(asked)
    other = asking.renewed(confirm=confirm)
    if confirm:
        second = must_confirm(other.create(asked))
        assert second["confirmationId"] != first["confirmationId"]
        assert stored(first["confirmationId"]).state == "void"
    else:
        # It needs none, so it uses none.
        assert other.create(asked).data["reservation"]["state"] == "placed"
        assert stored(first["confirmationId"]).state == "approved"


@pytest.mark.clause("CRE-8", "refused is refused, also where another delegation would need no confirmation")
def test_another_delegation_after_a_refusal(asking: Asking, pool: str):
    asked = request(pool)
    asking.decide(must_confirm(asking.create(asked))["confirmationId"], approve=False)
    asking.renewed(confirm=()).create(asked).refused("ACCESS_DENIED")
    assert Reservation.objects.get().state == "denied"


@pytest.mark.clause("IAM-6", "fails if the estimated cost has risen; a retry that finds it void asks anew itself")
@pytest.mark.parametrize(
    ("amount", "currency", "void"),
    [("2.01", "EUR", True), ("2.00", "USD", True), ("1.99", "EUR", False), ("2.00", "EUR", False), (None, "", False)],
)
def test_the_cost_has_changed(asking: Asking, priced: str, clock: Clock, amount: str | None, currency: str, void: bool):
    asked = request(priced, 2)
    first = asking.approved(asked)
    set_price(asking.world, priced, amount, currency)
    clock.advance(seconds=1)
    if not void:
        assert asking.create(asked).data["reservation"]["state"] == "placed"
        return
    second = must_confirm(asking.create(asked))
    assert second["confirmationId"] != first["confirmationId"]
    assert second["expiresAt"] == clock.now + HALF_HOUR
    assert stored(first["confirmationId"]).state == "void"
    shown = asking.shown(second["confirmationId"])
    assert (shown["estimatedCost"], shown["currency"]) == ("4.02" if amount == "2.01" else "4.00", currency)
    assert entries() == ["confirmation-required"] * 2
    asking.decide(second["confirmationId"])
    assert asking.create(asked).data["reservation"]["estimatedCost"] == shown["estimatedCost"]


@pytest.mark.clause("IAM-6", "where it is used up (as after QUOTA_EXCEEDED) the next retry asks anew")
def test_the_quota_is_exceeded_after_the_approval(asking: Asking, world: World):
    pool = world.offered_pool(quota=1)
    asked = request(pool, 2)
    first = asking.approved(asked)
    asking.create(asked).refused("QUOTA_EXCEEDED", requested=2, max=1)
    assert stored(first["confirmationId"]).state == "used"
    world.offer(pool, "acme", gpu=2)
    second = must_confirm(asking.create(asked))
    assert second["reservationId"] == first["reservationId"]
    assert second["confirmationId"] != first["confirmationId"]
    asking.decide(second["confirmationId"])
    assert asking.create(asked).data["reservation"]["state"] == "placed"
    assert entries() == ["confirmation-required"] * 2 + ["permitted"] * 2


@pytest.mark.clause("IAM-6", "an approval is no permit: policies are decided again")
def test_a_policy_forbids_after_the_approval(asking: Asking, pool: str):
    asked = request(pool)
    one = asking.approved(asked)["confirmationId"]
    assert asking.world.acme.api.iam("policies/put", name="none", text=FORBID).status == 200
    asking.create(asked).refused("ACCESS_DENIED")
    assert stored(one).state == "approved"
    assert Reservation.objects.get().state == "denied"


@pytest.mark.clause("IAM-6", "bound to the stored request: what stands in it changes, and it is asked anew")
def test_the_request_in_force_has_changed(asking: Asking, world: World):
    pool = world.offered_pool()
    world.offer(pool, "acme", maxPriority=20)
    asked = request(pool)
    first = asking.approved(asked)
    assert asking.shown(first["confirmationId"])["asked"]["priority"] == 20
    # It was approved with the priority that the offer allowed.
    world.offer(pool, "acme", maxPriority=80)
    second = must_confirm(asking.create(asked))
    assert asking.shown(second["confirmationId"])["asked"]["priority"] == 50
    assert stored(first["confirmationId"]).state == "void"


@pytest.mark.clause("CRE-10", "the retry of a draft whose fixed window has passed, after an approval too")
def test_the_window_has_passed_meanwhile(asking: Asking, pool: str, clock: Clock):
    asked = request(pool, endsAt=clock.now + 60_000)
    del asked["durationSeconds"]
    details = asking.approved(asked)
    clock.advance(seconds=60)
    assert "past" in asking.create(asked).refused_at("endsAt")
    assert draft(details["reservationId"]).state == "awaiting-confirmation"
    assert stored(details["confirmationId"]).state == "approved"


@pytest.mark.clause("CRE-2", "an agent and its person with the same key get two reservations")
def test_the_agent_and_its_person(asking: Asking, pool: str):
    asked = request(pool)
    made = [asking.made(asked)]
    made += [api("reservations/create", **asked).data["reservation"] for api in (asking.world.ann.api,)]
    assert len({one["id"] for one in made}) == 2
    assert [one["createdBy"] for one in made] == [
        {"principal": asking.world.ann.id, "agent": asking.agent.id},
        {"principal": asking.world.ann.id},
    ]
    assert [asking.create(asked).data["reservation"], asking.world.ann.api("reservations/create", **asked).data[
        "reservation"
    ]] == made  # fmt: skip


@pytest.mark.clause("LST-2", "mine in a session is the person's, whichever agent acted")
@pytest.mark.clause("LST-1", "drafts skipped: those that wait for a confirmation too")
def test_lists_and_gets(asking: Asking, pool: str, clock: Clock):
    world = asking.world
    made = asking.made(request(pool))
    clock.advance(milliseconds=1)
    own = world.ann.api("reservations/create", **request(pool)).data["reservation"]
    waiting = must_confirm(asking.create(request(pool)))["reservationId"]
    other = world.session(world.agent(world.ann, "second"), world.ann)
    for api in (asking.session, world.ann.api, other):
        found = api("reservations/list").data["reservations"]
        assert [(one["id"], one["createdBy"]) for one in found] == [
            (own["id"], own["createdBy"]), (made["id"], made["createdBy"]),
        ]  # fmt: skip
        got = api("reservations/get", reservationId=made["id"]).data["reservation"]
        assert got["createdBy"] == {"principal": world.ann.id, "agent": asking.agent.id}
        api("reservations/get", reservationId=waiting).refused("NOT_FOUND")
    world.ann.api("reservations/list", cursor=waiting).refused_at("cursor")


@pytest.mark.clause("REL-1", "awaiting-confirmation: INVALID_STATE")
@pytest.mark.clause("CAN-1", "awaiting-confirmation: NOT_FOUND")
@pytest.mark.clause("EXT-1", "awaiting-confirmation: INVALID_STATE")
@pytest.mark.clause("REN-1", "awaiting-confirmation: INVALID_STATE")
@pytest.mark.clause("GET-1", "in any draft state NOT_FOUND")
def test_methods_on_what_waits(asking: Asking, pool: str):
    one = must_confirm(asking.create(request(pool, leaseSeconds=60)))["reservationId"]
    before = Reservation.objects.values().get()
    for api in (asking.session, asking.world.ann.api):
        asked: tuple[tuple[str, dict[str, Any]], ...] = (("release", {}), ("renew", {}), ("extend", {"by": 1000}))
        for method, fields in asked:
            error = api(f"reservations/{method}", reservationId=one, **fields)
            error.refused("INVALID_STATE", state="awaiting-confirmation", reservationId=one)
        for method in ("get", "cancel"):
            api(f"reservations/{method}", reservationId=one).refused("NOT_FOUND")
    assert Reservation.objects.values().get() == before


@pytest.mark.clause("CRE-19", "it opens no confirmation, and neither reads nor claims the key")
def test_a_dry_run(asking: Asking, pool: str, left: Left):
    asked = request(pool)
    for _ in range(2):
        found = asking.create(asked | {"dryRun": True}).data["dryRun"]
        refusal = found.pop("refusal")
        assert found == {"decision": "deny", "outcome": "refused"}
        assert refusal["code"] == "CONFIRMATION_REQUIRED"
        assert "details" not in refusal
    assert left() == {"decisions": 2}
    assert {(row.reason, row.context.get("confirmationId"), row.context["dryRun"]) for row in Decision.objects.filter(
        action=CREATE
    )} == {("confirmation-required", None, True)}  # fmt: skip
    # An approval of the key is neither looked at nor used.
    one = asking.approved(asked)["confirmationId"]
    assert asking.create(asked | {"dryRun": True}).data["dryRun"]["refusal"]["code"] == "CONFIRMATION_REQUIRED"
    assert stored(one).state == "approved"
    assert asking.renewed(confirm=()).create(asked | {"dryRun": True}).data["dryRun"]["decision"] == "allow"


@pytest.mark.clause("IAM-5", "confirm gates creates alone where it says so; patterns cover them")
@pytest.mark.parametrize(("confirm", "gated"), [(("compute:*",), True), (("compute:reservations:extend",), False)])
def test_what_the_delegation_wants_confirmed(asking: Asking, pool: str, confirm: tuple[str, ...], gated: bool):
    answer = asking.renewed(confirm=confirm).create(request(pool))
    assert (answer.status == 403) is gated
    # The agent in its own name, and the person, confirm nothing.
    assert asking.world.ann.api("reservations/create", **request(pool)).status == 200


@pytest.mark.clause("CRE-14", "wait holds the answer as for any other, once it is approved")
def test_it_waits_for_capacity(asking: Asking, pool: str):
    asking.world.gil.api("reservations/create", **request(pool, 8)).data  # noqa: B018
    asked = request(pool, 8, wait={"timeoutMs": 1000})
    one = asking.approved(asked)
    made = asking.create(asked).data["reservation"]
    assert (made["id"], made["state"]) == (one["reservationId"], "pending")
    assert event_types(made["id"]) == ["awaiting-confirmation", "pending"]
    assert made["requested"] == {"durationSeconds": HOUR // 1000}
