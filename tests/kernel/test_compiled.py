"""A compiled query gives what the queryset that it was written as would give."""

import pytest
from django.db import connection
from django.db.models import F, Q, Value
from django.db.models.functions import Concat
from django.test.utils import CaptureQueriesContext

from computeplatform.db.compiled import Compiled
from computeplatform.models import Event, IdempotencyKey
from reservations.models import Reservation
from tests.support.world import World, request


@pytest.fixture
def made(world: World) -> Reservation:
    pool = world.offered_pool()
    world.ann.api("reservations/create", **request(pool, 2, labels={"a": "b"}))
    return Reservation.objects.get()


def test_its_objects_are_those_of_the_queryset(made: Reservation):
    by_id = Compiled(lambda *, key: Reservation.objects.filter(id=key), "key")
    (found,) = by_id.objects(key=made.id)
    assert {f.attname: getattr(found, f.attname) for f in Reservation._meta.concrete_fields} == {
        f.attname: getattr(made, f.attname) for f in Reservation._meta.concrete_fields
    }
    assert found._state.adding is False
    assert by_id.first(key="res_none") is None


def test_annotations_and_repeated_parameters(made: Reservation):
    told = Concat(Value("of "), F("tenant_id"))
    twice = Compiled(
        lambda *, tenant: Reservation.objects.annotate(told=told).filter(Q(tenant_id=tenant) | Q(creator_id=tenant)),
        "tenant",
    )
    assert [(row.id, row.told) for row in twice.objects(tenant="acme")] == [(made.id, "of acme")]
    assert twice.objects(tenant="globex") == []


def test_rows_of_a_values_list(made: Reservation):
    types = Compiled(lambda *, key: Event.objects.filter(subject_id=key).values_list("type", "data"), "key")
    assert types.rows(key=made.id) == list(Event.objects.filter(subject_id=made.id).values_list("type", "data"))


def test_one_query_and_no_more(made: Reservation):
    by_id = Compiled(lambda *, key: Reservation.objects.filter(id=key), "key")
    with CaptureQueriesContext(connection) as queries:
        by_id.first(key=made.id)
        by_id.first(key="' OR true --")
    assert len(queries) == 2


def test_a_parameter_that_the_query_changes_is_refused(db: None):
    changed = Compiled(lambda *, key: IdempotencyKey.objects.filter(key__contains=key), "key")
    with pytest.raises(ValueError, match="does not use"):
        changed.rows(key="x")
