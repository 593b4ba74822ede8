"""kill -9 of a worker at every step of a create that a person has to confirm: asked once, used once, admitted once."""

from typing import Any

import pytest

from tests.fire.installation import CRASHING, BurningInstallation
from tests.fire.test_kills import ADMISSION, made, one_worker_dies
from tests.journeys.installation import Caller
from tests.support.world import HOUR, request

pytestmark = pytest.mark.slow

CREATE = "compute:reservations:create"
GATE = "iam.operations.decisions.pass_gate"


@pytest.fixture(autouse=True)
def _parts(fire: BurningInstallation) -> None:
    fire.run(CRASHING)


@pytest.fixture
def ann(fire: BurningInstallation) -> Caller:
    return fire.caller("acme")


@pytest.fixture
def session(fire: BurningInstallation, ann: Caller) -> Caller:
    """An agent of ann's, in a session in which she confirms creates."""
    agent = ann("agents/create", service="iam", name="robot")["agent"]["id"]
    key = fire.signed_in("acme", ann("keys/create", service="iam", principalId=agent)["token"])
    granted = {"agentId": agent, "scopes": ["compute:*"], "confirm": [CREATE]}
    delegation = ann("delegations/grant", service="iam", **granted)["delegation"]["id"]
    return fire.signed_in("acme", key("delegations/assume", service="iam", delegationId=delegation)["token"])


def ask(session: Caller, asked: dict[str, Any]) -> dict[str, Any]:
    answer = session.post("reservations/create", **asked)
    assert answer.status_code == 403, answer.text
    error = answer.json()["error"]
    assert error["code"] == "CONFIRMATION_REQUIRED", error
    return dict(error["details"])


def confirmations(fire: BurningInstallation, reservation_id: str) -> list[str]:
    found = fire.rows("SELECT state FROM iam_confirmation WHERE resource_id = %s", reservation_id)
    return [state for (state,) in found]


@pytest.mark.clause("CRE-8", "a worker killed while a person is asked: they are asked once")
@pytest.mark.parametrize(
    "step",
    [
        f"after {GATE}",
        f"after {ADMISSION}.decide_many",
        "after reservations.operations.state.emit",  # all is written, nothing is committed
        f"after {ADMISSION}.decide_drafts",  # it is
    ],
)
def test_killed_while_asking(fire: BurningInstallation, session: Caller, step: str):
    asked = request(fire.pool(), 2, startsAt=fire.now() + HOUR)
    with one_worker_dies(fire, step):
        details = ask(session, asked)
    found = fire.story_of(details["reservationId"])
    once = {"decisions": 1, "charges": 0, "charged": 0, "bookings": 0, "events": ["awaiting-confirmation"]}
    assert found == {"state": "awaiting-confirmation"} | once
    assert confirmations(fire, details["reservationId"]) == ["pending"]
    assert ask(session, asked) == details


@pytest.mark.clause("IAM-6", "a worker killed with an approval: it is used once, by the decision that counts")
@pytest.mark.clause("CRE-1", "a worker killed at every step after an approval: nothing is lost or charged twice")
@pytest.mark.parametrize(
    "step",
    [
        f"after {GATE}",
        f"after {ADMISSION}.decide_many",
        f"after {ADMISSION}.decide_drafts",
        f"after {ADMISSION}.charge_each",
        f"after {ADMISSION}.admit_decided",
    ],
)
def test_killed_with_an_approval(fire: BurningInstallation, ann: Caller, session: Caller, step: str):
    asked = request(fire.pool(), 2, startsAt=fire.now() + HOUR)
    details = ask(session, asked)
    ann("confirmations/decide", service="iam", confirmationId=details["confirmationId"], approve=True)
    with one_worker_dies(fire, step):
        answer = made(session.post("reservations/create", **asked))
    assert (answer["id"], answer["state"]) == (details["reservationId"], "placed")
    once = {"decisions": 2, "charges": 1, "charged": 1, "bookings": 1, "events": ["awaiting-confirmation", "placed"]}
    assert fire.story_of(answer["id"]) == {"state": "placed"} | once
    assert confirmations(fire, answer["id"]) == ["used"]
    assert made(session.post("reservations/create", **asked)) == answer
