"""The same key with the same request answers the stored object (API-11); reservations have their own rule (CRE-2)."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from django.db import connection

from computeplatform.api.calls import Call
from computeplatform.api.methods import Answer, Method, Replay
from computeplatform.db.retry import in_transaction
from computeplatform.errors import KeyReused


def request_digest(data: Mapping[str, Any], *, without: frozenset[str] = frozenset({"idempotencyKey"})) -> str:
    """A digest of what was asked: absent fields have their defaults by now, key order and spelling do not count."""
    kept = {k: v for k, v in data.items() if k not in without}
    text = json.dumps(kept, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()


@in_transaction
def answer_once(method: Method, replay: Replay, call: Call, data: dict[str, Any], loaded: Any) -> Answer:
    """Run the method's handler for a new key, else answer what it made the first time.

    The key's row and the object are one transaction: a second call with the key waits for the first to commit, and
    a refused call leaves the key unused. Raises KeyReused for another request.
    """
    digest = request_digest(data)
    row = [call.tenant_id, call.caller.identity, f"{method.service}/{method.id}", data["idempotencyKey"]]
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO computeplatform_idempotencykey (tenant_id, identity, method, key, digest, object_id,"
            " created_at) VALUES (%s, %s, %s, %s, %s, '', %s) ON CONFLICT DO NOTHING",
            [*row, digest, call.now],
        )
        if not cursor.rowcount:
            cursor.execute(
                "SELECT digest, object_id FROM computeplatform_idempotencykey"
                " WHERE (tenant_id, identity, method, key) = (%s, %s, %s, %s)",
                row,
            )
            stored_digest, object_id = cursor.fetchone()
            if stored_digest != digest:
                raise KeyReused(id=object_id)
            return replay.answer(call, object_id)
        answer = method.handler(call, data, loaded)
        cursor.execute(
            "UPDATE computeplatform_idempotencykey SET object_id = %s"
            " WHERE (tenant_id, identity, method, key) = (%s, %s, %s, %s)",
            [replay.stored_id(answer), *row],
        )
        return answer
