"""Back to those that wait: what has to leave its nodes before it has run is placed elsewhere (REC-4, REC-7, NOD-1)."""

from computeplatform.conditions import Condition, from_json, to_json, with_condition, without_condition
from fleet.contracts import PoolView
from reservations.domain.conditions import HELD_BY_PREVIOUS, UNSCHEDULABLE
from reservations.domain.shortfalls import NODES_UNAVAILABLE
from reservations.models import Reservation
from reservations.operations.state import Changes
from reservations.queries import give_up_at


def send_back(row: Reservation, event: str, pool: PoolView, changes: Changes, *, reason: str, words: str) -> None:
    """Move a placed or binding one to pending, by ``event`` of the machine; ``words`` say why. Its charge stays.

    The caller has its nodes left after this (``leave_nodes``), of many rows at once.
    """
    row.pending_since = changes.now
    row.binding_since = row.starts_at = row.ends_at = None
    row.placement = []
    row.due_at = give_up_at(row, pool)
    told = Condition(UNSCHEDULABLE, "True", NODES_UNAVAILABLE, words, changes.now)
    kept = without_condition(from_json(row.conditions), HELD_BY_PREVIOUS)
    row.conditions = to_json(with_condition(kept, told))
    changes.move(row, event, reason=reason)
