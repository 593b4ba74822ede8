"""Doing things at once, each on a connection of its own."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from django.db import connections

T = TypeVar("T")


def at_once(work: Sequence[Callable[[], T]]) -> list[T]:
    """Run everything at the same moment, one thread each; returns the results in order, raises what was raised."""
    barrier = threading.Barrier(len(work))

    def run(one: Callable[[], T]) -> T:
        barrier.wait(timeout=30)
        try:
            return one()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(work)) as pool:
        return [future.result(timeout=60) for future in [pool.submit(run, one) for one in work]]
