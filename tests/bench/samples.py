"""What was measured, round by round."""

from dataclasses import dataclass, field


@dataclass
class Samples:
    """Milliseconds and calls per second of each round; a list stays empty where a figure makes no sense."""

    name: str
    p50: list[float] = field(default_factory=list)
    p99: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    note: str = ""
