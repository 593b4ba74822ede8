"""A small model of people and their agents: who may call, what must be confirmed, and what became of each question.

Read from the contract (CRE-8, EXT-7, IAM-5, IAM-6, OPS-4), in the plainest way: everything that was ever granted, asked
and answered is kept, and what it amounts to is worked out anew at each look.
"""

from dataclasses import dataclass, field
from decimal import Decimal

HALF_HOUR = 30 * 60_000
CREATE = "compute:reservations:create"
EXTEND = "compute:reservations:extend"


@dataclass
class User:
    active: bool = True


@dataclass
class Key:
    ends_at: int


@dataclass
class Agent:
    """``suspended_by`` is empty while it is active. ``ended_once``: it was suspended with all that it had reserved."""

    sponsor: User
    keys: list[Key] = field(default_factory=list)
    suspended_by: str = ""
    ending: bool = False
    ended_once: bool = False

    @property
    def works(self) -> bool:
        return not self.suspended_by and self.sponsor.active


@dataclass
class Delegation:
    user: User
    agent: Agent
    confirm: frozenset[str]
    expires_at: int
    revoked_at: int | None = None

    @property
    def ends_at(self) -> int:
        return self.expires_at if self.revoked_at is None else min(self.revoked_at, self.expires_at)

    def status(self, now: int) -> str:
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at <= now else "active"


@dataclass
class Session:
    """``dead``: its agent or its user was suspended since it was assumed."""

    delegation: Delegation
    key: Key
    expires_at: int
    dead: bool = False

    def works(self, now: int) -> bool:
        chain = self.delegation
        ends = min(self.expires_at, self.key.ends_at, chain.ends_at)
        return not self.dead and chain.user.active and chain.agent.works and now < ends


@dataclass
class Question:
    """What a person was asked: a create, or one new end of one reservation. ``written`` is what was done to it."""

    delegation: Delegation
    about: tuple[object, ...]
    cost: Decimal
    expires_at: int
    written: str = "pending"

    def state(self, now: int) -> str:
        ends_at = self.delegation.ends_at
        if self.written == "pending" and ends_at <= now and ends_at < self.expires_at:
            return "void"
        if self.written in ("pending", "approved") and self.expires_at <= now:
            return "lapsed"
        return self.written


@dataclass(frozen=True)
class Foreseen:
    """How a call ends: ``code`` is empty where nothing stands in its way; ``asks`` names the question that it is told
    to wait for, None for a new one; ``uses`` the approval that it uses up, ``voids`` what the new question replaces.
    ``reasons`` are the decisions that may be recorded for it."""

    code: str = ""
    reasons: tuple[str, ...] = ()
    asks: Question | None = None
    uses: Question | None = None
    voids: Question | None = None


ALLOWED = Foreseen(reasons=("permitted",))
ANEW = Foreseen("CONFIRMATION_REQUIRED", ("confirmation-required",))
UNAUTHENTICATED = Foreseen("UNAUTHENTICATED")


def create(question: Question | None, session: Session, *, cost: Decimal, stale: bool, now: int) -> Foreseen:
    """A create whose key has no reservation yet; ``question`` is the last one that was asked for the key."""
    state = question.state(now) if question else ""
    if question and (state in ("refused", "lapsed") or (state == "void" and question.expires_at <= now)):
        # The first call that finds it so may be the one that records it, or the tick was earlier.
        return Foreseen("ACCESS_DENIED", ("", "confirmation-refused"))
    if question and state == "pending":
        return Foreseen("CONFIRMATION_REQUIRED", asks=question)
    if stale:
        return Foreseen("INVALID_INPUT")
    if CREATE not in session.delegation.confirm:
        return ALLOWED
    if question and state == "approved":
        return _approved(question, session, cost)
    return ANEW


def extend(question: Question | None, session: Session, *, cost: Decimal, now: int) -> Foreseen:
    """An extension that nothing else is in the way of; ``question`` is the last about this end, of this delegation."""
    if EXTEND not in session.delegation.confirm:
        return ALLOWED
    state = question.state(now) if question else ""
    if question and state == "refused":
        return Foreseen("ACCESS_DENIED", ("confirmation-refused",))
    if question and state == "pending":
        return Foreseen("CONFIRMATION_REQUIRED", ("confirmation-required",), asks=question)
    if question and state == "approved":
        return _approved(question, session, cost)
    return ANEW


def _approved(question: Question, session: Session, cost: Decimal) -> Foreseen:
    if question.delegation is session.delegation and cost <= question.cost:
        return Foreseen(reasons=("permitted",), uses=question)
    return Foreseen("CONFIRMATION_REQUIRED", ("confirmation-required",), voids=question)
