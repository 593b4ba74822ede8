"""What holds of any policies and any ceilings: nothing that is added to refuse ever widens, and no session ever may
what its user may not (IAM-1)."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from computeplatform.api.calls import CallContext, Resource
from iam.adapters.validation import check_text
from iam.catalogue import actions_by_name
from iam.contracts import Subject
from iam.queries.compiled import compile_beside_builtin
from iam.queries.judging import Judgement, judge
from tests.iam.random_policies import ACTIONS, AGENT, TEXTS, USER, policy, statements
from tests.iam.support import reservation

ADDRESSES = st.sampled_from([None, "192.0.2.7", "198.51.100.1"])
PATTERNS = st.sampled_from(["*", "compute:*", "iam:*", "compute:reservations:*", *ACTIONS])
SCOPES = st.lists(PATTERNS, min_size=1, max_size=3).map(tuple)

USERS = st.builds(
    Subject,
    principal_id=st.just(USER),
    kind=st.just("user"),
    tenant_id=st.just("acme"),
    roles=st.sampled_from([(), ("reserver",), ("viewer",), ("tenant-admin",)]),
    groups=st.sampled_from([(), ("research",)]),
)


@st.composite
def resources(draw: st.DrawFn) -> Resource:
    """Anybody's reservation, made by anybody."""
    return reservation(
        gpuCount=draw(st.sampled_from([0, 1, 7, 8, 9])),
        nodes=draw(st.sampled_from([1, 3])),
        region=draw(st.sampled_from(["eu-north", "us-east"])),
        creatorId=draw(st.sampled_from([USER, "usr_2"])),
        creatorAgentId=draw(st.sampled_from(["", AGENT, "agt_2"])),
    )


def in_session(user: Subject, *, scopes: Any = ("*",), boundary: Any = ("*",), session_scopes: Any = ("*",)) -> Subject:
    """The user's agent in a session."""
    return replace(
        user,
        agent_id=AGENT,
        delegation_id="dlg_1",
        session_id="ses_1",
        scopes=scopes,
        boundary=boundary,
        session_scopes=session_scopes,
    )


def asked(subject: Subject, action: str, resource: Resource, address: str | None, *texts: str) -> Judgement:
    """What the subject is told under these policies."""
    compiled = compile_beside_builtin([policy(text, f"p{n}") for n, text in enumerate(texts)])
    return judge(subject, action, resource, CallContext(time=1_700_000_000_000, source_ip=address), compiled)


@given(statements())
@settings(max_examples=60, deadline=None)
def test_random_statements_are_such_as_may_be_stored(text: str) -> None:
    """Otherwise the properties below would say nothing about what can be in force."""
    assert check_text(text)[1] == []


@pytest.mark.clause("IAM-5", "a session never may what its user may not")
@pytest.mark.clause("IAM-1", "a session never may what its user may not")
@given(TEXTS, USERS, st.sampled_from(ACTIONS), resources(), ADDRESSES)
@example(
    f'permit (principal, action, resource is Compute::Reservation) when {{ resource.creatorAgentId == "{AGENT}" }};',
    Subject(USER, "user", "acme", (), ()),
    ACTIONS[0],
    reservation(),
    None,
)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_session_never_may_what_its_user_may_not(
    text: str, user: Subject, action: str, resource: Resource, address: str | None
) -> None:
    """Whatever policies say of sessions and agents, and of things that agents made."""
    alone = resource
    if action.endswith(":create"):
        # A draft has its caller for its maker: the agent's in the session, nobody's else without it.
        resource = replace(resource, attributes={**resource.attributes, "creatorAgentId": AGENT})
        alone = replace(resource, attributes={**resource.attributes, "creatorAgentId": ""})
    if asked(in_session(user), action, resource, address, text).allowed:
        assert asked(user, action, alone, address, text).allowed


@pytest.mark.clause("IAM-1", "a deny wins")
@given(TEXTS, statements(("forbid",)), USERS, st.booleans(), st.sampled_from(ACTIONS), resources(), ADDRESSES)
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_deny_that_is_added_never_widens(
    text: str,
    deny: str,
    user: Subject,
    delegated: bool,
    action: str,
    resource: Resource,
    address: str | None,
) -> None:
    subject = in_session(user) if delegated else user
    before, after = (asked(subject, action, resource, address, *texts) for texts in ((text,), (text, deny)))
    assert before.allowed or not after.allowed


@pytest.mark.clause("IAM-1", "every ceiling must permit too")
@given(TEXTS, USERS, st.sampled_from(ACTIONS), resources(), SCOPES, SCOPES, SCOPES)
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_ceiling_that_is_added_never_widens(
    text: str, user: Subject, action: str, resource: Resource, scopes: Any, boundary: Any, session_scopes: Any
) -> None:
    """And what the ceilings leave is just what policies and each of them permit."""
    free = asked(in_session(user), action, resource, None, text)
    bounded = in_session(user, scopes=scopes, boundary=boundary, session_scopes=session_scopes)
    found = asked(bounded, action, resource, None, text)
    inside = all(any(covers(p, action) for p in one) for one in (scopes, boundary, session_scopes))
    assert found.allowed == (free.allowed and inside)
    assert found.policies == free.policies


def covers(pattern: str, action: str) -> bool:
    """The four forms that are drawn here, read anew."""
    return pattern in ("*", action) or (pattern.endswith(":*") and action.startswith(pattern[:-1]))


@pytest.mark.clause("IAM-1", "an erring policy denies")
@given(TEXTS, st.sampled_from(["permit", "forbid"]), USERS, st.sampled_from(ACTIONS), resources())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_what_errs_never_lets_through(text: str, effect: str, user: Subject, action: str, resource: Resource) -> None:
    """Whatever else is said, and whatever the erring statement would have done."""
    overflows = (
        f"{effect} (principal, action, resource is Compute::Reservation)"
        " when { resource.nodes + 9223372036854775807 > 0 };"
    )
    assert asked(user, action, resource, None, text, overflows).reason == "policy-error"


@pytest.mark.clause("IAM-5", "whatever permits say")
@given(USERS, st.sampled_from(sorted(actions_by_name())))
def test_the_rule_for_sessions_precedes_every_permit(user: Subject, action: str) -> None:
    everything = "permit (principal, action, resource);"
    kind = {"iam": "iam-tenant"}.get(action.partition(":")[0])
    assume(kind)
    resource = Resource("iam-tenant", "acme", "acme", {"tenantId": "acme", "subjectId": "", "sponsorId": ""})
    alone, session = (asked(who, action, resource, None, everything) for who in (user, in_session(user)))
    assert alone.allowed
    never = {
        *("keys:create", "keys:rotate", "policies:put", "policies:delete", "principals:create", "principals:update"),
        *("principals:resume", "agents:create", "agents:resume", "delegations:grant", "delegations:assume"),
        "confirmations:decide",
    }
    assert session.reason == ("session-rule" if action.removeprefix("iam:") in never else "permitted")
