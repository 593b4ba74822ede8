"""Drafts: storing the request, opening it again for a retry, and resting it unanswered (CRE-1…5, CRE-18, CRE-20)."""

from decimal import Decimal
from typing import Any

from computeplatform.api.calls import Call
from computeplatform.db.locks import notify
from computeplatform.db.retry import in_transaction
from computeplatform.errors import InternalError, Refusal
from computeplatform.ids import derived_id
from computeplatform.parking import CHANNEL
from fleet.contracts import PoolView
from iam.operations.confirmations import settle
from reservations import locks
from reservations.domain import states
from reservations.domain.hosts import Amounts
from reservations.domain.requests import DEFAULT_PRIORITY, ReservationRequest
from reservations.domain.shares import booked, share_of
from reservations.errors import AdmissionUnfinished, stored
from reservations.models import Reservation
from reservations.operations.state import Changes
from reservations.queries import CALL_OPEN


def reservation_id(call: Call, idempotency_key: str) -> str:
    """The same for the same tenant, caller's identity and key (CRE-2)."""
    return derived_id("res", call.tenant_id, call.caller.identity, idempotency_key)


@in_transaction
def store_draft(
    *, call: Call, key: str, request: ReservationRequest, digest: str, pool: PoolView, per_gpu: Amounts
) -> None:
    """Store the request as a draft and open its call; a key that somebody else has stored meanwhile stays as it is."""
    row = new_draft(call=call, key=key, request=request, digest=digest, pool=pool, per_gpu=per_gpu)
    Reservation.objects.bulk_create([row], ignore_conflicts=True)


def new_draft(
    *, call: Call, key: str, request: ReservationRequest, digest: str, pool: PoolView, per_gpu: Amounts
) -> Reservation:
    """The request as a draft whose call is open, not stored. It keeps the share of its GPUs as it is now (HST-2)."""
    share = share_of(request.device_class, request.count, per_gpu)
    amounts = booked(request.resources, share)
    return Reservation(
        id=reservation_id(call, key),
        tenant_id=call.tenant_id,
        creator_id=call.caller.principal_id,
        creator_kind=call.caller.kind,
        creator_agent_id=call.caller.agent_id,
        credential_id=call.caller.credential_id,
        idempotency_key=key,
        digest=digest,
        created_at=call.now,
        changed_at=call.now,
        pool_id=pool.id,
        device_class=request.device_class,
        profile=pool.profile,
        sharing=pool.sharing,
        count=request.count,
        nodes=request.nodes,
        binding=request.binding,
        spot=request.spot,
        priority=_priority(request, pool),
        lease_seconds=request.lease_seconds,
        requested_resources=None if request.resources is None else dict(request.resources),
        vcpu_milli=amounts.vcpu_milli,
        memory_mib=amounts.memory_mib,
        hugepages_1gi=amounts.hugepages_1gi,
        share_vcpu_milli=share.vcpu_milli,
        share_memory_mib=share.memory_mib,
        name=request.name,
        labels=dict(request.labels),
        requested_starts_at=request.starts_at,
        requested_ends_at=request.ends_at,
        duration=request.duration,
        start_before=request.start_before,
        max_cost=Decimal(request.max_cost) if request.max_cost else None,
        attempts=1,
        call_open_until=call.now + CALL_OPEN,
        context=_context(call),
    )


def _priority(request: ReservationRequest, pool: PoolView) -> int:
    """The priority in force: where none was given, the offer's ceiling lowers the default."""
    return min(DEFAULT_PRIORITY, pool.max_priority) if request.priority is None else request.priority


def _context(call: Call) -> dict[str, Any]:
    """The circumstances of the call: the worker decides on these (IAM-API §5)."""
    return {"time": call.context.time, "sourceIp": call.context.source_ip, "requestId": call.context.request_id}


@in_transaction
def reopen_draft(*, call: Call, reservation: Reservation, request: ReservationRequest, pool: PoolView) -> None:
    """Open a draft that rests, or has waited for a confirmation, for another decision (CRE-4, CRE-8).

    Guarded, so of several calls one opens it. The offer's ceiling may have moved since, so a priority that was not
    asked for is set anew.
    """
    if reservation.state == states.AWAITING_CONFIRMATION:
        _end_wait(call, reservation)
    Reservation.objects.filter(
        id=reservation.id,
        state=states.DRAFT,
        attempts=reservation.attempts,
        call_open_until=reservation.call_open_until,
    ).update(
        attempts=reservation.attempts + 1,
        call_open_until=call.now + CALL_OPEN,
        priority=_priority(request, pool),
        credential_id=call.caller.credential_id,
        context=_context(call),
        decided=False,
        decision_id="",
        outcome=None,
    )


def _end_wait(call: Call, reservation: Reservation) -> None:
    """Unless another call has: the draft may wait for another answer by now."""
    row = locks.lock_reservation(tenant_id=call.tenant_id, reservation_id=reservation.id)
    if (row.state, row.attempts) != (states.AWAITING_CONFIRMATION, reservation.attempts):
        return
    # What its delegation has ended is written down here: nobody waits for it any more, and no decision may come.
    settle([row.confirmation_id], now=call.now)
    changes = Changes(by=call.actor, now=call.now)
    changes.move(row, "approve")
    row.due_at = None
    changes.write()


@in_transaction
def rest_unfinished(*, reservation_id: str) -> None:
    """Rest a draft whose call runs out of time, with UNAVAILABLE as its answer (CRE-18, CRE-20)."""
    _rest(reservation_id, AdmissionUnfinished(reservation_id))


@in_transaction
def rest_failed(*, reservation_id: str) -> None:
    """Rest a draft whose decision or placement has failed by our own fault: INTERNAL_ERROR (API-7)."""
    _rest(reservation_id, InternalError())


def _rest(reservation_id: str, refusal: Refusal) -> None:
    """Guarded: a draft that was admitted, refused or rested meanwhile is left as it is."""
    rested = Reservation.objects.filter(
        id=reservation_id, state=states.DRAFT, call_open_until__isnull=False, outcome__isnull=True
    ).update(
        call_open_until=None,
        decided=False,
        decision_id="",
        outcome={"refusal": stored(refusal)},
    )
    if rested:
        notify(CHANNEL, [reservation_id])
