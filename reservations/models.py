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
    name = models.CharField(max_length=128, blank=True)
    labels = models.JSONField(default=dict)
    requested_starts_at = models.BigIntegerField(null=True)
    requested_ends_at = models.BigIntegerField(null=True)
    duration = models.BigIntegerField(null=True)
    start_before = models.BigIntegerField(null=True)
    max_cost = models.DecimalField(max_digits=20, decimal_places=4, null=True)
    # The dearest price, the largest gang and the longest window that a pool can allow come to 19 digits.
    estimated_cost = models.DecimalField(max_digits=24, decimal_places=4, default=0)
    currency = models.CharField(max_length=8, blank=True)

    # The window that it has or had.
    starts_at = models.BigIntegerField(null=True)
    ends_at = models.BigIntegerField(null=True)
    ended_at = models.BigIntegerField(null=True)
    pending_since = models.BigIntegerField(null=True)
    binding_since = models.BigIntegerField(null=True)
    active_at = models.BigIntegerField(null=True)
    # Node by node the devices it has or had: ``[{nodeId, devices: [{position, uuid}]}]``.
    placement = models.JSONField(default=list)
    changed_at = models.BigIntegerField()

    # Admission (CRE-1, CRE-20). A draft is worked on until ``call_open_until``; null: it rests.
    attempts = models.IntegerField(default=0)
    call_open_until = models.BigIntegerField(null=True)
    context = models.JSONField(default=dict)
    decision_id = models.CharField(max_length=64, blank=True)
    decided = models.BooleanField(default=False)
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
        ]
        indexes = [
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

    class Meta:
        constraints = [
            # REC-6: nobody can book a unit twice at any instant, whatever the code does.
            ExclusionConstraint(
                name="booking_no_overlap",
                expressions=[("units", RangeOperators.OVERLAPS), ("during", RangeOperators.OVERLAPS)],
            ),
            models.CheckConstraint(condition=Q(billed__contained_by=models.F("during")), name="booking_billed_inside"),
            models.CheckConstraint(condition=Q(devices__gt=0), name="booking_counts_devices"),
        ]
        indexes = [
            # The snapshot of a window reads through this one; the exclusion index leads with units.
            GistIndex(fields=["during"], name="booking_during"),
        ]

    def __str__(self) -> str:
        return f"{self.reservation_id} on {self.node_id}"
