"""Taints: why nothing new lands on a node. Nodes are locked, so these come before any allocation is touched."""

from collections.abc import Collection, Mapping

from computeplatform.api.calls import Actor
from computeplatform.db.retry import in_transaction
from computeplatform.events.outbox import emit
from computeplatform.wakes import wake
from fleet import events
from fleet.locks import lock_nodes
from fleet.models import Node, Taint

BIND_TIMED_OUT = "BindTimedOut"
RELEASE_STUCK = "KubernetesReleaseStuck"
NO_SCHEDULE = "NoSchedule"


@in_transaction
def set_taint(
    node_ids: Collection[str],
    key: str,
    *,
    by: Actor,
    now: int,
    effect: str = NO_SCHEDULE,
    reason: str = "",
    subject: str = "",
    until: int | None = None,
) -> int:
    """Put the taint on these nodes; returns how many did not have it yet. Repeating it changes nothing.

    ``subject`` is the reservation on whose account it is set. ``BindTimedOut`` (REC-7) goes from a node when it has
    reported every subject's allocation withdrawn, ``KubernetesReleaseStuck`` (REL-3) when no pod holds any of them any
    more; without a subject it stays until ``clear_taint``. ``until`` (epoch milliseconds) ends it by itself.
    """
    nodes = lock_nodes(node_ids)
    present = {taint.node_id: taint for taint in Taint.objects.filter(node_id__in=nodes, key=key)}
    subjects = [subject] if subject else []
    new = [nodes[node_id] for node_id in sorted(nodes) if node_id not in present]
    Taint.objects.bulk_create(
        Taint(node=node, key=key, effect=effect, reason=reason, subjects=subjects, since=now, until=until)
        for node in new
    )
    again = [t for t in present.values() if t.until != until or (subject and subject not in t.subjects)]
    for taint in again:
        taint.until = until
        taint.subjects = sorted({*taint.subjects, *subjects})
    if again:
        Taint.objects.bulk_update(again, ["until", "subjects"])
    _tell(events.NODE_TAINTED, new, key=key, reason=reason, by=by, now=now)
    return len(new)


@in_transaction
def drop_subjects(settled: Mapping[str, Collection[str]], key: str, *, by: Actor, now: int) -> None:
    """The taint stands no longer, node by node, on account of these reservations; it goes with the last of them.

    What has no such taint is left alone: two queries, however many nodes.
    """
    nodes = lock_nodes(settled)
    gone = []
    for row in Taint.objects.filter(node_id__in=nodes, key=key).order_by("node_id"):
        left = [name for name in row.subjects if name not in settled[row.node_id]]
        if left == row.subjects:
            continue
        row.subjects = left
        if left:
            row.save(update_fields=["subjects"])
        else:
            row.delete()
            gone.append(nodes[row.node_id])
    _tell(events.NODE_UNTAINTED, gone, key=key, reason="settled", by=by, now=now)
    for pool_id in sorted({node.pool_id for node in gone if node.pool_id}):
        wake("placement", pool_id)


@in_transaction
def clear_taint(node_ids: Collection[str], key: str, *, by: Actor, now: int, reason: str = "") -> int:
    """Take the taint off these nodes, whatever it was set for; returns how many had it. Their pools are looked at."""
    nodes = lock_nodes(node_ids)
    rows = list(Taint.objects.filter(node_id__in=nodes, key=key))
    Taint.objects.filter(pk__in=[row.pk for row in rows]).delete()
    freed = [nodes[node_id] for node_id in sorted(row.node_id for row in rows)]
    _tell(events.NODE_UNTAINTED, freed, key=key, reason=reason, by=by, now=now)
    for pool_id in sorted({node.pool_id for node in freed if node.pool_id}):
        wake("placement", pool_id)
    return len(freed)


def _tell(type_: str, nodes: list[Node], *, key: str, reason: str, by: Actor, now: int) -> None:
    for node in nodes:
        node.version += 1
    if nodes:
        Node.objects.bulk_update(nodes, ["version"])
        emit(events.node_event(type_, node, by=by, now=now, reason=reason, taint=key) for node in nodes)
