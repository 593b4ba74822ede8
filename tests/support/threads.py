"""Doing things at once, each on a connection of its own."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from django.db import connections

from computeplatform.db.locks import in_line

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


@contextlib.contextmanager
def held_elsewhere(name: str) -> Iterator[None]:
    """Somebody else stands in this line."""
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        try:
            with in_line(name):
                held.set()
                done.wait(timeout=20)
        finally:
            connections.close_all()

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert held.wait(timeout=20)
        yield
    finally:
        done.set()
        thread.join(20)
