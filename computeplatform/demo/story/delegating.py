"""What an agent may do in a person's name, and how it is stopped."""

from computeplatform.demo.client import Caller, Refused
from computeplatform.demo.story.scene import Scene, expect
from computeplatform.demo.telling import state

SCOPES = ["compute:pools:read", "compute:reservations:*"]
CONFIRM = ["compute:reservations:create"]


def an_agent_asks_first(scene: Scene) -> None:
    """ann lets an agent reserve in her name, and wants to be asked; she stops it, and what it has reserved ends."""
    scene.teller.chapter("An agent that asks first")
    scene.teller.call(scene.ann.name, "agents/create, keys/create", "night-shift")
    agent = scene.ann.iam("agents/create", name="night-shift")["agent"]
    scene.names[agent["id"]] = "night-shift"
    key = scene.ann.iam("keys/create", principalId=agent["id"])["token"]
    session = _delegated(scene, agent["id"], Caller(scene.api, "night-shift", scene.ann.tenant_id, key))
    asked = scene.gpus(2, binding="node")
    before = scene.quota(scene.ann)
    question = scene.refused(session, "sweep-2", "CONFIRMATION_REQUIRED", asked).error["details"]
    expect(scene.quota(scene.ann) == before, "what waits for a confirmation was charged")
    _approve(scene, question["confirmationId"])
    scene.teller.say("The same request, with the same key, goes on where it stopped:")
    made = scene.create(session, "sweep-2", asked)
    expect(made["id"] == question["reservationId"], "the approved request became another reservation")
    expect(made["createdBy"] == {"principal": scene.ann_id, "agent": agent["id"]}, f"made by {made['createdBy']}")
    scene.follow(scene.ann, made, "active")
    _stopped(scene, agent["id"], session)
    ended = scene.follow(scene.ann, made, "released")["reservation"]
    expect(ended["reason"] == "agent-suspended", f"it ended for the reason {ended['reason']}")
    scene.forget(made)
    scene.expected[made["id"]] = ["awaiting-confirmation", "placed", "binding", "active", "released"]


def _delegated(scene: Scene, agent_id: str, agent: Caller) -> Caller:
    scene.teller.call(
        scene.ann.name, "delegations/grant", f"{', '.join(SCOPES)}; to be confirmed: {', '.join(CONFIRM)}"
    )
    granted = scene.ann.iam("delegations/grant", agentId=agent_id, scopes=SCOPES, confirm=CONFIRM)["delegation"]
    scene.teller.call(agent.name, "delegations/assume", "a session in ann's name")
    token = agent.iam("delegations/assume", delegationId=granted["id"])["token"]
    session = Caller(scene.api, "night-shift for ann", agent.tenant_id, token)
    seen = session.whoami()
    expect(seen["principal"]["id"] == scene.ann_id, f"the session is {seen['principal']}")
    expect(seen["agent"]["id"] == agent_id, f"its agent is {seen['agent']}")
    return session


def _approve(scene: Scene, confirmation_id: str) -> None:
    [open_question] = scene.ann.iam("confirmations/list", state="pending")["confirmations"]
    expect(open_question["id"] == confirmation_id, f"ann was asked {open_question}")
    cost = f"{open_question['estimatedCost']} {open_question['currency']}".strip()
    scene.teller.call(scene.ann.name, "confirmations/decide", f"approve; it is estimated at {cost}")
    decided = scene.ann.iam("confirmations/decide", confirmationId=confirmation_id, approve=True)["confirmation"]
    scene.teller.answer(state(decided["state"]))


def _stopped(scene: Scene, agent_id: str, session: Caller) -> None:
    scene.teller.say("ann has seen enough:")
    scene.teller.call(scene.ann.name, "agents/suspend", "night-shift, endReservations")
    scene.ann.iam("agents/suspend", agentId=agent_id, reason="enough", endReservations=True)
    refusal: Refused = session.refused("pools/list", "UNAUTHENTICATED")
    scene.teller.answer(f"its next call: [bold red]{refusal.status} UNAUTHENTICATED[/]")
