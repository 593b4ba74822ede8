"""``reservations/create`` (CONTRACT §2)."""

from typing import Any

from computeplatform.api.calls import Call
from computeplatform.api.idempotency import request_digest
from computeplatform.api.methods import Answer, Data, method
from computeplatform.errors import InvalidInput, Unavailable
from computeplatform.parking import Park
from computeplatform.wakes import wake_now
from fleet import queries as fleet
from fleet.contracts import PoolView
from reservations import queries
from reservations.api.shapes import CreateInput, ReservationAnswer
from reservations.contracts import reservation_json
from reservations.domain import requests, states
from reservations.domain.requests import ReservationRequest
from reservations.errors import (
    BindingUnsupported,
    KeyRefused,
    NotSupportedYet,
    ReservationKeyReused,
    StoredRefusal,
)
from reservations.models import Reservation
from reservations.operations import drafts

# How long admission may take before the call is answered UNAVAILABLE (CRE-18).
ADMISSION_SECONDS = 10.0


@method(
    "reservations/create",
    kind="mutation",
    action="compute:reservations:create",
    resource="compute-reservation",
    input=CreateInput,
    output=ReservationAnswer,
    decides=False,
    codes=(
        "NOT_FOUND",
        "UNSUPPORTED",
        "CONFLICT",
        "QUOTA_EXCEEDED",
        "SPEND_LIMIT_REACHED",
    ),
    module="capacity",
)
def create(call: Call, data: Data, _: None) -> Answer:
    """Book devices of one pool for a window, after one IAM decision on the stored draft.

    Answers the reservation, ``placed`` or ``pending`` as admission committed it. With ``durationSeconds`` the window
    slides: it starts when the reservation is placed, not before ``startsAt``; with ``endsAt`` the end is fixed. A
    ``startsAt`` up to 60 seconds past means now.

    - **Idempotency.** The id is derived from tenant, caller and ``idempotencyKey``. The same key with the same request
      answers the stored reservation; while it is still a draft (after QUOTA_EXCEEDED, SPEND_LIMIT_REACHED or
      UNAVAILABLE) the same draft is decided again. The same key with another request is CONFLICT with
      ``details.reservationId``; a key whose request IAM refused stays ACCESS_DENIED. ``wait`` is not compared.
    - **Refusals.** NOT_FOUND: the pool is neither owned by nor offered to the tenant, or is archived. INVALID_INPUT:
      class, profile or sharing differs from the pool's, the window is empty, past or over the pool's limits, the
      priority is over the offer's, or the binding needs what the pool has not. UNSUPPORTED: any other binding.
      QUOTA_EXCEEDED: ``details {resource, requested, used, max}``, nothing is charged in part.
      SPEND_LIMIT_REACHED: the estimate is above ``maxCost``.
    - **Pending.** What does not fit waits with the condition ``Unschedulable``, whose reason is one of NoFreeDevices,
      Fragmented, NodesUnavailable and NeverFits, and whose message has the numbers. It is tried again every 30
      seconds and whenever capacity of the pool is freed. ``wait.timeoutMs`` holds the answer while it is pending.
    - **Time.** An admission that takes longer than 10 seconds answers UNAVAILABLE with ``details.reservationId``; the
      same key picks it up.
    - **Not served yet:** classes mig and slot, binding kubernetes, ``resources`` and ``dryRun`` are UNSUPPORTED.

    Clauses CRE-1 to CRE-7, CRE-9 to CRE-12, CRE-14, CRE-16 to CRE-18, CRE-20, CRE-21.
    """
    request = _request(data)
    reservation_id = drafts.reservation_id(call, data["idempotencyKey"])
    wait_ms = data.get("wait", {}).get("timeoutMs", 0)
    if call.resume is None:
        if _begin(call, data["idempotencyKey"], request, reservation_id):
            _wake(reservation_id, request.pool_id)
            raise Park(reservation_id, ADMISSION_SECONDS + wait_ms / 1000)
    elif call.resume.expired:
        drafts.rest_unfinished(reservation_id=reservation_id)
    return _outcome(call, reservation_id, wait_ms)


