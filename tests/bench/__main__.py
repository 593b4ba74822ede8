"""Run all benchmarks and print one table. Timings are of this machine at this moment: compare within one run."""

import statistics
import sys

from rich.console import Console
from rich.table import Table

from tests.bench import http, placement
from tests.bench.samples import Samples


def main() -> int:
    """Measure, then print."""
    found: list[Samples] = [*placement.measure(), *http.measure()]
    table = Table(title="Milliseconds: median of the rounds, and their range")
    for heading in ("what", "p50", "p50 range", "p99", "p99 range", "per second"):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    for samples in found:
        table.add_row(samples.name, *_figures(samples))
    Console(width=120).print(table)
    return 0


def _figures(samples: Samples) -> list[str]:
    def of(values: list[float]) -> tuple[str, str]:
        return f"{statistics.median(values):.2f}", f"{min(values):.2f}-{max(values):.2f}"

    rates = [f"{statistics.median(samples.rates):.0f}"] if samples.rates else [""]
    return [*of(samples.percentiles(50)), *of(samples.percentiles(99)), *rates]


if __name__ == "__main__":
    sys.exit(main())
