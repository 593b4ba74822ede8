"""``reservations/create`` (CONTRACT §2)."""

from computeplatform.api.calls import Call
from computeplatform.api.methods import Answer, Data, method
from computeplatform.parking import Park
from reservations.api.shapes import CreateInput, ReservationAnswer, reservation_request
from reservations.domain import states
from reservations.errors import StoredRefusal
from reservations.operations import creating

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
      answers the stored reservation; while it is still a draft (after QUOTA_EXCEEDED, SPEND_LIMIT_REACHED,
      UNAVAILABLE or INTERNAL_ERROR) the same draft is decided again. The same key with another request is CONFLICT with
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
      ``leaseSeconds`` is stored, shown and seen by policies; leases begin to run when ``renew`` is served.

    Clauses CRE-1 to CRE-7, CRE-9 to CRE-12, CRE-14, CRE-16 to CRE-18, CRE-20, CRE-21.
    """
    key = data["idempotencyKey"]
    wait_ms = data.get("wait", {}).get("timeoutMs", 0)
    expired = call.resume is not None and call.resume.expired
    if call.resume is None:
        standing = creating.open_call(call=call, key=key, request=reservation_request(data))
    elif expired:
        standing = creating.end_call(call=call, key=key)
    else:
        standing = creating.standing(call=call, key=key)
    if standing.waiting and not expired:
        raise Park(standing.id, ADMISSION_SECONDS + wait_ms / 1000)
    if standing.refusal is not None:
        raise StoredRefusal(standing.refusal)
    if wait_ms and standing.may_be_waited_for and not expired:
        raise Park(standing.id, wait_ms / 1000)
    if call.resume is not None and (not wait_ms or standing.admitted_as == states.PLACED):
        # What admission committed, however far the reconciler has taken it since (CRE-14).
        return {"reservation": standing.admitted}
    return {"reservation": standing.shown}
