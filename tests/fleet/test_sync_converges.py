"""Messages of a node may be lost, repeated and reordered: what is stored in the end is what the last ones say."""

import itertools

import pytest
from django.db import transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleet.domain.sync import Held, Report, ReportedDevice
from fleet.models import Allocation, Device, Node, Pool
from fleet.operations.allocations import bind, plan, withdraw
from fleet.operations.sync import sync_node
from tests.fleet.conftest import Desire
from tests.quotas.conftest import BY

pytestmark = [pytest.mark.django_db, pytest.mark.clause("NOD-2", "any message may be lost, repeated or reordered")]

numbers = itertools.count(1)
RESERVATIONS = ("res_0", "res_1", "res_2")


def fresh_node() -> tuple[str, Desire]:
    number = next(numbers)
    kind = {"region": "r", "gpu_model": "m", "device_class": "gpu", "sharing": "exclusive", "policy": {}}
    pool = Pool.objects.create(id=f"pool_{number}", tenant_id="acme", name="p", created_at=1, created_by="t", **kind)
    node = Node.objects.create(
        id=f"node_{number}", name=f"n{number}", pool=pool, positions=4, unit_base=number * 16_384, created_at=1
    )
    desire = Desire(node.id, pool.id)
    plan([desire.new(name, position=place) for place, name in enumerate(RESERVATIONS)])
    bind(RESERVATIONS[:2], now=1)
    return node.id, desire


def stored(node_id: str) -> dict:
    """Everything that a sync writes and that is not a time or a history."""
    node = Node.objects.get(id=node_id)
    devices = Device.objects.filter(node_id=node_id, retired_at=None).order_by("position")
    allocations = Allocation.objects.filter(node_id=node_id).order_by("reservation_id")
    return {
        "node": (node.state, node.session, node.sequence, node.boot_id, node.host_vcpu, node.software),
        "devices": [(d.position, d.uuid, d.health) for d in devices],
        "allocations": [(a.reservation_id, a.desired, a.observed, a.holders) for a in allocations],
    }


devices = st.lists(
    st.builds(
        ReportedDevice,
        position=st.integers(0, 3),
        uuid=st.integers(0, 1).map("GPU-{}".format),
        model=st.just("h100"),
        memory_mib=st.just(81_920),
        health=st.sampled_from(["ok", "unhealthy"]),
    ),
    max_size=4,
    unique_by=lambda d: d.position,
).map(
    lambda found: tuple(
        ReportedDevice(d.position, f"{d.uuid}-{d.position}", d.model, d.memory_mib, d.health) for d in found
    )
)
held = st.dictionaries(
    st.sampled_from([*RESERVATIONS, "res_ghost"]),
    st.builds(Held, st.sampled_from(["bound", "withdrawing", "withdrawn"]), st.integers(0, 2)),
)


@st.composite
def reports(draw, count: int) -> list[Report]:
    """What a node says one after the other in one session, the opening left out."""
    return [
        Report(
            boot_id="b",
            session=1,
            sequence=sequence,
            software={"version": str(draw(st.integers(1, 2)))},
            devices=draw(devices),
            host={"vcpu": draw(st.integers(1, 3))},
            allocations=tuple(draw(held).items()),
        )
        for sequence in range(2, count + 2)
    ]


OPENING = Report("b", None, 1, {"version": "1"}, (), None, ())


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_order_loss_and_repetition_ends_where_the_last_message_ends(db, data):
    said = data.draw(reports(data.draw(st.integers(1, 5))))
    withdrawn = data.draw(st.sampled_from([(), ("res_0",), ("res_0", "res_2")]))
    # The newest message arrives at some time; of the others any may be lost, come twice, come late.
    noise = data.draw(st.lists(st.sampled_from(said), max_size=8))
    place = data.draw(st.integers(0, len(noise)))
    arriving = [*noise[:place], said[-1], *noise[place:]]
    with transaction.atomic():
        outcomes = []
        for messages in (said, arriving, said[-1:]):
            node_id, _ = fresh_node()
            assert sync_node(node_id=node_id, report=OPENING, by=BY, now=1).session == 1
            withdraw_after = withdrawn
            for now, report in enumerate(messages, start=2):
                sync_node(node_id=node_id, report=report, by=BY, now=now)
            if withdraw_after:
                withdraw(withdraw_after, now=90)
            # A node goes on reporting; its last word comes again once what is wanted has settled.
            sync_node(node_id=node_id, report=said[-1], by=BY, now=99)
            outcomes.append(stored(node_id))
            Allocation.objects.filter(node_id=node_id).delete()
        assert outcomes[0]["node"] == outcomes[1]["node"] == outcomes[2]["node"]
        assert outcomes[0]["allocations"] == outcomes[1]["allocations"] == outcomes[2]["allocations"]
        # A device that no longer reports stays as `missing`, so it depends on whether it was ever heard of.
        alive = [[d for d in outcome["devices"] if d[2] != "missing"] for outcome in outcomes]
        assert alive[0] == alive[1] == alive[2]
        transaction.set_rollback(True)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_repeating_a_message_changes_nothing(db, data):
    with transaction.atomic():
        node_id, _ = fresh_node()
        sync_node(node_id=node_id, report=OPENING, by=BY, now=1)
        for report in data.draw(reports(3)):
            first = sync_node(node_id=node_id, report=report, by=BY, now=5)
            before = stored(node_id), Node.objects.get(id=node_id).version
            assert sync_node(node_id=node_id, report=report, by=BY, now=6) == first
            assert (stored(node_id), Node.objects.get(id=node_id).version) == before
        transaction.set_rollback(True)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
@pytest.mark.clause("NOD-9", "a ghost of an older boot changes nothing")
def test_messages_of_older_sessions_change_nothing(db, data):
    with transaction.atomic():
        node_id, _ = fresh_node()
        sync_node(node_id=node_id, report=OPENING, by=BY, now=1)
        old = data.draw(reports(3))
        for report in old[:1]:
            sync_node(node_id=node_id, report=report, by=BY, now=2)
        opening = Report("b2", None, 1, {"version": "1"}, (), None, ())
        assert sync_node(node_id=node_id, report=opening, by=BY, now=3).session == 2
        before = stored(node_id)
        for report in data.draw(st.permutations(old)):
            answer = sync_node(node_id=node_id, report=report, by=BY, now=4)
            assert (answer.stale, answer.allocations) == (True, ())
        assert stored(node_id) == before
        transaction.set_rollback(True)
