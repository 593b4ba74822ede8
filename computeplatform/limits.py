"""How often something may be done: buckets that hold one minute's worth and refill evenly (API-12).

The buckets are in Redis, where all processes share them; taking from several is one round trip. While Redis is away
each process keeps its own (API-7). Time is given: it is the caller's ``now``, the database's clock.

A bucket is its level and when it had that level. Whole numbers make every limit exact: in units of 1/60,000 of a call
a bucket that gives ``per_minute`` calls refills by ``per_minute`` each millisecond, and a call takes 60,000.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import redis
import structlog
from prometheus_client import Counter

from computeplatform.redis_client import redis_client

log = structlog.get_logger(__name__)

REFUSED = Counter("compute_limited_total", "Calls and sign-ins that were refused because there were too many", ["kind"])

UNIT = 60_000
# For so long Redis is left alone after it has failed: not every call is to wait until it gives up again.
AWAY_SECONDS = 5.0
# How many buckets of each kind a process keeps while Redis is away; the one not used for longest makes room.
KEPT = 10_000

# KEYS are buckets, ARGV the time in milliseconds, what to take from each (less than nothing gives back), and the calls
# per minute of each. Answers per bucket for how many milliseconds it lacks that; only if none does, something is taken.
# A bucket is full again after a minute at the latest, and then need not be remembered.
_TAKE = """
local now, amount = tonumber(ARGV[1]), tonumber(ARGV[2])
local waits, found, enough = {}, {}, true
for i, key in ipairs(KEYS) do
    local rate = tonumber(ARGV[i + 2])
    local used, at = string.match(redis.call('GET', key) or '', '^(%d+) (%d+)$')
    used, at = tonumber(used or 0), tonumber(at or now)
    used = math.max(0, used - rate * math.max(0, now - at)) + amount
    local excess = used - rate * 60000
    waits[i] = excess > 0 and math.ceil(excess / rate) or 0
    enough = enough and (excess <= 0 or amount <= 0)
    found[i] = string.format('%.0f %.0f', math.max(0, used), math.max(now, at))
end
if enough then
    for i, key in ipairs(KEYS) do
        redis.call('SET', key, found[i], 'PX', 61000)
    end
    return 0
end
return waits
"""


@dataclass(frozen=True)
class Bucket:
    """``owner``'s bucket of one kind; it holds ``per_minute`` (1-600,000) and refills as much in a minute."""

    kind: str
    owner: str
    per_minute: int

    @property
    def key(self) -> str:
        return f"compute:limit:{self.kind}:{self.owner}"


@dataclass(frozen=True)
class Shortage:
    """The bucket that lacks what was wanted for longest, and for how long, in whole seconds (1-60)."""

    bucket: Bucket
    seconds: int


class LocalBuckets:
    """The same buckets in this process alone."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._lock = threading.Lock()
        self._found: dict[str, OrderedDict[str, tuple[int, int]]] = {}

    def take(self, buckets: Sequence[Bucket], *, amount: int, now: int) -> list[int]:
        """As the script does it: per bucket the milliseconds until there is enough, nothing taken unless all are 0."""
        with self._lock:
            after = [self._after(bucket, amount, now) for bucket in buckets]
            excess = [used - bucket.per_minute * UNIT for (used, _), bucket in zip(after, buckets, strict=True)]
            if amount > 0 and max(excess) > 0:
                pairs = zip(excess, buckets, strict=True)
                return [max(0, -(-over // bucket.per_minute)) for over, bucket in pairs]
            for bucket, (used, at) in zip(buckets, after, strict=True):
                self._keep(bucket, (max(0, used), at))
            return [0] * len(buckets)

    def _after(self, bucket: Bucket, amount: int, now: int) -> tuple[int, int]:
        used, at = self._found.get(bucket.kind, OrderedDict()).get(bucket.owner, (0, now))
        return max(0, used - bucket.per_minute * max(0, now - at)) + amount, max(now, at)

    def _keep(self, bucket: Bucket, value: tuple[int, int]) -> None:
        of_kind = self._found.setdefault(bucket.kind, OrderedDict())
        of_kind[bucket.owner] = value
        of_kind.move_to_end(bucket.owner)
        if len(of_kind) > self._kept:
            of_kind.popitem(last=False)


class Limiter:
    """Buckets in Redis, or in this process while Redis is away. ``monotonic`` gives seconds."""

    def __init__(
        self, client: Callable[[], redis.Redis] = redis_client, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._client = client
        self._monotonic = monotonic
        self._local = LocalBuckets()
        self._lock = threading.Lock()
        self._away_until: float | None = None
        self._script: redis.commands.core.Script | None = None

    def take(self, *buckets: Bucket, now: int) -> Shortage | None:
        """Take one from each, or nothing from any and say what is short."""
        waits = self._take(buckets, amount=UNIT, now=now)
        wait, bucket = max(zip(waits, buckets, strict=True), key=lambda pair: pair[0])
        if wait == 0:
            return None
        REFUSED.labels(bucket.kind).inc()
        return Shortage(bucket, min(60, -(-wait // 1000)))

    def give_back(self, *buckets: Bucket, now: int) -> None:
        """Put back what ``take`` has taken from each."""
        self._take(buckets, amount=-UNIT, now=now)

    def _take(self, buckets: Sequence[Bucket], *, amount: int, now: int) -> list[int]:
        if self._may_ask():
            try:
                waits = self._ask(buckets, amount, now)
            except (redis.RedisError, OSError) as error:
                self._gone(error)
            else:
                self._there()
                return waits
        return self._local.take(buckets, amount=amount, now=now)

    def _ask(self, buckets: Sequence[Bucket], amount: int, now: int) -> list[int]:
        client = self._client()
        if self._script is None or self._script.registered_client is not client:
            self._script = client.register_script(_TAKE)
        answer = self._script([b.key for b in buckets], [now, amount, *(b.per_minute for b in buckets)], client)
        return answer or [0] * len(buckets)

    def _may_ask(self) -> bool:
        """Whether to ask Redis; after a pause one call tries, and the others go on without until it has an answer."""
        if self._away_until is None:
            return True
        with self._lock:
            if self._away_until is None or self._monotonic() < self._away_until:
                return self._away_until is None
            self._away_until = self._monotonic() + AWAY_SECONDS
            return True

    def _gone(self, error: Exception) -> None:
        with self._lock:
            if self._away_until is None:
                log.warning("limits_without_redis", error=str(error))
            self._away_until = self._monotonic() + AWAY_SECONDS

    def _there(self) -> None:
        if self._away_until is not None:
            with self._lock:
                self._away_until = None
            log.info("limits_with_redis_again")


limiter = Limiter()
