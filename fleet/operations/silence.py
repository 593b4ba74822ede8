"""Nodes that fall silent: lost one by one, or held where many do at once (REC-4, REC-8). A tick calls this."""

from collections.abc import Collection, Sequence

from django.conf import settings
from django.db import connection

from computeplatform.api.calls import Actor, system_actor
from computeplatform.clock import SECOND
from computeplatform.db.gaps import service_gaps
from computeplatform.db.retry import in_transaction
from computeplatform.events.outbox import emit
from computeplatform.wakes import wake
from fleet import events
from fleet.contracts import MASS_SILENCE
from fleet.domain.nodes import ADOPTING, LOST, NODE, READY
from fleet.domain.silence import LOST_AFTER, SUSPECT_AFTER, Limits, Quiet, judge
from fleet.errors import PoolNotFound
from fleet.locks import lock_nodes, lock_pool_rows
from fleet.models import Node, Pool, Taint
from fleet.operations.taints import clear_taint, set_taint

LOOP = "fleet.silence"

_POOLS = """
SELECT DISTINCT pool_id FROM fleet_node
WHERE last_heartbeat_at <= %(before)s AND lost_at IS NULL AND removed_at IS NULL AND state IN ('ready', 'adopting')
UNION SELECT id FROM fleet_pool WHERE mass_silence_since IS NOT NULL ORDER BY 1
"""
# Who may be silent, and who was lost shortly before the first of them.
_QUIET = """
WITH quiet AS (
    SELECT id, last_heartbeat_at FROM fleet_node
    WHERE pool_id IS NOT DISTINCT FROM %(pool)s AND last_heartbeat_at <= %(before)s AND lost_at IS NULL
        AND removed_at IS NULL AND state IN ('ready', 'adopting')
)
SELECT id FROM quiet
UNION SELECT id FROM fleet_node WHERE pool_id = %(pool)s AND lost_at IS NOT NULL
    AND last_heartbeat_at >= (SELECT min(last_heartbeat_at) FROM quiet) - %(within)s
"""


def pools_with_silence(*, now: int) -> list[str | None]:
    """Pools with a node that was not heard of for too long, and those in which many are silent; None: in no pool."""
    with connection.cursor() as cursor:
        cursor.execute(_POOLS, {"before": now - LOST_AFTER})
        return [pool_id for (pool_id,) in cursor.fetchall()]


@in_transaction
def judge_silence(*, pool_id: str | None, now: int) -> None:
    """Declare lost what is silent for three heartbeats, unless many of the pool fell silent at once.

    Those many get the taint ``MassSilence`` and the pool shows since when; each loses it when it is heard of again, and
    the pool when the last one has. Time in which we could not hear does not count. Emits ``node.lost``,
    ``pool.mass-silence`` and ``pool.mass-silence-ended``.
    """
    pool = lock_pool_rows([pool_id]).get(pool_id) if pool_id else None
    by, limits = system_actor(LOOP), mass_limits()
    held = _held(pool)
    rows = {row.id: row for row in _lock_quiet(pool, held, limits, now=now)}
    quiet = _quiet(list(rows.values()), held, now=now)
    total = Node.objects.filter(pool_id=pool_id).count() if pool else 0
    if pool is None:
        # Nodes of no pool have nothing in common: each is judged by itself.
        limits = Limits(percent=100, nodes=len(quiet) + 1, within=0)
    settled = (pool.mass_silence_ended_at if pool else None) or 0
    verdict = judge(quiet, nodes=max(total, 1), limits=limits, settled_before=settled)
    _declare_lost([rows[node_id] for node_id in verdict.lost], by=by, now=now)
    if pool is not None:
        _hold(pool, [rows[node_id] for node_id in verdict.many], total=total, by=by, now=now)
        _let_go(pool, held - set(verdict.many), still_held=bool(verdict.many), by=by, now=now)


@in_transaction
def end_mass_silence(*, pool_id: str, reason: str, by: Actor, now: int) -> None:
    """An operator's word on many silent nodes: those that are silent still are lost, each since its last contact.

    Where none are held: unchanged. Raises PoolNotFound. Emits ``pool.mass-silence-ended`` and ``node.lost``.
    """
    pool = lock_pool_rows([pool_id]).get(pool_id)
    if pool is None:
        raise PoolNotFound
    if pool.mass_silence_since is None:
        return
    held = _held(pool)
    rows = lock_nodes(held)
    overdue = {node.id for node in _quiet(list(rows.values()), held, now=now) if node.overdue}
    _declare_lost([rows[node_id] for node_id in sorted(overdue)], by=by, now=now)
    clear_taint(held, MASS_SILENCE, by=by, now=now, reason=reason)
    _end(pool, "operator", by=by, now=now)


