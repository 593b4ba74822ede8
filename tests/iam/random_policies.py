"""Random policies about reservations, people, agents and sessions: every one parses and validates."""

from typing import Any

from hypothesis import strategies as st

from iam.contracts import PolicyInfo
from iam.domain.scanner import scan

USER, AGENT = "usr_1", "agt_1"
ACTIONS = ("compute:reservations:create", "compute:reservations:extend", "compute:reservations:release")

_WHO = (
    "principal",
    "principal is Compute::User",
    "principal is Compute::Agent",
    f'principal == Compute::User::"{USER}"',
    'principal in Compute::Role::"reserver"',
    'principal in Compute::Group::"acme/research"',
    'principal in Compute::Tenant::"acme"',
)
_WHAT = (
    f"action in [{', '.join(f'{chr(34)}{a}{chr(34)}' for a in ACTIONS)}]".replace(
        '"compute', 'Compute::Action::"compute'
    ),
    *(f'action == Compute::Action::"{action}"' for action in ACTIONS),
)
_ON = (
    "resource",
    "resource is Compute::Reservation",
    'resource == Compute::Reservation::"res_1"',
    'resource in Compute::Tenant::"acme"',
)
_ATOMS = (
    "context.delegated",
    'context["delegated"]',
    'context.agentId == ""',
    f'context.agentId == "{AGENT}"',
    'context has sourceIp && context.sourceIp.isInRange(ip("192.0.2.0/24"))',
    "{of: context}.of.delegated",
    f'resource.creatorAgentId == "{AGENT}"',
    'resource.creatorAgentId == ""',
    "resource.creatorId == principal.id",
    'resource.region == "eu-north"',
    'resource.estimatedCost.lessThan(decimal("100.0"))',
    'principal in Compute::Role::"reserver"',
    "principal is Compute::User",
    "resource.gpuCount <= 8",
    "(if context.delegated then resource.nodes else resource.gpuCount) > 2",
    # Overflows for most counts: an error, which denies.
    "resource.gpuCount + 9223372036854775800 > 0",
    "true",
    "false",
)


def _joined(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    two = st.tuples(parts, st.sampled_from(["&&", "||"]), parts).map(lambda t: f"({t[0]} {t[1]} {t[2]})")
    return two | parts.map(lambda part: f"!({part})")


CONDITIONS = st.recursive(st.sampled_from(_ATOMS).map(lambda atom: f"({atom})"), _joined, max_leaves=4)


def statements(effects: tuple[str, ...] = ("permit", "forbid")) -> st.SearchStrategy[str]:
    """One statement of one of these effects."""
    parts = (st.sampled_from(effects), st.sampled_from(_WHO), st.sampled_from(_WHAT), st.sampled_from(_ON))
    body = st.tuples(*parts, st.sampled_from(["when", "unless"]), CONDITIONS)
    return body.map(lambda b: f"{b[0]} ({b[1]}, {b[2]}, {b[3]}) {b[4]} {{ {b[5]} }};")


TEXTS = st.lists(statements(), min_size=1, max_size=4).map("\n".join)


def policy(text: str, name: str = "random") -> PolicyInfo:
    """The text as a stored policy."""
    scanned = scan(text)
    made: dict[str, Any] = {"created_at": 0, "created_by": "", "updated_at": 0, "updated_by": ""}
    named = tuple({"id": statement.id} for statement in scanned.statements)
    return PolicyInfo(tenant_id="acme", name=name, version=1, text=text, statements=named, words=scanned.size, **made)
