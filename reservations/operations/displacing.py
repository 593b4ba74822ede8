"""Nodes and devices that fail reservations, or are to be emptied (REC-4, NOD-1, NOD-5): level-triggered, by the tick.

What has not started is placed elsewhere, or waits; what runs is told, and released by the reconciler when the grace of
a lost node has run out; spot work on a draining node is preempted. Each pass looks first, without any lock and in one
query per pool, at what is affected; nothing is done for anybody else.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db import connection

from computeplatform.conditions import Condition, from_json, to_json, with_condition, without_condition
from computeplatform.db.retry import in_transaction
from fleet import queries as fleet
from fleet import troubles as fleet_troubles
from fleet.contracts import NodeTrouble
from reservations import events, locks
from reservations.domain import states
from reservations.domain.conditions import DEVICE_UNHEALTHY, NODE_LOST
from reservations.domain.disturbances import Disturbance, Share, disturbance, lost_words, sick_json, sick_words
from reservations.models import Reservation
from reservations.operations.ending import wake_waiting
from reservations.operations.holding import Leaving, leave_nodes
from reservations.operations.making_way import DRAINED, MakingWay
from reservations.operations.placing import place_pending
from reservations.operations.returning import send_back
from reservations.operations.state import RECONCILER, Changes
from reservations.operations.troubles import close_downtimes, open_downtimes

# Whoever has bookings where something is wrong, and whoever was told of something before; with all that they have now.
_AFFECTED = """
WITH hit AS (
    SELECT DISTINCT b.reservation_id AS id
    FROM unnest(%(lower)s::bigint[], %(upper)s::bigint[]) AS bad(lower, upper)
    JOIN reservations_booking b ON b.units && int8range(bad.lower, bad.upper) AND b.during && int8range(%(now)s, NULL)
    WHERE b.pool_id = %(pool)s AND b.held_since IS NULL
    UNION SELECT id FROM reservations_reservation WHERE pool_id = %(pool)s AND disturbed_since IS NOT NULL
)
SELECT r.id, r.state, r.spot, r.preempted_by, r.conditions::text, d.began_at, b.node_id, lower(b.units), upper(b.units)
FROM hit JOIN reservations_reservation r ON r.id = hit.id AND r.state IN ('placed', 'binding', 'active')
JOIN reservations_booking b ON b.reservation_id = r.id AND b.held_since IS NULL AND upper(b.during) > %(now)s
LEFT JOIN reservations_downtime d ON d.reservation_id = r.id AND d.ended_at IS NULL
ORDER BY r.id
"""


@dataclass
class _Affected:
    """A reservation with what it has, as the pass has read it."""

    id: str
    state: str
    spot: bool
    preempted_by: str
    conditions: list[dict[str, Any]]
    down_since: int | None
    shares: list[Share] = field(default_factory=list)


@dataclass(frozen=True)
class _Plan:
    """What is to be done in a pool, by reservation."""

    displaced: Mapping[str, Disturbance]
    told: Mapping[str, Disturbance]
    preempted: frozenset[str]


def pools_disturbed() -> set[str]:
    """Pools in which something is lost, draining or sick, or somebody was told so; two queries."""
    told = Reservation.objects.filter(disturbed_since__isnull=False).values_list("pool_id", flat=True).distinct()
    return {*fleet_troubles.pools_in_trouble(), *told}


def displace(pool_id: str, *, now: int) -> None:
    """Do in the pool what its nodes and devices ask for; where nothing has changed, that is two queries."""
    plan = _plan(pool_id, now=now)
    if plan.displaced:
        _move_away(pool_id=pool_id, ids=plan.displaced, now=now)
    if plan.told:
        _tell(pool_id=pool_id, ids=plan.told, now=now)
    if plan.preempted:
        _preempt(pool_id=pool_id, ids=plan.preempted, now=now)


def _plan(pool_id: str, *, now: int, among: Collection[str] | None = None) -> _Plan:
    troubles = {trouble.node_id: trouble for trouble in fleet_troubles.troubles(pool_id)}
    displaced, told, preempted = {}, {}, set()
    for one in _affected(pool_id, troubles, now=now):
        if among is not None and one.id not in among:
            continue
        found = disturbance(one.shares, troubles)
        if one.state == states.PLACED:
            if found.displaces:
                displaced[one.id] = found
            continue
        if _conditions(one.conditions, found, now=now) != one.conditions or _turned(one.down_since, found):
            told[one.id] = found
        if one.spot and found.draining and one.preempted_by not in {share.node_id for share in one.shares}:
            preempted.add(one.id)
    return _Plan(displaced, told, frozenset(preempted))


def _affected(pool_id: str, troubles: Mapping[str, NodeTrouble], *, now: int) -> list[_Affected]:
    runs = []
    for trouble in troubles.values():
        whole = trouble.lost_at is not None or trouble.draining
        runs += [trouble.units] if whole else [device.units for device in trouble.sick]
    values: dict[str, Any] = {
        "pool": pool_id,
        "now": now,
        "lower": [low for low, _ in runs],
        "upper": [high for _, high in runs],
    }
    found: dict[str, _Affected] = {}
    with connection.cursor() as cursor:
        cursor.execute(_AFFECTED, values)
        for id_, state, spot, preempted_by, conditions, down_since, node_id, low, high in cursor.fetchall():
            one = found.get(id_)
            if one is None:
                one = found[id_] = _Affected(id_, state, spot, preempted_by, json.loads(conditions), down_since)
            one.shares.append(Share(node_id, (low, high)))
    return list(found.values())


def _turned(down_since: int | None, found: Disturbance) -> bool:
    """Whether it has gone down as a whole, or come back."""
    return (down_since is None) != (found.down_since is None)


# --- Not started ------------------------------------------------------------------------------------------------------


@in_transaction
def _move_away(*, pool_id: str, ids: Collection[str], now: int) -> None:
    """Placed ones leave their nodes, and are placed where they fit; else they wait as pending. Their charge stays."""
    pool, now = locks.lock_pool(pool_id, now=now)
    rows = {row.id: row for row in locks.claim_existing(ids)}
    plan = _plan(pool_id, now=now, among=rows)
    moved = [rows[id_] for id_ in plan.displaced]
    if not moved:
        return
    changes = Changes(by=RECONCILER, now=now)
    for row in moved:
        found = plan.displaced[row.id]
        send_back(row, "displace", pool, changes, reason=_why(found), words=_words(found))
    leave_nodes([Leaving(row, now, billed=False) for row in moved], changes, now=now)
    changes.write()
    wake_waiting(moved)
    place_pending(pool_id=pool_id, now=now, only=[row.id for row in moved])


def _words(found: Disturbance) -> str:
    return lost_words(found.lost) or sick_words(found.sick) or "its node is being drained"


def _why(found: Disturbance) -> str:
    if found.lost:
        return "node-lost"
    return "device-unhealthy" if found.sick else "node-draining"


# --- Running ----------------------------------------------------------------------------------------------------------


@in_transaction
def _tell(*, pool_id: str, ids: Collection[str], now: int) -> None:
    """What runs shows what of it is lost or sick; while all of its devices are sick, it is down and unbilled."""
    rows = {row.id: row for row in locks.claim_existing(ids)}
    plan = _plan(pool_id, now=now, among=rows)
    pool = fleet.pools_by_id([pool_id])[pool_id]
    grace = pool.policy.node_lost_grace_seconds * 1_000
    changes = Changes(by=RECONCILER, now=now)
    began, ended = {}, []
    for id_, found in plan.told.items():
        row = rows[id_]
        _show(row, found, changes, grace=grace, now=now)
        if found.down_since is not None:
            began[id_] = max(found.down_since, row.starts_at or 0)
        else:
            ended.append(id_)
    open_downtimes(began)
    close_downtimes(_recovered(ended, rows, now=now))
    changes.write()


def _show(row: Reservation, found: Disturbance, changes: Changes, *, grace: int, now: int) -> None:
    before = {one["type"]: one for one in row.conditions}
    row.conditions = _conditions(row.conditions, found, now=now)
    after = {one["type"]: one for one in row.conditions}
    row.disturbed_since = (row.disturbed_since or now) if found.is_felt else None
    news = [type_ for type_ in (NODE_LOST, DEVICE_UNHEALTHY) if type_ in after and after[type_] != before.get(type_)]
    if NODE_LOST in news:
        release_at = min(found.lost.values()) + grace
        row.due_at = min(row.due_at or release_at, release_at)
        nodes = [{"nodeId": node_id, "lastContactAt": at} for node_id, at in sorted(found.lost.items())]
        changes.tell(row, events.NODE_LOST, data={"nodes": nodes, "releaseAt": release_at})
    if DEVICE_UNHEALTHY in news:
        data = {"devices": sick_json(found.sick), "down": found.down_since is not None}
        changes.tell(row, events.DEVICE_UNHEALTHY, data=data)
    if not news:
        changes.revise(row)


def _conditions(present: list[dict[str, Any]], found: Disturbance, *, now: int) -> list[dict[str, Any]]:
    """The conditions with what is the matter now, and without what no longer is."""
    kept = without_condition(
        from_json(present), *([] if found.lost else [NODE_LOST]), *([] if found.sick else [DEVICE_UNHEALTHY])
    )
    if found.lost:
        kept = with_condition(kept, Condition(NODE_LOST, "True", "NodeSilent", lost_words(found.lost), now))
    if found.sick:
        reason = "AllDevices" if found.down_since is not None else "SomeDevices"
        kept = with_condition(kept, Condition(DEVICE_UNHEALTHY, "True", reason, sick_words(found.sick), now))
    return to_json(kept)


def _recovered(ended: Collection[str], rows: Mapping[str, Reservation], *, now: int) -> dict[str, int]:
    """When the first device of each was well again, as its node reported it; now, where no report says so."""
    if not ended:
        return {}
    places = {
        id_: [(part["nodeId"], device["position"]) for part in rows[id_].placement for device in part["devices"]]
        for id_ in ended
    }
    since = fleet_troubles.healthy_since({node_id for found in places.values() for node_id, _ in found})
    return {id_: min([since[place] for place in found if place in since], default=now) for id_, found in places.items()}


# --- Spot work on a draining node -------------------------------------------------------------------------------------


@in_transaction
def _preempt(*, pool_id: str, ids: Collection[str], now: int) -> None:
    """Running spot work is released, reason ``preempted``: at once, or after the notice that the pool gives (EVT-4)."""
    pool, now = locks.lock_pool(pool_id, now=now)
    rows = {row.id: row for row in locks.claim_existing(ids)}
    chosen = [rows[id_] for id_ in sorted(_plan(pool_id, now=now, among=rows).preempted)]
    changes = Changes(by=RECONCILER, now=now)
    way = MakingWay(pool, changes, now=now)
    for row in chosen:
        # No reservation takes its place: that it is cut on account of its node is remembered so.
        way.add(row, cause=row.placement[0]["nodeId"], start=now, why=DRAINED)
    way.carry_out()
    changes.write()
