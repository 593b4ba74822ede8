"""Lists with ``scope: all`` among 10,000 ended reservations, for callers from whom most of them are hidden (LST-2)."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

import psycopg

from computeplatform.demo.client import Caller
from computeplatform.demo.stage import Stage

ROWS = 10_000

# Every tenth is the reader's; the others are somebody else's. The newest are first in the list.
_ROWS = """
INSERT INTO reservations_reservation (id, tenant_id, state, reason, conditions, version, creator_id, creator_kind,
    creator_agent_id, credential_id, idempotency_key, digest, created_at, pool_id, device_class, profile, sharing,
    count, nodes, binding, spot, priority, name, labels, duration, estimated_cost, currency, starts_at, ends_at,
    ended_at, placement, changed_at, attempts, context, decision_id, decided, outcome)
SELECT 'res_list' || i, 'platform', 'cancelled', '', '[]', 2,
    CASE WHEN i %% 10 = 0 THEN %(reader)s ELSE 'usr_bench' END, 'user', '', '', 'list-' || i, 'none', compute_now() - i,
    %(pool)s, 'gpu', '', 'exclusive', 1 + i %% 8, 1, 'hold', false, 50, '', '{}', 3600000, 0, '',
    compute_now() + i * 60000, compute_now() + i * 60000 + 3600000, compute_now(), '[]', compute_now(), 1, '{}',
    'dec_bench', true, '{}'
FROM generate_series(1, %(rows)s::int) AS i
"""


@dataclass(frozen=True)
class ListCall:
    """One call to measure: whose, and its body."""

    name: str
    token: str
    body: str


def calls_with_hidden_rows(stage: Stage, database_url: str) -> Iterator[ListCall]:
    """A reserver with every tenth of the rows, and one with none, who makes a call look at all it may."""
    admin = Caller(stage.api, "bench", "platform", stage.platform.token)
    body = json.dumps({"tenantId": "platform", "scope": "all"})
    readers = {}
    for name in ("reader", "stranger"):
        made = admin.iam("principals/create", kind="user", name=name, roles=["reserver"])["principal"]
        readers[made["id"]] = admin.iam("keys/create", principalId=made["id"])["token"]
    (reader, token), (_, other) = readers.items()
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(_ROWS, {"reader": reader, "pool": stage.platform.pool_id, "rows": ROWS})
        connection.execute("ANALYZE reservations_reservation")
    yield ListCall("list of 50 with scope all, 90% hidden", token, body)
    yield ListCall(f"list with scope all, {ROWS} rows hidden", other, body)
