"""The product's Celery app, whose workers can be told to die at a step: ``celery -A tests.crashing:app worker``.

The product knows nothing of this. The steps are wrapped from outside, in each child of the pool. A file (its path is
in ``CRASH_FILE``) names the step: ``before`` or ``after``, and where the function is looked up, for instance
``after reservations.operations.admission.charge_each``. Whoever comes there first takes the file away and kills its
whole worker: the child that works, its siblings and their parent, as `kill -9` or the loss of a machine would.
"""

import contextlib
import functools
import os
import signal
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from celery import signals

from computeplatform.celery import app

__all__ = ["app"]

# Where a step is called from, with the names under which it is looked up there.
STEPS = {
    "iam.operations.decisions": ("pass_gate",),
    "reservations.reconcilers": ("clear_mark", "place_waiting", "advance_due"),
    "reservations.operations.admission": ("decide_many", "decide_drafts", "charge_each", "admit_decided"),
    "reservations.operations.lifecycle": ("_start", "_activate", "end_rows"),
    "reservations.operations.state": ("emit", "notify"),
    "fleet.operations.allocations": ("bind", "withdraw"),
    "computeplatform.wakes": ("wake_now",),
    "computeplatform.events.tasks": ("stamp",),
    "computeplatform.events.outbox": ("try_advisory_lock",),
}


@signals.worker_process_init.connect
def wrap_steps(**_: Any) -> None:
    """Wrap every step where it is looked up, in a child that has everything imported."""
    for name, functions in STEPS.items():
        module = import_module(name)
        for function in functions:
            setattr(module, function, _deadly(getattr(module, function), f"{name}.{function}"))


def _deadly(function: Callable[..., Any], step: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        _die_at(f"before {step}")
        result = function(*args, **kwargs)
        _die_at(f"after {step}")
        return result

    return run


def _die_at(step: str) -> None:
    order = Path(os.environ["CRASH_FILE"])
    with contextlib.suppress(FileNotFoundError):
        if order.read_text() == step:
            order.rename(order.with_suffix(f".{os.getpid()}"))  # one of those that are here dies, and only once
            os.killpg(os.getpgrp(), signal.SIGKILL)