def _request(data: Data) -> ReservationRequest:
    devices = data["devices"]
    request = ReservationRequest(
        pool_id=data["poolId"],
        device_class=devices["class"],
        count=devices["count"],
        nodes=data["nodes"],
        profile=devices.get("profile", ""),
        sharing=devices.get("sharing", ""),
        starts_at=data.get("startsAt"),
        ends_at=data.get("endsAt"),
        duration=data["durationSeconds"] * 1000 if "durationSeconds" in data else None,
        start_before=data.get("startBefore"),
        spot=data["spot"],
        priority=data.get("priority"),
        binding=data["binding"],
        resources=data.get("resources"),
        lease_seconds=data.get("leaseSeconds"),
        name=data.get("name", ""),
        labels=data.get("labels", {}),
        max_cost=data.get("maxCost", ""),
        dry_run=data["dryRun"],
    )
    if issues := list(request.shape_issues()):
        raise InvalidInput(issues)
    if request.binding not in requests.BINDINGS:
        raise BindingUnsupported(request.binding)
    return request


def _begin(call: Call, key: str, request: ReservationRequest, reservation_id: str) -> bool:
    """Store or open the draft; True if its admission is to be waited for, False if the key is past that stage."""
    digest = request_digest(request.compared())
    row = queries.by_key(reservation_id)
    if row is None:
        pool = _checked_pool(call, request)
        drafts.store_draft(call=call, key=key, request=request, digest=digest, pool=pool)
        # Of several first calls one has stored its request; the others are compared with it.
        row = queries.by_key(reservation_id)
        assert row is not None  # noqa: S101 - a stored key is not forgotten within a call
    if row.digest != digest or request.sharing not in ("", row.sharing):
        raise ReservationKeyReused(row.id)
    if row.state == states.DENIED:
        raise KeyRefused
    if row.state == states.DRAFT and (row.call_open_until is None or row.call_open_until <= call.now):
        _checked_pool(call, request)
        drafts.reopen_draft(call=call, reservation=row)
    return row.state == states.DRAFT


def _checked_pool(call: Call, request: ReservationRequest) -> PoolView:
    """The pool, if the tenant may book this in it now (CRE-9, CRE-10)."""
    pool = fleet.visible_pool(tenant_id=call.tenant_id, pool_id=request.pool_id, for_booking=True)
    rules = requests.PoolRules(
        device_class=pool.device_class,
        sharing=pool.sharing,
        profile=pool.profile,
        owned=pool.tenant_id == call.tenant_id,
        tenant_root=pool.policy.tenant_root is not None,
        kubernetes=pool.policy.kubernetes_cluster is not None,
        max_priority=pool.max_priority,
        max_duration_hours=pool.policy.max_duration_hours,
        max_advance_days=pool.policy.max_advance_days,
    )
    if issues := list(requests.pool_issues(request, rules, now=call.now)):
        raise InvalidInput(issues)
    _refuse_unserved(request)
    return pool


def _refuse_unserved(request: ReservationRequest) -> None:
    """What the contract promises and this release does not do yet is refused, never half done."""
    if request.device_class != "gpu":
        raise NotSupportedYet("devices.class", f"Class {request.device_class}")
    if request.binding == "kubernetes":
        raise NotSupportedYet("binding", "Binding kubernetes")
    if request.resources is not None:
        raise NotSupportedYet("resources", "Booking host resources")
    if request.dry_run:
        raise NotSupportedYet("dryRun", "A dry run")


def _wake(reservation_id: str, pool_id: str) -> None:
    """Wake a worker; without the broker the draft rests and the call is answered at once (API-7)."""
    try:
        wake_now("admission", pool_id)
    except Unavailable:
        drafts.rest_unfinished(reservation_id=reservation_id)


def _outcome(call: Call, reservation_id: str, wait_ms: int) -> Answer:
    """The answer that is stored, or another wait for it."""
    row = queries.by_key(reservation_id)
    assert row is not None  # noqa: S101 - the call has stored it
    expired = call.resume is not None and call.resume.expired
    if row.state == states.DENIED:
        raise KeyRefused
    if row.state == states.DRAFT:
        if row.call_open_until is not None and not expired:
            raise Park(reservation_id, ADMISSION_SECONDS + wait_ms / 1000)
        raise StoredRefusal(_refusal(row))
    if row.state == states.PENDING and wait_ms and not expired and _can_be_waited_for(row):
        raise Park(reservation_id, wait_ms / 1000)
    if (
        call.resume is not None
        and row.outcome
        and (not wait_ms or row.outcome["reservation"]["state"] == states.PLACED)
    ):
        # What admission committed, however far the reconciler has taken it since (CRE-14).
        return dict(row.outcome)
    return {"reservation": reservation_json(row)}


def _refusal(row: Reservation) -> dict[str, Any]:
    assert row.outcome is not None  # noqa: S101 - a draft that rests has an answer
    return dict(row.outcome["refusal"])


def _can_be_waited_for(row: Reservation) -> bool:
    return all(condition["reason"] != "NeverFits" for condition in row.conditions)
