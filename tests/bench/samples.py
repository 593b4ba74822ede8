"""What was measured: rounds of durations."""

import statistics
from dataclasses import dataclass, field


@dataclass
class Samples:
    """Durations in milliseconds, round by round; ``rates`` are calls per second of each round."""

    name: str
    rounds: list[list[float]] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)

    def percentiles(self, percent: int) -> list[float]:
        """The percentile of each round."""
        return [_percentile(values, percent) for values in self.rounds]


def _percentile(values: list[float], percent: int) -> float:
    if len(values) < 2:
        return values[0]
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]
