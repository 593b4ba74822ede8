"""Run all benchmarks and print one table. Timings are of this machine at this moment: compare within one run."""

import statistics
import sys
from itertools import chain

from rich.console import Console
from rich.table import Table

from tests.bench import availability, decisions, http, placement


def main() -> int:
    """Measure, then print."""
    table = Table(title="Milliseconds and calls per second: median of the rounds (lowest-highest)")
    for heading in ("what", "p50", "p99", "per second", ""):
        table.add_column(heading, justify="left" if heading in ("what", "") else "right", no_wrap=True)
    for samples in chain(placement.measure(), availability.measure(), decisions.measure(), http.measure()):
        table.add_row(samples.name, _of(samples.p50, 2), _of(samples.p99, 1), _of(samples.rates, 0), samples.note)
        print(samples.name, _of(samples.p50, 2), _of(samples.p99, 1), _of(samples.rates, 0), file=sys.stderr)
    Console(width=170).print(table)
    return 0


def _of(values: list[float], places: int) -> str:
    if not values:
        return ""
    middle, low, high = (f"{v:.{places}f}" for v in (statistics.median(values), min(values), max(values)))
    return f"{middle} ({low}-{high})"


if __name__ == "__main__":
    sys.exit(main())
