"""What operators do on the fleet's pages (OPS-1): each act is decided on the fleet, and done by the operations."""

from typing import Any

from computeplatform.admin_tools import Act, Operating
from computeplatform.api.calls import Actor
from fleet.contracts import MASS_SILENCE, PLATFORM
from fleet.domain.nodes import ADOPTING
from fleet.models import Maintenance, Node, Pool, Taint
from fleet.operations import maintenance, nodes
from fleet.operations.operating import authorise_act
from fleet.operations.silence import end_mass_silence
from fleet.operations.taints import clear_taint


def _on_node(node_id: str, by: Operating, method: str) -> Actor:
    return authorise_act("node", node_id, tenant_id=PLATFORM, by=by, method=method)


def _cordon(node: Node, by: Operating) -> str:
    actor = _on_node(node.id, by, "nodes/cordon")
    nodes.cordon_node(node_id=node.id, reason=by.reason, version=None, by=actor, now=by.context.time)
    return "cordoned"


def _uncordon(node: Node, by: Operating) -> str:
    actor = _on_node(node.id, by, "nodes/uncordon")
    nodes.uncordon_node(node_id=node.id, version=None, by=actor, now=by.context.time)
    return "takes bookings again"


def _drain(node: Node, by: Operating) -> str:
    actor = _on_node(node.id, by, "nodes/drain")
    nodes.drain_node(node_id=node.id, reason=by.reason, version=None, by=actor, now=by.context.time)
    return "draining"


def _remove(node: Node, by: Operating) -> str:
    actor = _on_node(node.id, by, "nodes/remove")
    nodes.remove_node(node_id=node.id, version=None, by=actor, now=by.context.time)
    return "removed"


def _adopt(node: Node, by: Operating) -> str:
    actor = _on_node(node.id, by, "nodes/adopt")
    nodes.adopt_node(node_id=node.id, reason=by.reason, by=actor, now=by.context.time)
    return "adopted"


def _end_silence(pool: Pool, by: Operating) -> str:
    actor = authorise_act("pool", pool.id, tenant_id=pool.tenant_id, by=by, method="pools/endMassSilence")
    end_mass_silence(pool_id=pool.id, reason=by.reason, by=actor, now=by.context.time)
    return "its silent nodes are lost"


def _clear_taints(node: Node, by: Operating) -> str:
    actor = _on_node(node.id, by, "nodes/clearTaints")
    for key in _clearable(node):
        clear_taint([node.id], key, by=actor, now=by.context.time, reason=by.reason)
    return "has no taints that an operator clears"


def _clearable(node: Node) -> list[str]:
    """The taint of many silent nodes goes when they are heard of, or by the operator's word on the pool."""
    return list(node.taints.exclude(key=MASS_SILENCE).order_by("key").values_list("key", flat=True))


def _cancel(row: Maintenance, by: Operating) -> str:
    actor = _on_node(row.node_id, by, "nodes/cancelMaintenance")
    maintenance.cancel_maintenance(node_id=row.node_id, maintenance_id=row.id, by=actor, now=by.context.time)
    return "cancelled"


def _foresee_removal(node: Node) -> Any:
    if node.removed_at is not None:
        return "is removed already; nothing changes"
    count = node.allocations.count()
    return f"{count} allocations are in the way" if count else "its software's key is revoked; it does not come back"


def _foresee_adoption(node: Node) -> Any:
    if node.state != ADOPTING:
        return "is not adopting; nothing changes"
    count = len(node.unknown_allocations or ())
    return f"is told to withdraw {count} allocations that are unknown here" if count else "works on; nothing is unknown"


def _foresee_silence(pool: Pool) -> Any:
    if pool.mass_silence_since is None:
        return "shows no mass silence; nothing changes"
    held = Taint.objects.filter(node__pool=pool, key=MASS_SILENCE).count()
    return f"what is silent still of its {held} held nodes is lost; what runs there ends when its grace has run out"


CORDON = Act(
    name="cordon",
    title="Cordon",
    question="Cordon: nothing new is booked there, and what is booked runs on.",
    foresee=lambda node: "is cordoned already; its reason changes" if node.cordoned else "takes no new bookings",
    perform=_cordon,
)
UNCORDON = Act(
    name="uncordon",
    title="Uncordon",
    question="Uncordon: they take bookings again, and what waits in their pool is tried at once.",
    foresee=lambda node: "takes bookings again" if node.cordoned else "is not cordoned; nothing changes",
    perform=_uncordon,
)
DRAIN = Act(
    name="drain",
    title="Drain",
    question="Drain: nothing new is booked there, what has not started moves, and spot work is preempted.",
    foresee=lambda node: "is draining already; its reason changes" if node.draining else "is emptied",
    perform=_drain,
)
REMOVE = Act(
    name="remove",
    title="Remove",
    question="Remove: they leave the fleet for good, if nothing is booked there.",
    foresee=_foresee_removal,
    perform=_remove,
)
ADOPT = Act(
    name="adopt",
    title="Adopt",
    question="Adopt: what is stored here holds, and the nodes withdraw what is unknown here.",
    foresee=_foresee_adoption,
    perform=_adopt,
)
END_SILENCE = Act(
    name="end_silence",
    title="Give up what is silent",
    question="Give up what is silent: nodes that fell silent with many others are lost, each since its last contact.",
    foresee=_foresee_silence,
    perform=_end_silence,
)
CLEAR_TAINTS = Act(
    name="clear_taints",
    title="Clear taints",
    question="Clear taints: the nodes take bookings again, whatever the taints were set for.",
    foresee=lambda node: f"loses {', '.join(keys)}" if (keys := _clearable(node)) else "has none; nothing changes",
    perform=_clear_taints,
)
CANCEL = Act(
    name="cancel",
    title="Cancel",
    question="Cancel: what is left of the maintenance does not take place.",
    foresee=lambda row: f"node {row.node.name} takes bookings in that time again",
    perform=_cancel,
)
