"""``reservations/create`` (CONTRACT §2)."""

from computeplatform.api.calls import Call
from computeplatform.api.methods import Answer, Data, method
from computeplatform.parking import Park
from computeplatform.quantities import money
from reservations.api.shapes import CreateAnswer, CreateInput, reservation_request
from reservations.contracts import resources_json
from reservations.domain import states
from reservations.errors import StoredRefusal
from reservations.operations import creating
from reservations.operations.dry_run import Foreseen, foresee

# How long admission may take before the call is answered UNAVAILABLE (CRE-18).
ADMISSION_SECONDS = 10.0


@method(
    "reservations/create",
    kind="mutation",
    action="compute:reservations:create",
    resource="compute-reservation",
    input=CreateInput,
    output=CreateAnswer,
    decides=False,
    codes=(
        "CONFIRMATION_REQUIRED",
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

    - **Devices.** ``count`` of the pool's class on one node, or on each of ``nodes`` distinct ones: whole GPUs, MIG
      instances of the pool's profile, or slots of shared GPUs. A GPU and its instances or slots are never booked by two
      at once, and a divided GPU is not booked as a whole. ``placement`` names a GPU by position and uuid, an instance
      by its own uuid with its place (``index``), a slot by its GPU's uuid with its number (``slot``).
    - **Host resources.** ``resources`` (whole vCPUs, GiB and pages of 1 GiB, per node) books them on the nodes of the
      devices. Whole GPUs book at least their share, without ``resources`` just that: the pool's ``perGpu``, else the
      smallest that any of its hosts can give, as it is when the draft is stored. What is above it is charged as
      ``vcpu`` and ``memoryGiB``, over the gang, rounded up; pages count as memory. Instances and slots have no share.
      The answer's ``resources`` are what is booked on each node; a share can be a part of a vCPU or GiB.
    - **Cost.** ``estimatedCost`` is for the whole window at the pool's price of admission, which holds for a later
      placement and for extensions too; vCPU and memory count where the price names them.
    - **Idempotency.** The id is derived from tenant, caller and ``idempotencyKey``; an agent in a person's name is
      another caller than that person. The same key with the same request answers the stored reservation; while it is
      still a draft (after QUOTA_EXCEEDED, SPEND_LIMIT_REACHED, UNAVAILABLE or INTERNAL_ERROR) it is decided again. With
      another request (``wait`` apart) it is CONFLICT with ``details.reservationId``; a key whose request IAM refused
      stays ACCESS_DENIED.
    - **Confirmation.** In a delegated session whose delegation wants creates confirmed, a request that lacks nothing
      else is CONFIRMATION_REQUIRED with ``details {reservationId, confirmationId, expiresAt}``: the person has 30
      minutes for ``confirmations/decide``. Meanwhile the same key answers the same and decides nothing, and nothing is
      charged, kept or shown. Once approved, the same key within 30 minutes decides once more, which uses the approval
      up, and continues; after a refusal, or when either time has run out, it is ACCESS_DENIED. It asks anew, with a new
      ``confirmationId``, where the approval is used up (as after QUOTA_EXCEEDED), the estimated cost has risen or its
      currency changed, or in a session of another delegation. Emits reservation.awaiting-confirmation.
    - **Refusals.** NOT_FOUND: the pool is neither owned by nor offered to the tenant, or is archived. INVALID_INPUT:
      class, profile or sharing differs from the pool's, the window is empty, past or over the pool's limits, the
      priority is over the offer's, or the binding needs what the pool has not. UNSUPPORTED: any other binding.
      QUOTA_EXCEEDED: ``details {resource, requested, used, max}``. SPEND_LIMIT_REACHED: it costs more than ``maxCost``.
    - **Pending.** What does not fit waits with the condition ``Unschedulable``, whose reason is one of NoFreeDevices,
      Fragmented, HostResourcesShort, NodesUnavailable, BehindQueueHead, AwaitingPreemption and NeverFits (more than the
      pool could ever give). It is tried again every 30 seconds and whenever capacity of the pool is freed: higher
      priority first, among equals the tenant that holds the fewest devices of the pool, then the older. For the first
      of these the devices of its earliest start are kept: whoever comes after it passes only if that does not delay it
      (else BehindQueueHead). In a pool with the placer ``pool-lease`` create charges and answers ``pending`` with the
      condition ``Queued``; the pool's placer places it, or makes it ``Unschedulable``.
    - **Spot.** Where one that is not ``spot`` does not fit, spot work of the pool makes way (released ``preempted``),
      no more than is needed: at once, or after the pool's notice; until then it waits with AwaitingPreemption.
    - **Wait.** ``wait.timeoutMs`` (0-30000) holds the answer while it is pending for anything but ``NeverFits``, and
      gives it as soon as the state changes. When the time is up it is answered still pending.
    - **Dry run.** With ``dryRun`` nothing is stored but the audit entry, and the answer has ``dryRun``: ``decision``,
      ``outcome``, ``charge``, ``estimatedCost``, and the ``placement`` with its window, or the ``reason`` and the
      ``earliestStart`` as far as it is known. Spot work that would make way counts as free. A refusal after the checks
      of the request is part of the answer (200); after ``deny``, which it is too where a confirmation would be needed
      (CONFIRMATION_REQUIRED, without ids), nothing else is told. Nobody is asked, and the key is not looked up.
    - **Time.** After 10 seconds of admission: UNAVAILABLE with ``details.reservationId``; the same key picks it up.
    - **Lease.** With ``leaseSeconds`` it lives on only while it is renewed (``reservations/renew``): the lease runs
      from placement, and one that lapses releases it. Where the pool's policy has ``agentsNeedLease``, what an agent
      asks for, by itself or in a person's name, is INVALID_INPUT without one.

    Clauses CRE-1 to CRE-12, CRE-14 to CRE-21, IAM-6, HST-1 to HST-5, PRE-1, PRE-2, REC-3, REC-9, QTA-3, QTA-4.
    """
    if data["dryRun"]:
        return {"dryRun": _foreseen(foresee(call=call, key=data["idempotencyKey"], request=reservation_request(data)))}
    return _admitted(call, data)


def _admitted(call: Call, data: Data) -> Answer:
    """One look at the call's reservation; raises Park while there is something to wait for."""
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


def _foreseen(found: Foreseen) -> Answer:
    row, refusal, short = found.row, found.refusal, found.shortfall
    shown: Answer = {
        "decision": "allow" if found.allowed else "deny",
        "outcome": "refused" if refusal else "pending" if short else "placed",
    }
    if refusal:
        told = {"code": refusal.code, "message": refusal.message, "details": refusal.details, "fix": refusal.advice}
        shown["refusal"] = {name: value for name, value in told.items() if value}
    if row:
        shown |= {"charge": dict(found.charge), "estimatedCost": money(row.estimated_cost)}
        shown |= {"currency": row.currency} if row.currency else {}
        shown["resources"] = resources_json(row)
    if found.queued:
        shown["queued"] = True
    if found.window:
        shown |= {"startsAt": found.window[0], "endsAt": found.window[1], "placement": list(found.placement)}
    if short:
        shown |= {"reason": short.reason, "message": short.message}
    if found.earliest:
        shown["earliestStart"] = {"startsAt": found.earliest[0], "endsAt": found.earliest[1]}
    return shown
