"""Who is silent, and what that means (REC-4, REC-8): pure rules over last contacts. Times in epoch milliseconds."""

from collections.abc import Sequence
from dataclasses import dataclass

from fleet.domain.nodes import HEARTBEAT_SECONDS

# Silent for so long, a node is lost.
LOST_AFTER = 3 * HEARTBEAT_SECONDS * 1_000
# Silent for so long, it counts among many that fall silent at once. Nodes report one after the other within a
# heartbeat: where all are cut off at one moment, the last of them was heard a heartbeat after the first, and has to be
# seen before the first is declared lost.
SUSPECT_AFTER = LOST_AFTER // 2


@dataclass(frozen=True)
class Quiet:
    """A node that has been silent for ``SUSPECT_AFTER`` and more, in which we could hear.

    ``overdue``: for ``LOST_AFTER`` and more. ``lost``: it was declared so before. ``held``: it is one of many, and
    waits for an operator's word or gives its own.
    """

    id: str
    last_contact: int
    overdue: bool
    lost: bool = False
    held: bool = False


@dataclass(frozen=True)
class Limits:
    """When silence is of many at once: over ``percent`` of a pool, at least ``nodes``, within ``within`` (ms)."""

    percent: int
    nodes: int
    within: int


@dataclass(frozen=True)
class Verdict:
    """``lost``: to be declared lost; ``many``: fell silent at once, so none of them is lost. Ids in order."""

    lost: tuple[str, ...] = ()
    many: tuple[str, ...] = ()


def judge(quiet: Sequence[Quiet], *, nodes: int, limits: Limits, settled_before: int = 0) -> Verdict:
    """What becomes of the quiet nodes of a pool of ``nodes`` nodes.

    Nodes that were lost and last heard of before ``settled_before`` have had an operator's word: they are lost and
    count for nothing else. Whoever is held stays held: only its own report or an operator ends that.
    """
    counted = [node for node in quiet if not (node.lost and node.last_contact < settled_before)]
    many = _at_once(counted, nodes=nodes, limits=limits) | {node.id for node in quiet if node.held}
    overdue = {node.id for node in quiet if node.overdue and not node.lost}
    return Verdict(lost=tuple(sorted(overdue - many)), many=tuple(sorted(many)))


def _at_once(quiet: Sequence[Quiet], *, nodes: int, limits: Limits) -> set[str]:
    """Everybody in a stretch of ``within`` in which too many were heard for the last time, and one is overdue now."""
    found: set[str] = set()
    ordered = sorted(quiet, key=lambda node: (node.last_contact, node.id))
    first = 0
    for last, node in enumerate(ordered):
        while node.last_contact - ordered[first].last_contact > limits.within:
            first += 1
        stretch = ordered[first : last + 1]
        too_many = len(stretch) >= limits.nodes and len(stretch) * 100 > limits.percent * nodes
        if too_many and any(one.overdue and not one.lost for one in stretch):
            found.update(one.id for one in stretch)
    return found
