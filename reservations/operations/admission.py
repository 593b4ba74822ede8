"""Admission: draft → decided → charged and placed or pending (CRE-1). One pass does all that is due in a pool.

Each step starts from what is stored, so anybody may call it at any time: the woken task, a retry, the tick after a
crash. The decisions of a pass are one transaction; charge, state, bookings, events and answers are another, under the
pool's lock.
"""

from collections.abc import Collection
from dataclasses import dataclass
from decimal import Decimal
from functools import partial

from computeplatform.api.calls import CallContext, Caller, system_actor
from computeplatform.db.locks import Line, in_line, notify
from computeplatform.db.retry import in_transaction
from computeplatform.errors import AccessDenied, InvalidInput, Refusal, Unauthenticated
from computeplatform.parking import CHANNEL
from computeplatform.quantities import covers_cost, money
from computeplatform.wakes import wake
from fleet import queries as fleet
from fleet.contracts import PoolView
from fleet.errors import PoolNotFound
from iam.operations.decisions import Question, decide_many
from iam.queries.credentials import live_callers
from quotas.contracts import ChargeRequest
from quotas.operations.charges import charge_each
from reservations import locks, queries
from reservations.domain import charges, requests, states
from reservations.errors import MaxCostExceeded, stored
from reservations.models import Reservation
from reservations.operations import confirming
from reservations.operations.drafts import rest_failed
from reservations.operations.isolation import isolated
from reservations.operations.placing import place_admitted
from reservations.operations.queueing import POOL_LEASE, enqueue
from reservations.operations.state import Changes
from reservations.queries import asked, booked_on_each, cost_of, decision_resource, share_on_each

BATCH = 64
LOOP = "capacity.admission"


@dataclass(frozen=True)
class Report:
    """What one pass did: how many drafts it decided, and how many it brought to their outcome."""

    decided: int = 0
    admitted: int = 0

    @property
    def full(self) -> bool:
        """Whether there may be more to do. What came after this pass has read has a wake of its own."""
        return self.decided >= BATCH or self.admitted >= BATCH


def admit_pool(pool_id: str, *, now: int) -> Report:
    """Bring up to ``BATCH`` due drafts of the pool as far as they go.

    A draft at which this fails is answered INTERNAL_ERROR and rests; the others go on without it. Where another pass
    waits for the pool's lock already, that one admits what this one has decided: a pool that is held up must not hold
    all workers.
    """
    due = partial(queries.open_draft_ids, pool_id=pool_id, now=now, limit=BATCH)
    decide = partial(decide_drafts, pool_id=pool_id, now=now)
    decided = isolated(decide, due=partial(due, decided=False), give_up=_answer_failed)
    with in_line(f"admission:{pool_id}") as line:
        if line is None:
            return Report(decided)
        admit = partial(admit_decided, pool_id=pool_id, now=now, line=line)
        return Report(decided, isolated(admit, due=partial(due, decided=True), give_up=_answer_failed))


def _answer_failed(reservation_id: str) -> None:
    rest_failed(reservation_id=reservation_id)


@in_transaction
def decide_drafts(*, pool_id: str, now: int, only: Collection[str] | None = None) -> int:
    """Ask IAM once about each due draft that has no decision.

    Refused ones are answered and stay denied (CRE-5); what lacks a confirmation alone waits for it (CRE-8).
    """
    rows = locks.claim_drafts(pool_id=pool_id, decided=False, now=now, limit=BATCH, only=only)
    if not rows:
        return 0
    pool = fleet.pools_by_id([pool_id])[pool_id]
    changes = Changes(by=system_actor(LOOP), now=now)
    questions: list[tuple[Reservation, Question]] = []
    callers = live_callers([_who(row) for row in rows], now=now)
    for row in rows:
        changes.touch(row)
        if late := _too_late(row, now=now):
            # There is no window left to decide on, and the key must not be refused for that.
            _rest(row, late)
        elif caller := callers.get(_who(row)):
            price(row, pool, now=now)
            questions.append((row, _question(row, caller, pool, now=now)))
        else:
            # The credential was revoked after the call had been accepted.
            _rest(row, Unauthenticated())
    for (row, _), verdict in zip(questions, decide_many([q for _, q in questions], now=now), strict=True):
        row.decision_id = verdict.decision_id
        if verdict.allowed:
            row.decided = True
        elif verdict.confirmation:
            _rest(row, confirming.required(row, verdict.confirmation))
            confirming.wait_for(row, verdict.confirmation, changes)
        else:
            _rest(row, AccessDenied())
            changes.move(row, "deny")
    changes.write()
    notify(CHANNEL, [row.id for row in rows if row.outcome is not None])
    return len(rows)


