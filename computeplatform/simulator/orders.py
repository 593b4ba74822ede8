"""Faults to order of a simulated node while it runs (NOD-3): a small JSON file beside its state.

The file says what is so, not what is to happen: it is read before every message, so an order holds from the next
message on, is over when it is taken out again, and survives a killed process like the node's own state.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

HELP = """\
Faults are ordered per node, while it runs, in <state-dir>/nodes/<nodeId>.orders.json: a JSON object with any of
  "late": seconds      wait that much longer before every message
  "lost": true         send nothing (what reaches its end is withdrawn all the same)
  "repeat": true       send every message twice, and once more after the next one
  "stuck": true        pods do not go: what is to be withdrawn stays withdrawing; or a list of reservation ids
  "reboot": number     boot again whenever the number has risen: another boot id, and nothing is held
  "sick": [position]   these GPUs are unhealthy
The order holds from the next message on; take it out, or the file away, and it is over.
"""


@dataclass(frozen=True, kw_only=True)
class Orders:
    """What is ordered of a node. ``late`` is in seconds, ``reboot`` counts how often it was to boot again."""

    late: float = 0.0
    lost: bool = False
    repeat: bool = False
    stuck: bool | Sequence[str] = False
    reboot: int = 0
    sick: Sequence[int] = ()

    def sticks(self, reservation_id: str) -> bool:
        """Whether the pods of this reservation stay where they are."""
        return self.stuck if isinstance(self.stuck, bool) else reservation_id in self.stuck


def path_of(state_dir: Path, node_id: str) -> Path:
    """Where the orders of a node are, beside its state."""
    return state_dir / f"{node_id}.orders.json"


def read_orders(path: Path) -> Orders:
    """The orders in force; none without a file. Raises ValueError with words for a person."""
    try:
        stored: Any = json.loads(path.read_text())
    except FileNotFoundError:
        return Orders()
    except (OSError, json.JSONDecodeError) as error:
        raise ValueError(f"{path}: {error}") from None
    try:
        orders = Orders(**stored)
        checked = (float(orders.late) >= 0, int(orders.reboot) >= 0, [int(p) for p in orders.sick], iter(orders.sick))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None
    if not all(checked[:2]) or not isinstance(orders.stuck, bool | list):
        raise ValueError(f"{path}: late and reboot are not negative, stuck is true, false or a list")
    return orders


def write_orders(path: Path, orders: Orders) -> None:
    """Give these orders, in place of those before; the file is replaced as a whole."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(asdict(orders)))
    temporary.replace(path)
