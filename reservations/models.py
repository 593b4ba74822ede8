"""Reservations and their bookings. Logic lives in ``domain`` and ``operations``."""

from django.contrib.postgres.constraints import ExclusionConstraint
from django.contrib.postgres.fields import BigIntegerRangeField, RangeOperators
from django.contrib.postgres.indexes import GistIndex
from django.db import models
from django.db.models import Q

from reservations.domain import states


class Reservation(models.Model):
    """A tenant's claim, from the stored draft to its end. ``operations.state`` is the only writer of ``state``.

    All times are epoch milliseconds.
    """

    id = models.CharField(primary_key=True, max_length=64)
    tenant_id = models.CharField(max_length=128)
    state = models.CharField(max_length=24, default=states.DRAFT)
    reason = models.CharField(max_length=64, blank=True)
    conditions = models.JSONField(default=list)
    version = models.BigIntegerField(default=0)

    # Who asked, with which credential; the key that the id is derived from (CRE-2).
    creator_id = models.CharField(max_length=64)
    creator_kind = models.CharField(max_length=16)
    creator_agent_id = models.CharField(max_length=64, blank=True)
    credential_id = models.CharField(max_length=64, blank=True)
    idempotency_key = models.CharField(max_length=128)
    digest = models.CharField(max_length=64)
    created_at = models.BigIntegerField()

    # What was asked.
    pool_id = models.CharField(max_length=64)
    device_class = models.CharField(max_length=8)
    profile = models.CharField(max_length=32, blank=True)
    sharing = models.CharField(max_length=16)
    count = models.IntegerField()
    nodes = models.IntegerField(default=1)
    binding = models.CharField(max_length=16)
    spot = models.BooleanField(default=False)
    priority = models.IntegerField()
    lease_seconds = models.IntegerField(null=True)
    # Host amounts as asked, ``{vcpu, memoryGiB, hugepages1Gi}`` per node; null where none were given.
    requested_resources = models.JSONField(null=True)
    # What is booked on each node, the share included (HST-2), and how much of it is the share (HST-5).
    vcpu_milli = models.BigIntegerField(db_default=0, default=0)
    memory_mib = models.BigIntegerField(db_default=0, default=0)
    hugepages_1gi = models.BigIntegerField(db_default=0, default=0)
    share_vcpu_milli = models.BigIntegerField(db_default=0, default=0)
    share_memory_mib = models.BigIntegerField(db_default=0, default=0)
    name = models.CharField(max_length=128, blank=True)
    labels = models.JSONField(default=dict)
    requested_starts_at = models.BigIntegerField(null=True)
    requested_ends_at = models.BigIntegerField(null=True)
    duration = models.BigIntegerField(null=True)
    start_before = models.BigIntegerField(null=True)
    max_cost = models.DecimalField(max_digits=20, decimal_places=4, null=True)
    # The dearest price, the largest gang, its host amounts and the longest window come to 29 digits.
    estimated_cost = models.DecimalField(max_digits=32, decimal_places=4, default=0)
    currency = models.CharField(max_length=8, blank=True)
    # The pool's price at admission, in the policy's wire form (QTA-3).
    price = models.JSONField(null=True)

    # The window that it has or had.
    starts_at = models.BigIntegerField(null=True)
    ends_at = models.BigIntegerField(null=True)
    ended_at = models.BigIntegerField(null=True)
    pending_since = models.BigIntegerField(null=True)
    # Since when it waits for its first look by the pool's placer (CRE-14 ``Queued``); null: it does not.
    queued_at = models.BigIntegerField(null=True)
    binding_since = models.BigIntegerField(null=True)
    active_at = models.BigIntegerField(null=True)
    extended_at = models.BigIntegerField(null=True)
    # By how much its end was moved beyond what was asked, milliseconds; a re-placement keeps it (EXT-6).
    extended_by = models.BigIntegerField(db_default=0, default=0)
    # The deadline before any gap in our service moves it (REC-8); set by placement and renewals.
    lease_expires_at = models.BigIntegerField(null=True)
    # An extend that is being decided: ``{until, durationHours, was, token, openUntil}`` (EXT-2, EXT-5).
    pending_change = models.JSONField(null=True)
    # The end, and the ``lease_expires_at``, of which ``reservation.ending`` was told (EVT-4).
    ending_told_for = models.BigIntegerField(null=True)
    lease_told_for = models.BigIntegerField(null=True)
    # Whose start ends this spot reservation (PRE-2).
    preempted_by = models.CharField(max_length=64, blank=True, db_default="", default="")
    # Freed devices kept for this one until it is placed: ``[{nodeId, first, count, from}]`` in grains (PRE-2).
    claim = models.JSONField(null=True)
    # Since when it has ended while nodes still hold devices (REL-2); null: nothing is held.
    held_since = models.BigIntegerField(null=True)
    # Since when something that it runs on is lost or sick; null: nothing is (REC-4, NOD-5).
    disturbed_since = models.BigIntegerField(null=True)
    # Node by node the devices it has or had: ``[{nodeId, devices: [{position, uuid}]}]``.
    placement = models.JSONField(default=list)
    changed_at = models.BigIntegerField()

    # Admission (CRE-1, CRE-20). A draft is worked on until ``call_open_until``; null: it rests.
    attempts = models.IntegerField(default=0)
    call_open_until = models.BigIntegerField(null=True)
    context = models.JSONField(default=dict)
    decision_id = models.CharField(max_length=64, blank=True)
    decided = models.BooleanField(default=False)
    # The confirmation that its draft waits or waited for (CRE-8).
    confirmation_id = models.CharField(max_length=64, blank=True, db_default="", default="")
    # What the call is answered: ``{"reservation": …}`` or ``{"refusal": …}``.
    outcome = models.JSONField(null=True)

    # When the reconciler looks at it next; null: never.
    due_at = models.BigIntegerField(null=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                # What is placed has a window, and it is not empty.
                condition=~Q(state__in=sorted(states.BOOKED))
                | Q(starts_at__isnull=False, ends_at__gt=models.F("starts_at")),
                name="reservation_booked_has_window",
            ),
            models.CheckConstraint(
                # The end is written with the state that ends it.
                condition=Q(state__in=sorted(states.TERMINAL)) ^ Q(ended_at__isnull=True),
                name="reservation_ended_has_time",
            ),
            models.CheckConstraint(
                # A sliding window or a fixed one, never both or neither (CRE-16).
                condition=Q(duration__isnull=True) ^ Q(requested_ends_at__isnull=True),
                name="reservation_one_window_form",
            ),
            models.CheckConstraint(
                # Only a draft can be waited for.
                condition=Q(call_open_until__isnull=True) | Q(state=states.DRAFT),
                name="reservation_open_call_is_draft",
            ),
            models.CheckConstraint(
                # Nobody preempts what is not spot (PRE-1).
                condition=Q(preempted_by="") | Q(spot=True),
                name="reservation_preempted_is_spot",
            ),
        ]
        indexes = [
            # What the pools' placers have not looked at yet: empty while nothing is queued.
            models.Index(fields=["pool_id"], name="reservation_queue", condition=Q(queued_at__isnull=False)),
            # The admission queue of a pool: empty while nobody waits.
            models.Index(
                fields=["pool_id", "created_at"],
                name="reservation_open_drafts",
                condition=Q(call_open_until__isnull=False),
            ),
            # The reconciler's work list, in order.
            models.Index(
                fields=["due_at"],
                name="reservation_due",
                condition=Q(due_at__isnull=False),
            ),
            # The few that run on something lost or sick.
            models.Index(
                fields=["pool_id"],
                name="reservation_disturbed",
                condition=Q(disturbed_since__isnull=False),
            ),
            # What an agent has reserved, by itself or in somebody's name, and still lives (OPS-4).
            models.Index(
                fields=["creator_id"], name="reservation_live_of_creator", condition=Q(state__in=sorted(states.LIVE))
            ),
            models.Index(
                fields=["creator_agent_id"],
                name="reservation_live_of_agent",
                condition=Q(state__in=sorted(states.LIVE)) & ~Q(creator_agent_id=""),
            ),
            # The few whose devices are held.
            models.Index(fields=["pool_id"], name="reservation_held", condition=Q(held_since__isnull=False)),
            # The few for whom devices are kept, which every placement looks for among all that waits.
            models.Index(fields=["pool_id"], name="reservation_claims", condition=Q(claim__isnull=False)),
            # What waits, and what binds, in one pool.
            models.Index(
                fields=["pool_id", "state"],
                name="reservation_pool_unsettled",
                condition=Q(state__in=[states.PENDING, states.BINDING]),
            ),
            # Lists, newest first (LST-1): the tenant's, and the caller's own.
            models.Index(
                fields=["tenant_id", "-created_at", "-id"],
                name="reservation_newest",
                condition=~Q(state__in=sorted(states.DRAFT_STATES)),
            ),
            models.Index(
                fields=["tenant_id", "creator_id", "-created_at", "-id"],
                name="reservation_newest_own",
                condition=~Q(state__in=sorted(states.DRAFT_STATES)),
            ),
        ]

    def __str__(self) -> str:
        return self.id


