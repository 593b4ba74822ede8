"""`verify_invariants` sees everything that the database holds: each check is broken from outside, and names it."""

from typing import Any

import pytest
from django.db import connection, transaction

from computeplatform.events.outbox import stamp
from computeplatform.invariants import check_names, violations
from reservations import reconcilers
from reservations.models import Reservation
from tests.iam.test_bootstrap import BREAK as BREAKS_OF_IAM
from tests.support.api import Api, settle
from tests.support.clock import Clock
from tests.support.confirming import asking_agent, must_confirm
from tests.support.world import HOUR, World, request

STATES = ("denied", "draft", "active", "released", "placed", "pending")


class Crashed(Exception):
    """The call's web process died."""


def die() -> None:
    raise Crashed


@pytest.fixture
def scene(world: World, clock: Clock) -> dict[str, str]:
    """A pool with a reservation in each state of interest, and another pool beside it: ids by name."""
    pool, other = world.offered_pool(nodes=2, quota=24), world.offered_pool(name="other")

    def create(gpus: int, **changed: Any) -> str:
        return str(world.ann.api("reservations/create", **request(pool, gpus, **changed)).data["reservation"]["id"])

    create(8, binding="node")
    released = create(4)
    settle()
    for node in world.nodes:
        node.follow()
    reconcilers.reconcile(pool_id=pool)
    create(2, startsAt=clock.now + HOUR)
    create(6)
    world.ann.api("reservations/release", reservationId=released)
    world.vic.api("reservations/create", **request(pool)).refused("ACCESS_DENIED")
    awaiting = must_confirm(asking_agent(world).create(request(pool)))["reservationId"]
    with pytest.raises(Crashed):
        Api(world.ann.api.token, "acme", work=die)("reservations/create", **request(pool))
    stamp()
    found = {state: Reservation.objects.get(state=state).id for state in STATES}
    return {"pool": pool, "other": other, "awaiting": awaiting} | found


def change(check: str, named: str, table: str, values: str, who: str = "") -> tuple[str, str, str]:
    """An UPDATE of what belongs to ``who`` in a table; the check has to name ``named``, or ``who``."""
    keys = {"fleet_node": "pool_id", "fleet_offer": "pool_id", "quotas_quota": "pool_id"}
    keys |= {"fleet_pool": "id", "reservations_reservation": "id"}
    keys |= {"iam_decision": "resource_id", "computeplatform_event": "subject_id", "iam_confirmation": "resource_id"}
    statement = f"UPDATE {table} SET {values} WHERE {keys.get(table, 'reservation_id')} = %({who or 'pool'})s"
    if table == "iam_decision":
        statement = f"ALTER TABLE {table} DISABLE TRIGGER USER; {statement}"
    return check, named or f"{{{who}}}", statement


def copy(table: str, columns: str, *, of: str, to: str) -> str:
    """An INSERT of the rows of one reservation for another."""
    shared = f"tenant_id, pool_id, node_id, {columns}"
    return (
        f"INSERT INTO {table} (reservation_id, {shared}) SELECT {to}, {shared} FROM {table} WHERE reservation_id = {of}"
    )


def taint(key: str, *, before: str = "", subjects: str = "'{}'", until: str = "NULL") -> str:
    """An INSERT of a taint on the pool's nodes, and an UPDATE of the nodes before it."""
    return (
        f"WITH changed AS (UPDATE fleet_node SET version = version {before} WHERE pool_id = %(pool)s RETURNING id)"
        f" INSERT INTO fleet_taint (node_id, key, effect, reason, subjects, since, until)"
        f" SELECT id, '{key}', 'NoSchedule', '', {subjects}, 1, {until} FROM changed"
    )


def carrying(type_: str, reason: str = "Broken") -> str:
    """The column of a row that carries this condition."""
    return (
        f"""conditions = '[{{"type": "{type_}", "reason": "{reason}", "status": "True", "message": "", "since": 1}}]'"""
    )


