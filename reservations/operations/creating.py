"""What a create call does with its key: store a draft, open one again, or find what is stored (CRE-2 … CRE-5)."""

from computeplatform.api.calls import Call
from computeplatform.api.idempotency import request_digest
from computeplatform.errors import InvalidInput, Unavailable
from computeplatform.wakes import wake_now
from fleet import queries as fleet
from fleet.contracts import PoolView
from iam.contracts import ConfirmationInfo
from iam.queries.confirmations import get_confirmation
from reservations import queries
from reservations.contracts import Standing
from reservations.domain import leases, requests, states
from reservations.domain.hosts import NOTHING, Amounts
from reservations.domain.requests import ReservationRequest
from reservations.errors import AdmissionUnfinished, KeyRefused, ReservationKeyReused
from reservations.models import Reservation
from reservations.operations import confirming, drafts


def open_call(*, call: Call, key: str, request: ReservationRequest) -> Standing:
    """Store the request as a draft, or open the draft of its key again, and wake a worker; else what is stored.

    While a draft waits for its confirmation that is its refusal, and nothing is decided (CRE-8).

    Raises KeyRefused, ReservationKeyReused, and for a new or resting draft PoolNotFound and InvalidInput, before
    anything is stored. Without the broker the draft rests at once (API-7).
    """
    reservation_id = drafts.reservation_id(call, key)
    digest = request_digest(request.compared())
    row = queries.by_key(reservation_id)
    is_first = row is None
    if row is None:
        pool = checked_pool(call, request)
        drafts.store_draft(call=call, key=key, request=request, digest=digest, pool=pool, per_gpu=per_gpu(pool))
        # Of several first calls one has stored its request; the others are compared with it.
        row = queries.by_key(reservation_id)
        assert row is not None  # noqa: S101 - a stored key is not forgotten within a call
    if row.digest != digest or request.sharing not in ("", row.sharing):
        raise ReservationKeyReused(row.id)
    # What a first call's draft has come to meanwhile is its answer, and never opened again for another decision.
    if not is_first:
        if row.state == states.DENIED:
            raise KeyRefused
        if row.state not in (states.DRAFT, states.AWAITING_CONFIRMATION):
            return queries.standing(row)
        if row.call_open_until is None or row.call_open_until <= call.now:
            asked = _confirmation(call, row)
            if asked and row.state == states.AWAITING_CONFIRMATION and asked.state == "pending":
                return queries.standing(row)
            if asked and confirming.is_over(asked, now=call.now):
                # Before the pool is looked at, as for every key that was refused (CRE-21).
                if confirming.deny_unconfirmed(call=call, reservation=row):
                    raise KeyRefused
                return open_call(call=call, key=key, request=request)
            pool = checked_pool(call, request)
            drafts.reopen_draft(call=call, reservation=row, request=request, pool=pool)
    try:
        wake_now("admission", row.pool_id)
    except Unavailable:
        return end_call(call=call, key=key)
    return Standing(row.id, waiting=True)


def _confirmation(call: Call, row: Reservation) -> ConfirmationInfo | None:
    """The confirmation that the draft waits or waited for, as it is now."""
    if not row.confirmation_id:
        return None
    return get_confirmation(call.tenant_id, row.confirmation_id, now=call.now)


def standing(*, call: Call, key: str) -> Standing:
    """What the key's reservation amounts to now, for a call that has opened it. Raises KeyRefused."""
    row = queries.by_key(drafts.reservation_id(call, key))
    assert row is not None  # noqa: S101 - the call has stored it
    if row.state == states.DENIED:
        raise KeyRefused
    return queries.standing(row)


def end_call(*, call: Call, key: str) -> Standing:
    """The call's time is up: rest the draft if it still is one (CRE-20), and answer what is stored.

    Raises KeyRefused, and AdmissionUnfinished where another call has opened the draft again since.
    """
    drafts.rest_unfinished(reservation_id=drafts.reservation_id(call, key))
    found = standing(call=call, key=key)
    if found.waiting:
        raise AdmissionUnfinished(found.id)
    return found


def checked_pool(call: Call, request: ReservationRequest) -> PoolView:
    """The pool, if the tenant may book this in it now (CRE-9, CRE-10)."""
    pool = fleet.visible_pool(tenant_id=call.tenant_id, pool_id=request.pool_id, for_booking=True)
    issues = list(requests.pool_issues(request, rules_of(pool, tenant_id=call.tenant_id), now=call.now))
    issues += leases.lease_issues(
        lease_seconds=request.lease_seconds,
        needed=pool.policy.agents_need_lease,
        creator_kind=call.caller.kind,
        agent_id=call.caller.agent_id,
    )
    if issues:
        raise InvalidInput(issues)
    return pool


def rules_of(pool: PoolView, *, tenant_id: str) -> requests.PoolRules:
    """What the tenant's requests in this pool are checked against."""
    return requests.PoolRules(
        device_class=pool.device_class,
        sharing=pool.sharing,
        profile=pool.profile,
        owned=pool.tenant_id == tenant_id,
        tenant_root=pool.policy.tenant_root is not None,
        kubernetes=pool.policy.kubernetes_cluster is not None,
        max_priority=pool.max_priority,
        max_duration_hours=pool.policy.max_duration_hours,
        max_advance_days=pool.policy.max_advance_days,
    )


def per_gpu(pool: PoolView) -> Amounts:
    """The share of the host that goes with each GPU of the pool now (HST-2)."""
    return Amounts(*fleet.gpu_share(pool)) if pool.device_class == "gpu" else NOTHING