def mass_limits() -> Limits:
    """From the settings: how much silence at once is not believed of the nodes."""
    chosen = settings.COMPUTE_MASS_SILENCE
    return Limits(chosen["percent"], chosen["nodes"], chosen["within_seconds"] * SECOND)


def _held(pool: Pool | None) -> set[str]:
    """The nodes of the pool that are held as some of many."""
    if pool is None or pool.mass_silence_since is None:
        return set()
    return set(Taint.objects.filter(node__pool=pool, key=MASS_SILENCE).values_list("node_id", flat=True))


def _lock_quiet(pool: Pool | None, held: Collection[str], limits: Limits, *, now: int) -> list[Node]:
    """Locked: a report that comes at this moment is either seen here, or comes after the judgement."""
    pool_id = pool.id if pool else None
    with connection.cursor() as cursor:
        cursor.execute(_QUIET, {"pool": pool_id, "before": now - SUSPECT_AFTER, "within": limits.within})
        found = {node_id for (node_id,) in cursor.fetchall()}
    rows = lock_nodes(found | set(held)).values()
    return [row for row in rows if row.pool_id == pool_id and row.state in (READY, ADOPTING, LOST)]


def _quiet(rows: Sequence[Node], held: Collection[str], *, now: int) -> list[Quiet]:
    contacts = {row.id: row.last_heartbeat_at or 0 for row in rows}
    if not contacts:
        return []
    gaps = service_gaps(since=min(contacts.values()), now=now)

    def silent(row: Node, for_: int) -> bool:
        contact = contacts[row.id]
        return gaps.moved(contact + for_, since=contact) <= now

    return [
        Quiet(
            row.id,
            contacts[row.id],
            overdue=silent(row, LOST_AFTER),
            lost=row.lost_at is not None,
            held=row.id in held,
        )
        for row in rows
        if silent(row, SUSPECT_AFTER)
    ]


def _declare_lost(nodes: Sequence[Node], *, by: Actor, now: int) -> None:
    for node in nodes:
        node.state, node.lost_at = NODE.next(node.state, "silent"), node.last_heartbeat_at
        node.version += 1
    _write(nodes, by=by, now=now, type_=events.NODE_LOST)


def _hold(pool: Pool, nodes: Sequence[Node], *, total: int, by: Actor, now: int) -> None:
    """None of them is lost; one that was declared lost before the others fell silent is so no longer."""
    doubted = [node for node in nodes if node.lost_at is not None]
    for node in doubted:
        node.state, node.lost_at = NODE.next(node.state, "doubted"), None
        node.version += 1
    _write(doubted, by=by, now=now, type_=events.NODE_READY, reason="mass-silence")
    if nodes:
        set_taint([node.id for node in nodes], MASS_SILENCE, by=by, now=now, reason="mass-silence")
    if nodes and pool.mass_silence_since is None:
        pool.mass_silence_since = now
        _write_pool(pool)
        emit([events.pool_mass_silence(pool, silent=len(nodes), nodes=total, by=by, now=now)])


def _let_go(pool: Pool, node_ids: Collection[str], *, still_held: bool, by: Actor, now: int) -> None:
    if node_ids:
        clear_taint(sorted(node_ids), MASS_SILENCE, by=by, now=now, reason="returned")
    if pool.mass_silence_since is not None and not still_held:
        _end(pool, "returned", by=by, now=now)


def _end(pool: Pool, reason: str, *, by: Actor, now: int) -> None:
    pool.mass_silence_since, pool.mass_silence_ended_at = None, now
    _write_pool(pool)
    emit([events.pool_mass_silence_ended(pool, reason=reason, by=by, now=now)])


def _write(nodes: Sequence[Node], *, by: Actor, now: int, type_: str, reason: str = "") -> None:
    if not nodes:
        return
    Node.objects.bulk_update(nodes, ["state", "lost_at", "version"])
    emit(
        events.node_event(type_, node, by=by, now=now, reason=reason, lastContactAt=node.last_heartbeat_at)
        for node in nodes
    )
    for pool_id in sorted({node.pool_id for node in nodes if node.pool_id}):
        wake("reconcile", pool_id)


def _write_pool(pool: Pool) -> None:
    pool.version += 1
    pool.save(update_fields=["mass_silence_since", "mass_silence_ended_at", "version"])
