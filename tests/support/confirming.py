"""An agent in a session that has to ask its person, and what came of it."""

from dataclasses import dataclass
from typing import Any

from iam.models import Confirmation, Decision
from reservations.models import Reservation
from tests.support.api import Answer, Api
from tests.support.world import Person, Session, World

CREATE = "compute:reservations:create"
EXTEND = "compute:reservations:extend"
HALF_HOUR = 30 * 60_000
BOTH = (CREATE, EXTEND)
# As long as both times of a confirmation together.
AN_HOUR = {"expiresInSeconds": 3600}


@dataclass
class Asking:
    """Ann's agent, in a session in which she wants to confirm creates and extensions."""

    world: World
    agent: Person
    session: Session

    def create(self, asked: dict[str, Any]) -> Answer:
        return self.session("reservations/create", **asked)

    def extend(self, reservation_id: str, **asked: Any) -> Answer:
        return self.session("reservations/extend", reservationId=reservation_id, **asked)

    def decide(self, confirmation_id: str, *, approve: bool = True) -> dict[str, Any]:
        """Ann's answer, as she is shown it."""
        return dict(answer_of(self.world.ann.api, confirmation_id, approve=approve).data["confirmation"])

    def approved(self, asked: dict[str, Any]) -> dict[str, Any]:
        """The details of a create that ann has approved since."""
        details = must_confirm(self.create(asked))
        assert self.decide(details["confirmationId"])["state"] == "approved"
        return details

    def made(self, asked: dict[str, Any]) -> dict[str, Any]:
        """A reservation that ann has approved."""
        self.approved(asked)
        return dict(self.create(asked).data["reservation"])

    def renewed(self, *, confirm: tuple[str, ...] = BOTH) -> "Asking":
        """The agent with another delegation of ann's."""
        session = self.world.session(self.agent, self.world.ann, confirm=confirm, assume=AN_HOUR)
        return Asking(self.world, self.agent, session)

    def shown(self, confirmation_id: str) -> dict[str, Any]:
        """A confirmation as ann sees it."""
        found = self.world.ann.api.iam("confirmations/list", limit=200).data["confirmations"]
        return dict(next(one for one in found if one["id"] == confirmation_id))


def asking_agent(world: World) -> Asking:
    agent = world.agent(world.ann)
    return Asking(world, agent, world.session(agent, world.ann, confirm=BOTH, assume=AN_HOUR))


def answer_of(api: Api, confirmation_id: str, *, approve: bool = True, **fields: Any) -> Answer:
    """Somebody's answer to a confirmation."""
    return api.iam("confirmations/decide", confirmationId=confirmation_id, approve=approve, **fields)


def must_confirm(answer: Answer) -> dict[str, Any]:
    """The details of a call that lacks a confirmation."""
    error = answer.refused("CONFIRMATION_REQUIRED")
    assert answer.status == 403
    assert "retryAfterSeconds" not in error
    assert set(error["details"]) == {"reservationId", "confirmationId", "expiresAt"}
    return dict(error["details"])


def entries(action: str = CREATE, **wanted: Any) -> list[str]:
    """The reasons of what was decided on such an action, in any order."""
    return sorted(Decision.objects.filter(action=action, **wanted).values_list("reason", flat=True))


def stored(confirmation_id: str) -> Confirmation:
    return Confirmation.objects.get(id=confirmation_id)


def draft(reservation_id: str) -> Reservation:
    return Reservation.objects.get(id=reservation_id)