def _who(row: Reservation) -> tuple[str, str, str]:
    return row.creator_id, row.credential_id, row.creator_agent_id


def _question(row: Reservation, caller: Caller, pool: PoolView, *, now: int) -> Question:
    context = CallContext(
        time=row.context["time"], source_ip=row.context.get("sourceIp"), request_id=row.context["requestId"]
    )
    resource = decision_resource(row, pool, now=now)
    return Question(caller, confirming.CREATE, resource, context, gate=confirming.draft_gate(row))


def price(row: Reservation, pool: PoolView, *, now: int) -> None:
    """The estimate at the pool's present price. What admission finds stays: for a later placement too (QTA-3)."""
    window = requests.window_at(asked(row), now)
    row.price = pool.policy.as_json().get("price")
    row.estimated_cost = cost_of(row, milliseconds=window.ends_at - window.starts_at, price=row.price)
    row.currency = row.price["currency"] if row.price else ""


@in_transaction
def admit_decided(*, pool_id: str, now: int, only: Collection[str] | None = None, line: Line | None = None) -> int:
    """Charge, then place or leave pending, every allowed draft of the pool, in one transaction under its lock."""
    pool, now = locks.lock_pool(pool_id, now=now, line=line)
    rows = locks.claim_drafts(pool_id=pool_id, decided=True, now=now, limit=BATCH, only=only)
    if not rows:
        return 0
    changes = Changes(by=system_actor(LOOP), now=now)
    visible = fleet.tenants_that_may_book(pool_id)
    valid = []
    for row in rows:
        changes.touch(row)
        approved, currency = Decimal(row.estimated_cost), row.currency
        refusal = refusal_before_charge(row, pool, visible, now=now)
        if refusal:
            _rest(row, refusal)
        elif row.confirmation_id and not covers_cost(
            approved=approved, approved_currency=currency, cost=row.estimated_cost, currency=row.currency
        ):
            # The price was raised between decision and charge: what was approved is less (IAM-6). It is decided anew.
            row.decided, row.decision_id = False, ""
            wake("admission", pool_id)
        else:
            valid.append(row)
    refused = charge_each([charge_request(row) for row in valid], now=now)
    for row in valid:
        if row.id in refused:
            _rest(row, refused[row.id])
    charged = [row for row in valid if row.id not in refused]
    admit = enqueue if pool.policy.placer == POOL_LEASE else place_admitted
    admit(charged, pool, changes, now=now)
    changes.write()
    # Those that were admitted have been told of with their changes.
    notify(CHANNEL, [row.id for row in rows if row.state == states.DRAFT])
    return len(rows)


def refusal_before_charge(row: Reservation, pool: PoolView, visible: frozenset[str], *, now: int) -> Refusal | None:
    """What has come up since the draft was stored: the pool is gone, the window has passed, the cost is too high."""
    if pool.archived_at is not None or row.tenant_id not in visible:
        return PoolNotFound()
    if late := _too_late(row, now=now):
        return late
    price(row, pool, now=now)
    if row.max_cost is not None and Decimal(row.estimated_cost) > row.max_cost:
        return MaxCostExceeded(
            cost=money(Decimal(row.estimated_cost)), max_cost=money(row.max_cost), currency=row.currency
        )
    return None


def _too_late(row: Reservation, *, now: int) -> Refusal | None:
    if row.requested_ends_at is not None and row.requested_ends_at <= now:
        return InvalidInput.at("endsAt", "is in the past")
    if row.start_before is not None and row.start_before <= now:
        return InvalidInput.at("startBefore", "is in the past")
    return None


def _rest(row: Reservation, refusal: Refusal) -> None:
    """The draft is answered: it rests until its key is retried, and is decided anew then (CRE-20)."""
    row.call_open_until = None
    row.decided = False
    row.outcome = {"refusal": stored(refusal)}


def charge_request(row: Reservation) -> ChargeRequest:
    """What this reservation is charged."""
    amounts = charges.amounts(
        device_class=row.device_class,
        profile=row.profile,
        count=row.count,
        nodes=row.nodes,
        booked=booked_on_each(row),
        share=share_on_each(row),
    )
    return ChargeRequest(reservation_id=row.id, tenant_id=row.tenant_id, pool_id=row.pool_id, amounts=amounts)
