"""What a create would come to, without doing it (CRE-19): the same checks, decision, charge and placement as a create
of this moment, in the web process, on what is stored just now. Nothing is locked, and nothing written but the audit
entry.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from computeplatform.api.calls import Call, Verdict
from computeplatform.db.retry import in_transaction
from computeplatform.errors import AccessDenied, Refusal
from fleet.contracts import PoolView
from iam.operations.decisions import Question, decide_many
from quotas.operations.charges import refusal_of
from reservations.domain.demands import Assignment, Demand, Outcome, Shortfall
from reservations.domain.requests import DAY, ReservationRequest
from reservations.domain.shortfalls import NEVER_FITS
from reservations.errors import ConfirmationRequired
from reservations.models import Reservation
from reservations.operations.admission import charge_request, price, refusal_before_charge
from reservations.operations.confirming import CREATE, draft_gate
from reservations.operations.creating import checked_pool, per_gpu
from reservations.operations.drafts import new_draft
from reservations.operations.preempting import Preemption
from reservations.operations.queueing import POOL_LEASE
from reservations.operations.state import Changes
from reservations.operations.waiting import demand_of, outlook
from reservations.queries import decision_resource

Placement = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Foreseen:
    """What a create of this moment would come to.

    ``refusal``: what it would be refused with, first of all; without ``allowed`` that is ACCESS_DENIED or
    CONFIRMATION_REQUIRED, and all that is told. ``row`` is the request as it would be admitted, ``charge`` what it
    would be charged. Then either ``placement`` and the window, or why it would wait, and when it could start
    (``earliest``) if that is known. ``queued``: the pool's placer would place it, after create has answered.
    """

    allowed: bool
    refusal: Refusal | None = None
    row: Reservation | None = None
    charge: Mapping[str, int] = field(default_factory=dict)
    queued: bool = False
    placement: Placement = ()
    window: tuple[int, int] | None = None
    shortfall: Shortfall | None = None
    earliest: tuple[int, int] | None = None


def foresee(*, call: Call, key: str, request: ReservationRequest) -> Foreseen:
    """Look ahead. Raises PoolNotFound and InvalidInput, as create does before it asks IAM."""
    pool = checked_pool(call, request)
    row = new_draft(call=call, key=key, request=request, digest="", pool=pool, per_gpu=per_gpu(pool))
    row.pending_since = call.now
    price(row, pool, now=call.now)
    verdict = _decide(call=call, row=row, pool=pool)
    if not verdict.allowed:
        return Foreseen(allowed=False, refusal=ConfirmationRequired() if verdict.confirmation else AccessDenied())
    charge = charge_request(row)
    refusal = refusal_before_charge(row, pool, frozenset({row.tenant_id}), now=call.now) or refusal_of(charge)
    found = Foreseen(allowed=True, row=row, charge=charge.amounts, refusal=refusal)
    if refusal is not None:
        return found
    queued = pool.policy.placer == POOL_LEASE
    return _placed(replace(found, queued=queued), row, pool, Changes(by=call.actor, now=call.now), now=call.now)


@in_transaction
def _decide(*, call: Call, row: Reservation, pool: PoolView) -> Verdict:
    """Ask as admission asks; the entry says that nothing was to come of it, and nobody is asked to confirm it."""
    resource, gate = decision_resource(row, pool, now=call.now), draft_gate(row, opens=False)
    question = Question(call.caller, CREATE, resource, call.context, {"dryRun": True}, gate)
    return decide_many([question], now=call.now)[0]


def _placed(found: Foreseen, row: Reservation, pool: PoolView, unwritten: Changes, *, now: int) -> Foreseen:
    demand = demand_of(row, now=now)
    # Whom spot work makes way for may start only when that has had its notice.
    seen = outlook(pool, row, now=now, ends_at=demand.ends_at + pool.policy.spot_notice_seconds * 1_000)
    outcome: Outcome = seen.placer.place(demand, behind=seen.behind)
    if isinstance(outcome, Shortfall):
        # Its victims are read, not locked, and nothing is carried out.
        preemption = Preemption(pool, seen.taken, seen.placer, unwritten, now=now, victims=_read)
        outcome = preemption.make_room(row, outcome, behind=lambda: seen.behind)
    if isinstance(outcome, Assignment):
        placement = [{"nodeId": node, "devices": seen.taken.devices(node, mask)} for node, mask in outcome.hosts]
        return replace(found, placement=placement, window=(outcome.demand.starts_at, outcome.demand.ends_at))
    return replace(found, shortfall=outcome, earliest=_earliest(row, pool, demand, outcome, now=now))


def _read(ids: Sequence[str]) -> Sequence[Reservation]:
    return list(Reservation.objects.filter(id__in=ids))


def _earliest(row: Reservation, pool: PoolView, demand: Demand, why: Shortfall, *, now: int) -> tuple[int, int] | None:
    """When it could start as far as is known, within what the pool and the request allow."""
    if why.reason == NEVER_FITS:
        return None
    if why.demand.starts_at > demand.starts_at:
        # Spot work makes way for it then.
        return why.demand.starts_at, why.demand.ends_at
    before = now + pool.policy.max_advance_days * DAY + 1
    if row.start_before is not None:
        before = min(before, row.start_before)
    seen = outlook(pool, row, now=now, ends_at=max(demand.ends_at, demand.at(before).ends_at))
    start = seen.placer.earliest(demand, before=before)
    return None if start is None else (start, demand.at(start).ends_at)
