"""What operators do: asked first, decided by IAM, done by the operations, in the audit log under their name."""

from typing import Any

import pytest
from django.contrib.admin.utils import quote
from django.contrib.auth import get_user_model
from django.contrib.messages import get_messages
from django.test import Client
from django.urls import reverse

from computeplatform.models import Event
from fleet.models import Node
from fleet.operations.taints import set_taint
from iam.models import Decision
from quotas.models import Quota
from reservations.models import Reservation
from tests.platform.conftest import BY, administrator, sign_in
from tests.support.api import settle
from tests.support.world import World, request

LIST = "/admin/reservations/reservation/"


@pytest.fixture
def running(world: World) -> str:
    """An active reservation of acme."""
    pool_id = world.offered_pool()
    made = world.ann.api("reservations/create", **request(pool_id, 4)).data["reservation"]["id"]
    settle()
    return made


def waiting(world: World, running: str) -> str:
    """A pending one beside it, which never fits."""
    pool_id = Reservation.objects.get(id=running).pool_id
    return world.bob.api("reservations/create", **request(pool_id, 60)).data["reservation"]["id"]


def address(row_id: str, act: str) -> str:
    page = "fleet_node" if row_id.startswith("node_") else "reservations_reservation"
    return reverse(f"admin:{page}_{act}", args=[quote(row_id)])


def confirm(client: Client, row_id: str, act: str, reason: str = "the rack burns") -> Any:
    return client.post(address(row_id, act), {"confirmed": "yes", "reason": reason})


def said(answer: Any) -> list[str]:
    """What the operator is told of this request, on the next page."""
    storage: Any = get_messages(answer.wsgi_request)
    return [f"{message.level_tag}: {message.message}" for message in storage._queued_messages]


def state_of(row_id: str) -> str:
    return Reservation.objects.get(id=row_id).state


def acts() -> list[Decision]:
    """The audit log's entries of what operators have done or tried."""
    return list(Decision.objects.filter(context__has_key="operator").order_by("at", "id"))


@pytest.mark.clause("OPS-2", "destructive actions ask first")
@pytest.mark.parametrize("act", ["release", "cancel"])
def test_it_asks_first_and_says_what_will_happen(operator, running, act):
    answer = operator.get(address(running, act))
    shown = answer.content.decode()
    assert answer.status_code == 200
    assert running in shown
    words = {"release": "its workloads lose 4 gpu", "cancel": "it has started; release ends it"}
    assert words[act] in shown
    for asked in ({}, {"confirmed": "yes"}, {"confirmed": "yes", "reason": "  "}, {"reason": "not confirmed"}):
        again = operator.post(address(running, act), asked)
        assert again.status_code == 200
        assert ("This field is required" in again.content.decode()) == ("confirmed" in asked)
    assert state_of(running) == "active"
    assert acts() == []


@pytest.mark.parametrize("reason", ["x" * 129, "two\nlines", "nul\x00"])
def test_a_reason_is_one_short_line(operator, running, reason):
    answer = confirm(operator, running, "release", reason)
    assert answer.status_code == 200
    assert "errors" in answer.content.decode()
    assert state_of(running) == "active"


@pytest.mark.clause("OPS-1", "changes go through the operations, in the audit log under the operator's name")
def test_release_ends_it_and_leaves_a_trail(world, operator, running):
    answer = confirm(operator, running, "release")
    assert answer.headers["Location"] == address(running, "change")
    assert said(answer) == [f"success: {running}: released"]
    seen = world.ann.api("reservations/get", reservationId=running).data["reservation"]
    assert (seen["state"], seen["reason"]) == ("released", "release")
    assert Quota.objects.get(tenant_id="acme", resource="gpu").used == 0

    (entry,) = acts()
    assert (entry.tenant_id, entry.outcome, entry.reason) == ("platform", "allow", "permitted")
    assert (entry.action, entry.resource_type) == ("compute:fleet:admin", "compute-fleet")
    assert entry.context["operator"] == {
        "username": "op",
        "method": "reservations/release",
        "subject": {"type": "compute-reservation", "id": running, "tenantId": "acme"},
        "reason": "the rack burns",
    }
    event = Event.objects.get(subject_id=running, type="reservation.released")
    assert event.actor_id == entry.principal_id
    assert event.request_id == entry.request_id == answer.headers["X-Request-Id"]
    assert "the rack burns" not in str(event.data)

    found = operator.get(f"/admin/iam/decision/?q={running}").content.decode()
    assert "reservations/release <a href" in found
    assert (
        "op: the rack burns"
        in operator.get(reverse("admin:iam_decision_change", args=[quote(entry.id)])).content.decode()
    )


