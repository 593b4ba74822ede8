"""Processor time of an installation's parts: what a call costs, whatever else the machine does meanwhile."""

import contextlib
from collections import defaultdict
from pathlib import Path

import psutil

from computeplatform.server_plans import MARK

# How a part is known by its command line; the first that fits.
_PARTS = (("web", "granian"), ("workers", " worker "), ("postgres", "postgres"), ("redis", "valkey"))


class Meter:
    """The parts of the installation with this state directory."""

    def __init__(self, state_dir: Path) -> None:
        self._mark = str(state_dir)

    def used(self) -> dict[str, float]:
        """Seconds so far, by part."""
        found: dict[str, float] = defaultdict(float)
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                # What PostgreSQL forks writes its title over its environment.
                marked = process.parent() if process.name() == "postgres" else None
                if self._mark in {p.environ().get(MARK) for p in (process, marked) if p}:
                    times = process.cpu_times()
                    found[_part(process)] += times.user + times.system
        return found


def per_call(before: dict[str, float], after: dict[str, float], calls: float) -> str:
    """In words: milliseconds per call of each part, in all."""
    used = {part: 1000 * (after[part] - before[part]) / calls for part, _ in _PARTS}
    return ", ".join(f"{part} {ms:.1f}" for part, ms in used.items() if ms >= 0.05)


def _part(process: psutil.Process) -> str:
    words = f"{process.name()} {' '.join(process.cmdline())} "
    return next((part for part, sign in _PARTS if sign in words), "other")
