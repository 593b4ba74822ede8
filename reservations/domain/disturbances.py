"""What becomes of a reservation when its nodes or devices fail it (REC-4, NOD-1, NOD-5): pure rules over levels.

Times are epoch milliseconds, ranges half-open.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fleet.contracts import NodeTrouble, SickDevice


@dataclass(frozen=True)
class Share:
    """A run of units that a reservation has of one node."""

    node_id: str
    units: tuple[int, int]


@dataclass(frozen=True)
class Disturbance:
    """What of a reservation is in trouble.

    ``lost`` gives the last contact of each of its nodes that is lost; ``sick`` its devices that are not ok, by node;
    ``draining`` says that one of its nodes is to be emptied; ``down_since`` is when the last of its devices fell sick,
    None while one is well.
    """

    lost: Mapping[str, int]
    sick: tuple[tuple[str, SickDevice], ...]
    draining: bool
    down_since: int | None

    @property
    def is_felt(self) -> bool:
        """Whether one that runs notices it: draining it does not."""
        return bool(self.lost or self.sick)

    @property
    def displaces(self) -> bool:
        """Whether one that has not started leaves its place."""
        return self.is_felt or self.draining


def disturbance(shares: Sequence[Share], troubles: Mapping[str, NodeTrouble]) -> Disturbance:
    """What of these shares is in trouble; ``troubles`` by node."""
    affected = {node_id: troubles[node_id] for node_id in sorted({share.node_id for share in shares} & troubles.keys())}
    sick = [
        (node_id, device)
        for node_id, trouble in affected.items()
        for device in trouble.sick
        if any(share.node_id == node_id and _meet(share.units, device.units) for share in shares)
    ]
    well = any(_length(share.units) > _covered(share, sick) for share in shares)
    return Disturbance(
        lost={node_id: trouble.lost_at for node_id, trouble in affected.items() if trouble.lost_at is not None},
        sick=tuple(sick),
        draining=any(trouble.draining for trouble in affected.values()),
        down_since=None if well or not sick else max(device.since for _, device in sick),
    )


def _covered(share: Share, sick: Iterable[tuple[str, SickDevice]]) -> int:
    here = [device.units for node_id, device in sick if node_id == share.node_id]
    return sum(max(0, min(high, share.units[1]) - max(low, share.units[0])) for low, high in here)


def _meet(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def _length(units: tuple[int, int]) -> int:
    return units[1] - units[0]


def lost_words(lost: Mapping[str, int]) -> str:
    """Which nodes are lost, for people."""
    heard = [f"{node_id} was last heard of at {_at(moment)}" for node_id, moment in sorted(lost.items())]
    return "; ".join(heard)


def sick_words(sick: Iterable[tuple[str, SickDevice]]) -> str:
    """Which devices are sick, for people."""
    return "; ".join(f"{d.uuid} at position {d.position} of {node_id} is {d.health}" for node_id, d in sick)


def sick_json(sick: Iterable[tuple[str, SickDevice]]) -> list[dict[str, Any]]:
    """Which devices are sick, for the event."""
    return [
        {"nodeId": node_id, "position": device.position, "uuid": device.uuid, "health": device.health}
        for node_id, device in sick
    ]


def _at(moment: int) -> str:
    return f"{datetime.fromtimestamp(moment / 1000, tz=UTC):%Y-%m-%d %H:%M:%S} UTC"