def test_policies_can_be_tried_on_what_operators_did(world, operator, running):
    confirm(operator, running, "release")
    text = 'forbid (principal, action == Compute::Action::"compute:fleet:admin", resource);'
    tried = world.admin.iam("policies/test", name="freeze", text=text, last=1000).data
    (entry,) = acts()
    assert [one["after"] for one in tried["changed"] if one["decisionId"] == entry.id] == ["deny"]


def test_cancel_is_refused_where_the_api_refuses_it(world, operator, running):
    answer = confirm(operator, running, "cancel")
    (told,) = said(answer)
    assert told.startswith(
        f"error: {running}: The reservation is active; only a pending or placed one can be cancelled"
    )
    assert state_of(running) == "active"
    # It was decided, as a call of the API would have been, and then could not be done.
    assert [entry.context["operator"]["method"] for entry in acts()] == ["reservations/cancel"]


@pytest.mark.clause("OPS-1", "several at once, refusals told one by one")
def test_several_at_once(world, operator, running):
    pending = waiting(world, running)
    chosen = {"action": "cancel_selected", "_selected_action": [running, pending]}
    asked = operator.post(LIST, chosen | {"index": "0"})
    shown = asked.content.decode()
    assert asked.status_code == 200
    assert "Cancel all 2" in " ".join(shown.split())
    assert "is cancelled; its quota is given back" in shown
    assert state_of(pending) == "pending"

    done = operator.post(LIST, chosen | {"confirmed": "yes", "reason": "no longer needed"})
    assert done.headers["Location"] == LIST
    told = said(done)
    assert f"success: {pending}: cancelled" in told
    assert [words for words in told if words.startswith(f"error: {running}: The reservation is active")]
    assert (state_of(pending), state_of(running)) == ("cancelled", "active")
    assert {entry.context["operator"]["subject"]["id"] for entry in acts()} == {running, pending}

    again = operator.post(LIST, chosen | {"action": "release_selected", "confirmed": "yes", "reason": "all of it"})
    assert set(said(again)) == {f"success: {pending}: cancelled", f"success: {running}: released"}


def test_what_was_named_is_acted_on_whatever_the_filter_hides_by_then(world, operator, running):
    pending = waiting(world, running)
    chosen = {"action": "release_selected", "_selected_action": [pending], "confirmed": "yes", "reason": "x"}
    # The list was filtered by a state that the row has no longer, and its page is posted to again.
    operator.post(f"{LIST}?state=placed", chosen)
    assert state_of(pending) == "cancelled"


def test_no_more_than_a_hundred_at_once(world, operator, running):
    chosen = {"action": "release_selected", "_selected_action": [running, *(f"res_{n}" for n in range(100))]}
    answer = operator.post(LIST, chosen | {"confirmed": "yes", "reason": "x"})
    assert said(answer) == ["error: Choose at most 100 at once."]
    assert state_of(running) == "active"


@pytest.mark.clause("OPS-1", "cordon and uncordon")
def test_cordon_and_uncordon(world, operator, running):
    node = world.nodes[0]
    assert "takes no new bookings" in operator.get(address(node.id, "cordon")).content.decode()
    assert not Node.objects.get(id=node.id).cordoned
    (told,) = said(confirm(operator, node.id, "cordon", "bad fan"))
    assert told.endswith(": cordoned")
    seen = world.admin("nodes/get", nodeId=node.id).data["node"]
    assert (seen["cordoned"], seen["cordonReason"]) == (True, "bad fan")
    listed = {"action": "uncordon_selected", "_selected_action": [node.id], "confirmed": "yes", "reason": "new fan"}
    operator.post("/admin/fleet/node/", listed)
    assert not world.admin("nodes/get", nodeId=node.id).data["node"]["cordoned"]
    done = {(entry.context["operator"]["method"], entry.context["operator"]["reason"]) for entry in acts()}
    assert done == {("nodes/cordon", "bad fan"), ("nodes/uncordon", "new fan")}
    actors = Event.objects.filter(subject_id=node.id, type__in=["node.cordoned", "node.uncordoned"])
    assert {event.actor_id for event in actors} == {acts()[0].principal_id}