EVENTS, NODES, ALLOCATIONS = "computeplatform_event", "fleet_node", "fleet_allocation"
BEGUN = "int8range(lower(planned), lower(planned) + 1)"
KEPT = """'[{"nodeId": "n", "first": 0, "count": 2, "from": 1}]'"""
BOTH = "id IN (%(pending)s, %(placed)s)"
AWAITING = carrying("Unschedulable", "AwaitingPreemption")
CHARGES, BOOKINGS, RESERVATIONS = "quotas_charge", "reservations_booking", "reservations_reservation"
# The check, who it has to name, and how it is broken: around the operations, and around the constraints.
BREAKS = [
    ("events.numbers", "acme", "UPDATE computeplatform_tenantsequence SET last = last + 1 WHERE tenant_id = 'acme'"),
    ("events.numbers", "acme", f"DELETE FROM {EVENTS} WHERE subject_id = %(placed)s"),
    change("events.order", "reservation {active}", EVENTS, "subject_version = 9 - subject_version", "active"),
    change("fleet.node-spans-are-aligned", "node_", NODES, "unit_base = unit_base + 1"),
    change("fleet.allocations-in-their-pool", "node_", NODES, "pool_id = NULL"),
    (
        "fleet.device-bound-once",
        "node_",
        copy(
            ALLOCATIONS,
            "binding, devices, resources, until, desired, observed, holders",
            of="%(active)s",
            to="'elsewhere'",
        ),
    ),
    change("fleet.tenants-are-there", "pool {pool}", "fleet_pool", "tenant_id = 'nobody'"),
    change("fleet.tenants-are-there", "offer ", "fleet_offer", "tenant_id = tenant_id || '-gone'"),
    change("fleet.nodes-have-spoken", "node_", NODES, "boot_id = ''"),
    change("fleet.devices-have-places", "node_", NODES, "positions = 1"),
    change("quotas.used-is-sum-of-charges", "acme/{pool}/gpu", "quotas_quota", "used = used + 1"),
    ("quotas.charge-has-row", "acme/{pool}/gpu", "DELETE FROM quotas_quota WHERE pool_id = %(pool)s"),
    change("reservations.charges", "", CHARGES, "amount = amount + 1", "placed"),
    change("reservations.charges", "", CHARGES, "tenant_id = 'globex'", "placed"),
    change("reservations.charges", "", CHARGES, "refunded_at = NULL", "released"),
    ("reservations.charges", "{pending}", f"DELETE FROM {CHARGES} WHERE reservation_id = %(pending)s"),
    ("reservations.bookings", "{placed}", f"DELETE FROM {BOOKINGS} WHERE reservation_id = %(placed)s"),
    change("reservations.left-over", "", BOOKINGS, "during = planned", "released"),
    (
        "reservations.overlap",
        "",
        f"SET CONSTRAINTS ALL IMMEDIATE; ALTER TABLE {BOOKINGS} DROP CONSTRAINT booking_no_overlap; "
        + copy(BOOKINGS, "units, devices, planned, during, billed", of="%(active)s", to="%(placed)s"),
    ),
    change("reservations.answered", "", RESERVATIONS, "due_at = NULL", "placed"),
    change("reservations.answered", "", RESERVATIONS, "due_at = 1", "released"),
    change("reservations.answered", "", RESERVATIONS, "due_at = NULL", "awaiting"),
    change("reservations.answered", "", RESERVATIONS, "outcome = NULL", "awaiting"),
    change("reservations.awaiting", "", RESERVATIONS, "confirmation_id = 'gone'", "awaiting"),
    change("reservations.awaiting", "", RESERVATIONS, "creator_agent_id = 'another'", "awaiting"),
    change("reservations.awaiting", "", RESERVATIONS, "due_at = due_at + 1", "awaiting"),
    change("reservations.awaiting", "", RESERVATIONS, "decision_id = ''", "awaiting"),
    change("reservations.awaiting", "", RESERVATIONS, "state = 'draft', due_at = NULL", "awaiting"),
    change("reservations.asked", "", RESERVATIONS, "state = 'draft', due_at = NULL", "awaiting"),
    change("reservations.asked", "", "iam_confirmation", "action = 'compute:reservations:extend'", "awaiting"),
    change("reservations.answered", "", RESERVATIONS, "outcome = NULL", "denied"),
    change("reservations.answered", "", RESERVATIONS, "call_open_until = NULL", "draft"),
    ("reservations.allocations", "{placed}", f"DELETE FROM {ALLOCATIONS} WHERE reservation_id = %(placed)s"),
    change("reservations.allocation-terms", "", ALLOCATIONS, "until = until + 1", "placed"),
    change("reservations.allocation-terms", "", ALLOCATIONS, "desired = 'planned'", "active"),
    change("reservations.allocation-terms", "gone", ALLOCATIONS, "reservation_id = 'gone'", "placed"),
    change("reservations.decided", "", "iam_decision", "outcome = 'deny'", "placed"),
    change("reservations.decided", "", "iam_decision", "resource_id = 'another'", "active"),
    change("reservations.decided", "", RESERVATIONS, "decision_id = ''", "denied"),
    change("reservations.decided", "", RESERVATIONS, "decided = true", "draft"),
    change("reservations.history", "", EVENTS, "type = 'reservation.pending'", "placed"),
    change("reservations.history", "", EVENTS, "subject_version = 1", "active"),
    change("reservations.history", "", EVENTS, "type = 'reservation.placed'", "awaiting"),
    change("reservations.history", "", RESERVATIONS, "version = 0", "awaiting"),
    change("reservations.history", "{denied}", EVENTS, "subject_id = %(denied)s", "placed"),
    change("reservations.times", "", RESERVATIONS, "active_at = NULL", "active"),
    change("reservations.times", "", RESERVATIONS, "pending_since = NULL", "pending"),
    change("reservations.times", "", RESERVATIONS, "start_before = starts_at", "placed"),
    change("reservations.booking-of-its-node", "{placed}", BOOKINGS, "tenant_id = 'globex'", "placed"),
    change("reservations.booking-of-its-node", "{placed}", BOOKINGS, "node_id = 'gone'", "placed"),
    change("reservations.booking-of-its-node", "{placed}", BOOKINGS, "devices = 3", "placed"),
    change("reservations.leases", "", RESERVATIONS, "lease_expires_at = 1", "placed"),
    change("reservations.leases", "", RESERVATIONS, "ending_told_for = 1", "released"),
    change("reservations.ends", "", RESERVATIONS, "extended_by = 1", "placed"),
    change("reservations.ends", "", RESERVATIONS, "ends_at = ends_at + 1", "active"),
    change("reservations.pending-changes", "", RESERVATIONS, """pending_change = '{"openUntil": 1}'""", "released"),
    change("reservations.pending-changes", "", RESERVATIONS, """pending_change = '{"openUntil": 1}'""", "active"),
    change("reservations.devices", "", ALLOCATIONS, "devices = '[]'", "placed"),
    change("reservations.devices", "", RESERVATIONS, "placement = '[]'", "active"),
    change("reservations.host-amounts", "", BOOKINGS, "vcpu_milli = 0", "placed"),
    change("reservations.host-amounts", "", ALLOCATIONS, "resources = '{}'", "placed"),
    change("reservations.host-capacity", "node_", BOOKINGS, "memory_mib = 2000000", "active"),
    ("fleet.stuck-on-account-of-somebody", "node_", taint("KubernetesReleaseStuck")),
    ("fleet.stuck-on-account-of-somebody", "node_", taint("KubernetesReleaseStuck", subjects="'{a}'", until="1")),
    ("fleet.held-nodes-are-not-lost", "node_", taint("MassSilence")),
    ("fleet.held-nodes-are-not-lost", "node_", taint("MassSilence", before=", state = 'lost', lost_at = 1")),
    change("fleet.removed-nodes-hold-nothing", "node_", NODES, "removed_at = 1, pool_id = NULL"),
    change("fleet.removed-nodes-are-signed-out", "node_", NODES, "removed_at = 1, pool_id = NULL"),
    change("reservations.removed-nodes", "{placed}", NODES, "removed_at = 1, pool_id = NULL"),
    change("reservations.bookings", "{active}", BOOKINGS, f"during = {BEGUN}, billed = {BEGUN}", "active"),
    change("reservations.left-over", "{active}", RESERVATIONS, "ends_at = ends_at + 1", "active"),
    change("reservations.holds", "{active}", BOOKINGS, "held_since = 1", "active"),
    change("reservations.holds", "{released}", RESERVATIONS, "held_since = 1", "released"),
    change("reservations.holds", "{released}", RESERVATIONS, carrying("DevicesHeld"), "released"),
    change(
        "reservations.holds",
        "{placed}",
        BOOKINGS,
        "during = int8range(lower(during), upper(planned) + 1), billed = int8range(lower(during), upper(planned) + 1)",
        "placed",
    ),
    change(
        "reservations.holds",
        "{placed}",
        BOOKINGS,
        "during = int8range(lower(during), upper(planned) + 86400001)",
        "placed",
    ),
    ("reservations.stuck-nodes", "{active}", taint("KubernetesReleaseStuck", subjects="ARRAY[%(active)s]")),
    change("reservations.queued", "{pending}", RESERVATIONS, "queued_at = 1", "pending"),
    change("reservations.queued", "{placed}", RESERVATIONS, carrying("Queued"), "placed"),
    change("reservations.preemption", "{active}", RESERVATIONS, "spot = true, preempted_by = 'one'", "active"),
    change("reservations.preemption", "{active}", RESERVATIONS, carrying("PreemptionScheduled"), "active"),
    change("reservations.preemption", "{pending}", RESERVATIONS, "spot = true, preempted_by = 'one'", "pending"),
    change("reservations.preemption", "{released}", RESERVATIONS, "reason = 'preempted'", "released"),
    (
        "reservations.claims",
        "res_",
        f"UPDATE {RESERVATIONS} SET state = 'pending', claim = {KEPT}, {AWAITING} WHERE {BOTH}",
    ),
    change("reservations.claims", "{pending}", RESERVATIONS, "claim = '[]'", "pending"),
    change("reservations.claims", "{pending}", RESERVATIONS, AWAITING, "pending"),
    change("reservations.disturbed", "{active}", RESERVATIONS, "disturbed_since = 1", "active"),
    change("reservations.disturbed", "{active}", RESERVATIONS, carrying("NodeLost"), "active"),
    change(
        "reservations.disturbed", "{placed}", RESERVATIONS, f"disturbed_since = 1, {carrying('NodeLost')}", "placed"
    ),
    (
        "reservations.disturbed",
        "{active}",
        "INSERT INTO reservations_downtime (reservation_id, began_at) VALUES (%(active)s, 1)",
    ),
    change(
        "reservations.disturbed",
        "{active}",
        RESERVATIONS,
        f"disturbed_since = 1, {carrying('DeviceUnhealthy', 'AllDevices')}",
        "active",
    ),
]
# Of no pool.
EVERYWHERE = {"events.numbers", "fleet.removed-nodes-are-signed-out"}


def seen(check: str, named: str, statement: str, scene: dict[str, str]) -> bool:
    """Whether the check names it when it is broken, in a look at its own pool too, and at no other."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(statement, scene)
            assert cursor.rowcount != 0, statement
        found = [one for one in violations() if one.check == check]
        here = [one for one in violations([scene["pool"]]) if one.check == check]
        elsewhere = violations([scene["other"]])
        transaction.set_rollback(True)
    names = [one.subject for one in found if one.subject.startswith(named.format(**scene)) and one.message]
    return bool(names) and here == ([] if check in EVERYWHERE else found) and elsewhere == []


@pytest.mark.clause("REC-5", "each check, broken from outside, names what differs, in its own pools alone")
def test_whatever_is_broken_is_named(scene: dict[str, str]):
    assert violations() == violations([scene["pool"]]) == []
    assert [one for one in BREAKS if not seen(*one, scene)] == []
    assert violations() == []


def test_every_check_that_is_registered_is_broken():
    assert set(check_names()) == {check for check, _, _ in BREAKS} | set(BREAKS_OF_IAM)
