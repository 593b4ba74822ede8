"""A pool of 1,000 nodes with 8 GPUs, and live reservations in it, written by SQL: set-up is not what is measured."""

import time
from concurrent.futures import ThreadPoolExecutor

import psycopg

NODES = 1_000

_POOL = """
WITH source AS (SELECT * FROM fleet_pool WHERE id = %(pool)s), made AS (
    INSERT INTO fleet_node (id, name, pool_id, positions, unit_base, state, cordoned, cordon_reason, labels, software,
        boot_id, session, sequence, last_heartbeat_at, created_at, created_by, version)
    SELECT 'node_bench' || i, 'bench-' || i, %(pool)s, 8, (100000 + i) * 16384::bigint, 'ready', false, '', '{}',
        '{}', 'boot', 1, 1, compute_now(), compute_now(), 'bench', 1
    FROM generate_series(1, %(nodes)s::int) AS i, source RETURNING id
)
INSERT INTO fleet_device (node_id, position, uuid, model, memory_mib, health, mig, first_seen_at)
SELECT id, p, 'GPU-' || id || '-' || p, 'h100-sxm-80g', 81920, 'ok', '[]', compute_now()
FROM made, generate_series(0, 7) AS p
"""

# Live for a day, one GPU each, as admission leaves them; every eighth fills another node.
_LIVE = """
WITH made AS (
    INSERT INTO reservations_reservation (id, tenant_id, state, reason, conditions, version, creator_id, creator_kind,
        creator_agent_id, credential_id, idempotency_key, digest, created_at, pool_id, device_class, profile, sharing,
        count, nodes, binding, spot, priority, name, labels, duration, estimated_cost, currency, starts_at, ends_at,
        active_at, binding_since, placement, changed_at, attempts, context, decision_id, decided, outcome, due_at)
    SELECT 'res_bench' || i, 'platform', 'active', '', '[]', 3, 'usr_bench', 'user', '', '', 'bench-' || i, 'none', t,
        %(pool)s, 'gpu', '', 'exclusive', 1, 1, 'hold', false, 50, '', '{}', 86400000, 0, '', t, t + 86400000, t, t,
        '[]', t, 1, '{}', 'dec_bench', true, '{}', t + 86400000
    FROM generate_series(%(first)s::int, %(last)s::int) AS i, (SELECT compute_now() AS t) AS now
    RETURNING id, starts_at, ends_at
), numbered AS (SELECT *, substr(id, 10)::int - 1 AS n FROM made)
INSERT INTO reservations_booking (reservation_id, tenant_id, pool_id, node_id, units, devices, planned, during, billed)
SELECT m.id, 'platform', %(pool)s, node.id,
    int8range(node.unit_base + (n / %(nodes)s::int) * 256, node.unit_base + (n / %(nodes)s::int) * 256 + 256), 1,
    int8range(starts_at, ends_at), int8range(starts_at, ends_at), int8range(starts_at, ends_at)
FROM numbered m JOIN fleet_node node ON node.name = 'bench-' || (1 + n %% %(nodes)s::int)
"""


class LoadedPool:
    """The pool of an installation, made large."""

    def __init__(self, database_url: str, pool_id: str) -> None:
        self._connection = psycopg.connect(database_url, autocommit=True)
        self._pool_id = pool_id
        self._live = 0
        self._connection.execute(_POOL, {"pool": pool_id, "nodes": NODES})

    def fill(self, live: int) -> None:
        """Have so many live reservations, and nothing that calls have made."""
        values = {"pool": self._pool_id, "nodes": NODES, "first": self._live + 1, "last": live}
        with self._connection.transaction():
            self._empty()
            if live > self._live:
                self._connection.execute(_LIVE, values)
                self._live = live
        self._connection.execute("VACUUM ANALYZE")

    def empty_of_calls(self) -> None:
        """End what calls have made: bookings away, states terminal, so that each round begins with the same pool."""
        with self._connection.transaction():
            self._empty()

    def _empty(self) -> None:
        # Calls that wrk has hung up on may be in the middle of their admission: that holds the pool's lock.
        self._connection.execute("SELECT 1 FROM fleet_pool WHERE id = %s FOR UPDATE", [self._pool_id])
        ours = "reservation_id NOT LIKE 'res_bench%'"
        self._connection.execute(f"DELETE FROM reservations_booking WHERE {ours}")
        self._connection.execute(f"DELETE FROM fleet_allocation WHERE {ours}")
        self._connection.execute(
            "UPDATE reservations_reservation SET state = 'cancelled', ended_at = changed_at, due_at = NULL,"
            " call_open_until = NULL WHERE id NOT LIKE 'res_bench%' AND state <> 'cancelled'"
        )

    def prepare_bare(self) -> None:
        """The table of the bare view and of the plain commits."""
        self._connection.execute("CREATE TABLE IF NOT EXISTS bench_row (id bigserial PRIMARY KEY, body text)")


def plain_commits(database_url: str, *, clients: int, seconds: float) -> int:
    """How many one-row transactions this many connections commit at once: what the server can do at this moment."""

    def insert(_: int) -> int:
        with psycopg.connect(database_url, autocommit=True) as connection:
            until, done = time.perf_counter() + seconds, 0
            while time.perf_counter() < until:
                connection.execute("INSERT INTO bench_row (body) VALUES ('x')")
                done += 1
            return done

    with ThreadPoolExecutor(clients) as pool:
        return sum(pool.map(insert, range(clients)))