@pytest.mark.clause("REL-3", "an operator clears KubernetesReleaseStuck with a reason, in the audit log")
@pytest.mark.clause("REC-7", "an operator clears BindTimedOut with a reason")
def test_clearing_taints_of_holds(world, operator, running, clock):
    node = world.nodes[0]
    for key in ("BindTimedOut", "KubernetesReleaseStuck"):
        set_taint([node.id], key, by=BY, now=clock.now, subject=running)
    asked = operator.get(address(node.id, "clear_taints")).content.decode()
    assert "loses BindTimedOut, KubernetesReleaseStuck" in asked
    assert len(world.admin("nodes/get", nodeId=node.id).data["node"]["taints"]) == 2, "nothing before it is confirmed"
    confirm(operator, node.id, "clear_taints", "the pods are gone, I looked")
    assert world.admin("nodes/get", nodeId=node.id).data["node"]["taints"] == []
    (entry,) = acts()
    assert entry.context["operator"]["reason"] == "the pods are gone, I looked"
    cleared = Event.objects.filter(subject_id=node.id, type="node.untainted")
    assert {(event.actor_id, event.reason) for event in cleared} == {
        (entry.principal_id, "the pods are gone, I looked")
    }


@pytest.mark.clause("OPS-1", "an operator without a principal looks and does not act")
def test_an_onlooker_cannot_act(world, onlooker, running):
    shown = onlooker.get(address(running, "change")).content.decode()
    assert "Release" not in shown
    listed = onlooker.get(LIST).content.decode()
    assert "release_selected" not in listed
    for row_id, act in ((running, "release"), (running, "cancel"), (world.nodes[0].id, "cordon")):
        assert onlooker.get(address(row_id, act)).status_code == 403
        assert confirm(onlooker, row_id, act).status_code == 403
    chosen = {"action": "release_selected", "_selected_action": [running], "confirmed": "yes", "reason": "x"}
    onlooker.post(LIST, chosen)
    assert state_of(running) == "active"
    assert not Node.objects.get(id=world.nodes[0].id).cordoned
    assert acts() == []


@pytest.mark.clause("OPS-1", "IAM decides on operators too")
@pytest.mark.parametrize("why", ["no role", "a policy"])
def test_iam_refuses_and_writes_it_down(world, running, clock, why):
    who = administrator(world, "tenant-admin") if why == "no role" else administrator(world)
    if why == "a policy":
        text = 'forbid (principal, action == Compute::Action::"compute:fleet:admin", resource);'
        world.admin.iam("policies/put", name="freeze", text=text)
    operator = sign_in("op", who, clock.now)
    for row_id, act in ((running, "release"), (world.nodes[0].id, "cordon")):
        answer = confirm(operator, row_id, act)
        (told,) = said(answer)
        assert told.startswith("error: ")
        assert "Access denied" in told
        assert answer.headers["X-Request-Id"] in told
    assert state_of(running) == "active"
    assert not Node.objects.get(id=world.nodes[0].id).cordoned
    reasons = {"no role": "no-permit", "a policy": "forbidden"}
    assert [(e.principal_id, e.outcome, e.reason) for e in acts()] == [(who, "deny", reasons[why])] * 2


@pytest.mark.parametrize("change", ["principal suspended", "operator inactive"])
def test_who_is_suspended_cannot_act(world, running, clock, change):
    who = administrator(world)
    operator = sign_in("op", who, clock.now)
    if change == "principal suspended":
        world.admin.iam("principals/suspend", principalId=who).data  # noqa: B018
        (told,) = said(confirm(operator, running, "release"))
        assert "stands for no active user of the platform" in told
    else:
        get_user_model().objects.filter(username="op").update(is_active=False)
        assert confirm(operator, running, "release").status_code == 302
    assert state_of(running) == "active"
    assert acts() == []


def test_another_site_cannot_act_in_the_operators_name(world, running, clock):
    operator = sign_in("op", administrator(world), clock.now, enforce_csrf_checks=True)
    assert confirm(operator, running, "release").status_code == 403
    assert state_of(running) == "active"


def test_a_row_that_is_not_there(operator, world):
    assert operator.get(address("res_nothing", "release")).status_code == 404
    assert confirm(operator, "res_nothing", "release").status_code == 404


def test_a_fault_is_told_of_its_row_and_stops_no_other(world, operator, running, monkeypatch):
    pending = waiting(world, running)
    world.acme.api.iam("principals/list").data  # noqa: B018
    Reservation.objects.filter(id=pending).update(conditions={"broken": True})
    chosen = {"action": "release_selected", "_selected_action": [running, pending], "confirmed": "yes", "reason": "x"}
    told = said(operator.post(LIST, chosen))
    assert f"success: {running}: released" in told
    assert [words for words in told if words.startswith(f"error: {pending}: The platform failed")]
    assert (state_of(running), state_of(pending)) == ("released", "pending")
    Reservation.objects.filter(id=pending).update(conditions=[])
