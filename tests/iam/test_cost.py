"""What a call costs: few queries, and one compilation of the policies per change."""

from typing import Any

import pytest
from django.db import transaction

from computeplatform.clock import compute_now
from computeplatform.errors import Unauthenticated
from iam.domain import tokens
from iam.models import PolicyVersion
from iam.ports import authenticate, decide
from tests.iam.support import CREATE, NOT_US_EAST, circumstances, put, reservation
from tests.support.world import World


def test_authentication_is_one_query(world: World, django_assert_num_queries: Any) -> None:
    now = compute_now()
    authenticate(world.ann.api.token, now=now, source_ip=None)
    with django_assert_num_queries(1):
        authenticate(world.ann.api.token, now=now, source_ip=None)


@pytest.mark.clause("API-2", "typed and checksummed")
def test_a_wrong_form_is_refused_without_a_look_up(world: World, django_assert_num_queries: Any) -> None:
    good, unknown, now = world.ann.api.token, tokens.mint().text, compute_now()
    other_secret = good[:12] + unknown[12:44]
    known = other_secret + tokens.checksum(other_secret)
    cases = [
        (0, "cpx_" + good[4:]),
        (0, good[:-1] + ("0" if good[-1] != "0" else "1")),
        (0, ""),
        (1, unknown),
        (1, known),
    ]
    for queries, token in cases:
        with django_assert_num_queries(queries), pytest.raises(Unauthenticated):
            authenticate(token, now=now, source_ip=None)


def test_decisions_read_nothing_while_policies_stand(world: World, django_assert_num_queries: Any) -> None:
    put(world, NOT_US_EAST)
    now = compute_now()
    ann, gil = (authenticate(who.api.token, now=now, source_ip=None) for who in (world.ann, world.gil))
    decide(ann, CREATE, reservation(), context=circumstances(), record=True)
    context = circumstances()
    with django_assert_num_queries(0):  # a row of a list
        decide(ann, CREATE, reservation(), context=context, record=False)
    with django_assert_num_queries(1):  # the entry in the audit log
        decide(ann, CREATE, reservation(), context=context, record=True)
    with django_assert_num_queries(0):  # another tenant's policies are not even read
        decide(gil, CREATE, reservation(), context=context, record=False)


def test_a_read_costs_no_more_than_its_data(world: World, django_assert_num_queries: Any) -> None:
    fetch = {"principalId": world.ann.id}
    world.ann.api.iam("principals/get", **fetch)
    with django_assert_num_queries(3):  # the clock, the credential, the principal
        world.ann.api.iam("principals/get", **fetch)


def test_a_list_costs_the_same_for_any_length(world: World, django_assert_num_queries: Any) -> None:
    world.acme.api.iam("keys/list")
    for limit in (1, 200):
        with django_assert_num_queries(3):
            world.acme.api.iam("keys/list", limit=limit)


@pytest.mark.clause("IAM-1", "a changed policy bites at the next call")
def test_a_rolled_back_change_leaves_nothing_in_the_process(world: World) -> None:
    """A revision names one state for ever: what was compiled for a change that was undone is never used again."""

    east = reservation(region="us-east")

    def may() -> bool:
        ann = authenticate(world.ann.api.token, now=compute_now(), source_ip=None)
        return decide(ann, CREATE, east, context=circumstances(), record=False).allowed

    with transaction.atomic():
        put(world, NOT_US_EAST)
        assert not may()
        transaction.set_rollback(True)
    assert PolicyVersion.objects.count() == 0
    put(world, NOT_US_EAST.replace("us-east", "us-west"))
    assert may()
