"""What bounds a permit: the rule for delegated sessions, and the ceilings (IAM-1, IAM-5; IAM-API §4)."""

from collections.abc import Iterable, Iterator

from iam.contracts import Subject
from iam.domain.patterns import permits

# What an agent never does in a person's name, whatever permits say: it would outlast or widen what it was given.
FORBIDDEN_IN_SESSIONS = frozenset(
    {
        "iam:keys:create",
        "iam:keys:rotate",
        "iam:policies:put",
        "iam:policies:delete",
        "iam:principals:create",
        "iam:principals:update",
        "iam:principals:resume",
        "iam:agents:create",
        "iam:agents:resume",
        "iam:delegations:grant",
        "iam:delegations:assume",
        "iam:confirmations:decide",
    }
)


# What a person can want to confirm (IAM-5).
GATED = ("compute:reservations:create", "compute:reservations:extend")


def breaks_session_rule(*, agent_id: str, action: str) -> bool:
    """Whether the call comes in a delegated session (``agent_id`` is then the agent) and never may."""
    return bool(agent_id) and action in FORBIDDEN_IN_SESSIONS


def is_gated(confirm: Iterable[str], action: str) -> bool:
    """Whether a user who wants to confirm such calls (``confirm``, of the delegation) is asked about this action."""
    return action in GATED and permits(confirm, action)


def ceilings(subject: Subject, action: str) -> Iterator[tuple[str, bool]]:
    """Each ceiling that stands over the subject, in the order of IAM-API §9, and whether it permits the action."""
    yield "key-scope", permits(subject.scopes, action)
    if subject.kind == "agent" or subject.delegated:
        yield "boundary", permits(subject.boundary, action)
    if subject.delegated:
        yield "delegation-scope", permits(subject.session_scopes, action)


def first_refusal(subject: Subject, action: str) -> str | None:
    """The first ceiling that does not permit the action; None if all do."""
    return next((name for name, permitted in ceilings(subject, action) if not permitted), None)
