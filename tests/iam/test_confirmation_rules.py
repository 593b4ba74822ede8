"""What a confirmation is at a given time: the rule, and the same rule in SQL (IAM-6)."""

from collections.abc import Iterator
from decimal import Decimal
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from computeplatform.quantities import covers_cost
from iam.domain import confirming
from iam.models import Confirmation, Delegation
from iam.queries.confirmations import in_state, state_of
from tests.support.world import World

NOW = 1_000_000
TIMES = (NOW - 2, NOW - 1, NOW, NOW + 1, NOW + 2)


@pytest.mark.clause("IAM-6", "within 30 minutes, half-open: to decide, and of being given")
@pytest.mark.parametrize(
    ("state", "expires_at", "ended_at", "expected"),
    [
        ("pending", NOW + 1, NOW + 1, "pending"),
        ("pending", NOW, NOW + 1, "lapsed"),
        ("pending", NOW + 1, NOW, "void"),
        # Whichever came first, however late it is looked at.
        ("pending", NOW - 1, NOW - 2, "void"),
        ("pending", NOW - 2, NOW - 1, "lapsed"),
        ("pending", NOW - 1, NOW - 1, "lapsed"),
        ("approved", NOW + 1, NOW + 1, "approved"),
        ("approved", NOW, NOW + 1, "lapsed"),
        # Nobody can use it; it lapses as any other does.
        ("approved", NOW + 1, NOW - 1, "approved"),
        ("refused", NOW - 1, NOW - 1, "refused"),
        ("used", NOW - 1, NOW - 1, "used"),
        ("void", NOW - 1, NOW + 1, "void"),
        ("lapsed", NOW - 1, NOW - 2, "lapsed"),
    ],
)
def test_the_effective_state(state: str, expires_at: int, ended_at: int, expected: str):
    found = confirming.effective(state, expires_at=expires_at, delegation_ended_at=ended_at, now=NOW)
    assert found == expected


@given(
    state=st.sampled_from(confirming.STATES),
    expires_at=st.sampled_from(TIMES),
    ended_at=st.sampled_from(TIMES),
    times=st.lists(st.sampled_from(TIMES), min_size=2, max_size=2).map(sorted),
)
def test_what_has_ended_never_comes_back(state: str, expires_at: int, ended_at: int, times: list[int]):
    earlier, later = (
        confirming.effective(state, expires_at=expires_at, delegation_ended_at=ended_at, now=now) for now in times
    )
    assert later == earlier or earlier in ("pending", "approved")
    # What was written down in between makes no difference.
    again = confirming.effective(earlier, expires_at=expires_at, delegation_ended_at=ended_at, now=times[1])
    assert again == later


@pytest.mark.clause("IAM-6", "fails if the estimated cost has risen")
@pytest.mark.parametrize(
    ("cost", "currency", "covered"),
    [
        ("4.0000", "EUR", True),
        ("3.9999", "EUR", True),
        ("4.0001", "EUR", False),
        ("4.0000", "USD", False),
        ("0.0001", "", False),
        ("0", "", True),
        ("0.0000", "USD", True),
    ],
)
def test_what_an_approval_is_enough_for(cost: str, currency: str, covered: bool):
    enough = covers_cost(approved=Decimal("4.0000"), approved_currency="EUR", cost=Decimal(cost), currency=currency)
    assert enough is covered


@pytest.mark.clause("IAM-6", "bound to what was asked")
def test_the_digest_is_of_all_that_is_asked():
    asked = {"reservationId": "res_1", "endsAt": 5}
    assert confirming.digest_of(asked) == confirming.digest_of({"endsAt": 5, "reservationId": "res_1"})
    for other in ({**asked, "endsAt": 6}, {**asked, "reservationId": "res_2"}, {**asked, "more": 0}, {}):
        assert confirming.digest_of(other) != confirming.digest_of(asked)


def every_kind(world: World) -> Iterator[Confirmation]:
    """A confirmation in each stored state, at each side of each time."""
    agent = world.agent(world.ann)
    parties = {"tenant_id": "acme", "user_id": world.ann.id, "agent_id": agent.id}
    for number, (state, expires_at, ends_at, revoked_at) in enumerate(
        product(confirming.STATES, TIMES, TIMES, (None, *TIMES))
    ):
        delegation = Delegation.objects.create(
            id=f"dlg_{number}",
            scopes=["*"],
            status="active" if revoked_at is None else "revoked",
            revoked_at=revoked_at,
            created_at=1,
            expires_at=ends_at,
            **parties,
        )
        used = {"used_at": expires_at - 1, "decision_id": "dec_x"} if state == "used" else {}
        yield Confirmation.objects.create(
            id=f"cnf_{number}",
            delegation=delegation,
            action="compute:reservations:extend",
            resource_type="compute-reservation",
            resource_id="res_x",
            asked={},
            digest="",
            estimated_cost=0,
            state=state,
            created_at=2,
            expires_at=expires_at,
            decided_at=3 if state in ("approved", "refused", "used") else None,
            **parties,
            **used,
        )


@pytest.mark.clause("IAM-6", "confirmations/list: its filter says what the rule says")
def test_the_filter_agrees_with_the_rule(world: World):
    rows = list(every_kind(world))
    found = {
        state: set(in_state(Confirmation.objects.all(), state, now=NOW).values_list("id", flat=True))
        for state in confirming.STATES
    }
    expected = {state: {row.id for row in rows if state_of(row, now=NOW) == state} for state in confirming.STATES}
    assert found == expected
    assert all(found.values())
    Confirmation.objects.all().delete()
