"""The loops of the fleet. Each pass reads what is stored and does what is due."""

import structlog

from computeplatform.clock import compute_now
from computeplatform.db.ticks import record_tick
from fleet.operations.silence import judge_silence, pools_with_silence

log = structlog.get_logger(__name__)


def silence_tick() -> None:
    """Judge the nodes that were not heard of lately, pool by pool; one pool's failure keeps no other waiting."""
    now = compute_now()
    for pool_id in pools_with_silence(now=now):
        try:
            judge_silence(pool_id=pool_id, now=now)
        except Exception:
            log.exception("silence_not_judged", pool_id=pool_id)
    record_tick("silence", now=now)