class Booking(models.Model):
    """A run of adjacent units of one node for a time range, counting for ``devices`` devices.

    ``planned`` is what was promised, ``during`` what blocks the units, ``billed`` lies inside ``during``.
    """

    reservation = models.ForeignKey(Reservation, on_delete=models.PROTECT, related_name="bookings")
    tenant_id = models.CharField(max_length=128)
    pool_id = models.CharField(max_length=64)
    node_id = models.CharField(max_length=64)
    units = BigIntegerRangeField()
    devices = models.IntegerField()
    planned = BigIntegerRangeField()
    during = BigIntegerRangeField()
    billed = BigIntegerRangeField()
    # Host amounts of the whole reservation on this node; on the first of its runs, 0 on the others (HST-1).
    vcpu_milli = models.BigIntegerField(db_default=0, default=0)
    memory_mib = models.BigIntegerField(db_default=0, default=0)
    hugepages_1gi = models.BigIntegerField(db_default=0, default=0)
    # Since when its node keeps the devices of what has left it (REL-2); null: it does not.
    held_since = models.BigIntegerField(null=True, blank=True)
    # Since when it does so beyond ``planned`` (REL-3); the node was tainted once for it.
    stuck_since = models.BigIntegerField(null=True, blank=True)

    class Meta:
        constraints = [
            # REC-6: nobody can book a unit twice at any instant, whatever the code does.
            ExclusionConstraint(
                name="booking_no_overlap",
                expressions=[("units", RangeOperators.OVERLAPS), ("during", RangeOperators.OVERLAPS)],
            ),
            models.CheckConstraint(condition=Q(billed__contained_by=models.F("during")), name="booking_billed_inside"),
            models.CheckConstraint(condition=Q(devices__gt=0), name="booking_counts_devices"),
            models.CheckConstraint(
                # Only what is held can be stuck.
                condition=Q(stuck_since__isnull=True) | Q(held_since__isnull=False),
                name="booking_stuck_is_held",
            ),
        ]
        indexes = [
            # The snapshot of a window reads through this one; the exclusion index leads with units.
            GistIndex(fields=["during"], name="booking_during"),
            # The few whose devices are held, which every tick and every placement looks for.
            models.Index(fields=["pool_id"], name="booking_held", condition=Q(held_since__isnull=False)),
        ]

    def __str__(self) -> str:
        return f"{self.reservation_id} on {self.node_id}"


class Downtime(models.Model):
    """A time in which every device of a running reservation was sick: it is in its bookings, and unbilled (NOD-5).

    Epoch milliseconds, half-open; ``ended_at`` null: it is still down.
    """

    reservation = models.ForeignKey(Reservation, on_delete=models.PROTECT, related_name="downtimes")
    began_at = models.BigIntegerField()
    ended_at = models.BigIntegerField(null=True, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(ended_at=None) | Q(ended_at__gte=models.F("began_at")), name="downtime_not_negative"
            ),
            # It is down once at a time.
            models.UniqueConstraint(fields=["reservation"], condition=Q(ended_at=None), name="downtime_open_once"),
        ]

    def __str__(self) -> str:
        return f"downtime of {self.reservation_id}"
