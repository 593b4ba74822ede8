"""The fleet's rows: pools and whom they are offered to, nodes and what they hold and should hold."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q

from fleet.domain.nodes import STATES
from fleet.domain.pools import DEVICE_CLASSES, SHARINGS


class Pool(models.Model):
    """Devices of one kind, owned by one tenant (POL-1). ``policy`` is `domain.policy` in its wire form."""

    id = models.CharField(primary_key=True, max_length=64)
    tenant_id = models.CharField(max_length=128, help_text="The owner")
    name = models.CharField(max_length=128)
    region = models.CharField(max_length=64)
    gpu_model = models.CharField(max_length=64)
    device_class = models.CharField(max_length=8)
    sharing = models.CharField(max_length=16)
    profile = models.CharField(max_length=32, blank=True, help_text="MIG pools alone have one")
    policy = models.JSONField()
    archived_at = models.BigIntegerField(null=True, blank=True, help_text="Epoch milliseconds")
    mass_silence_since = models.BigIntegerField(
        null=True, blank=True, help_text="Epoch milliseconds; many nodes fell silent at once (REC-8)"
    )
    mass_silence_ended_at = models.BigIntegerField(
        null=True, blank=True, help_text="Epoch milliseconds; bind timeouts run anew from then on"
    )
    created_at = models.BigIntegerField(help_text="Epoch milliseconds")
    created_by = models.CharField(max_length=128)
    version = models.BigIntegerField(default=1)

    class Meta:
        constraints = [
            # Placement and charging branch on these two; there is no third way.
            models.CheckConstraint(condition=Q(device_class__in=DEVICE_CLASSES), name="pool_class_known"),
            models.CheckConstraint(condition=Q(sharing__in=SHARINGS), name="pool_sharing_known"),
            # The profile names the quota resource of a MIG pool, and nothing in any other.
            models.CheckConstraint(
                condition=(Q(device_class="mig") & ~Q(profile="")) | (~Q(device_class="mig") & Q(profile="")),
                name="pool_profile_of_mig",
            ),
        ]
        indexes = [
            # pools/list: a tenant's own, newest first.
            models.Index(F("tenant_id"), F("created_at").desc(), F("id").desc(), name="pool_newest"),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.id})"


class Offer(models.Model):
    """A pool opened to another tenant. The row stays after a withdrawal; offering again opens it anew."""

    id = models.CharField(primary_key=True, max_length=64)
    pool = models.ForeignKey(Pool, on_delete=models.PROTECT, related_name="offers")
    tenant_id = models.CharField(max_length=128, help_text="The borrower")
    budget_check = models.BooleanField(null=True, blank=True, help_text="Empty: as the pool's policy says")
    max_priority = models.IntegerField(default=50)
    created_at = models.BigIntegerField(help_text="Epoch milliseconds")
    created_by = models.CharField(max_length=128)
    withdrawn_at = models.BigIntegerField(null=True, blank=True, help_text="Epoch milliseconds")
    version = models.BigIntegerField(default=1)

    class Meta:
        constraints = [
            # A tenant has one set of terms in a pool.
            models.UniqueConstraint(fields=["pool", "tenant_id"], name="offer_unique"),
            # Priorities are 0-100 (QTA-4).
            models.CheckConstraint(condition=Q(max_priority__range=(0, 100)), name="offer_priority_range"),
        ]
        indexes = [
            # Which pools a tenant sees beside its own.
            models.Index(fields=["tenant_id", "pool"], name="offer_of_tenant"),
        ]

    def __str__(self) -> str:
        return f"{self.pool_id} to {self.tenant_id}"


class Node(models.Model):
    """A host (NOD-1, NOD-4). ``session``, ``boot_id`` and ``sequence`` say which of its messages is the newest (NOD-9).

    Host amounts are what the node reports as bookable, empty where it never reported them (HST-2).
    """

    id = models.CharField(primary_key=True, max_length=64)
    name = models.CharField(max_length=63)
    pool = models.ForeignKey(Pool, null=True, blank=True, on_delete=models.PROTECT, related_name="nodes")
    positions = models.IntegerField(help_text="How many GPUs it can hold")
    unit_base = models.BigIntegerField(help_text="First of its units; its own for ever")
    state = models.CharField(max_length=16, default="registered")
    cordoned = models.BooleanField(default=False)
    cordon_reason = models.CharField(max_length=128, blank=True)
    draining = models.BooleanField(default=False, db_default=False)
    lost_at = models.BigIntegerField(null=True, blank=True, help_text="Epoch milliseconds of the last contact")
    removed_at = models.BigIntegerField(null=True, blank=True, help_text="Epoch milliseconds")
    unknown_allocations = models.JSONField(
        null=True, blank=True, help_text="While adopting: what it holds and nobody here knows (NOD-6)"
    )
    labels = models.JSONField(default=dict, blank=True)
    host_vcpu = models.BigIntegerField(null=True, blank=True)
    host_memory_mib = models.BigIntegerField(null=True, blank=True)
    host_hugepages_1gi = models.BigIntegerField(null=True, blank=True)
    host_lowered_at = models.BigIntegerField(
        null=True, blank=True, help_text="Epoch milliseconds; when it last came to report less than before (HST-1)"
    )
    software = models.JSONField(default=dict, blank=True)
    boot_id = models.CharField(max_length=128, blank=True)
    session = models.BigIntegerField(default=0, help_text="0: no session was ever opened")
    sequence = models.BigIntegerField(default=0)
    last_heartbeat_at = models.BigIntegerField(null=True, blank=True, help_text="Epoch milliseconds")
    created_at = models.BigIntegerField(help_text="Epoch milliseconds")
    created_by = models.CharField(max_length=128)
    version = models.BigIntegerField(default=1, help_text="Rises with every change but heartbeats and allocations")

    class Meta:
        constraints = [
            # Operators and certificates know a node by its name; that of a removed one is free again.
            models.UniqueConstraint(fields=["name"], name="node_name_unique", condition=Q(removed_at=None)),
            # No two nodes share a unit, so bookings of different nodes can never collide (REC-6).
            models.UniqueConstraint(fields=["unit_base"], name="node_units_unique"),
            models.CheckConstraint(condition=Q(state__in=STATES), name="node_state_known"),
            # All its GPUs lie inside its span of units.
            models.CheckConstraint(condition=Q(positions__range=(1, 64)), name="node_positions_range"),
            # What is lost has a last contact, from which its grace counts (REC-4); an adopting node may be silent too.
            models.CheckConstraint(
                condition=Q(state="adopting")
                | Q(state="lost", lost_at__isnull=False)
                | (~Q(state="lost") & Q(lost_at=None)),
                name="node_lost_has_contact",
            ),
            # A removed node is in no pool, so nothing counts or books it any more.
            models.CheckConstraint(condition=Q(removed_at=None) | Q(pool=None), name="node_removed_has_no_pool"),
        ]
        indexes = [
            # nodes/list: newest first.
            models.Index(F("created_at").desc(), F("id").desc(), name="node_newest"),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.id})"


class Device(models.Model):
    """A GPU at its position, as the node reported it. A replaced one stays as history (NOD-4)."""

    node = models.ForeignKey(Node, on_delete=models.PROTECT, related_name="devices")
    position = models.IntegerField()
    uuid = models.CharField(max_length=128)
    model = models.CharField(max_length=64)
    memory_mib = models.BigIntegerField()
    health = models.CharField(max_length=16)
    health_since = models.BigIntegerField(
        null=True, blank=True, help_text="Epoch milliseconds of the report that changed it; empty: from the first on"
    )
    mig = models.JSONField(default=list, blank=True)
    slots = models.IntegerField(null=True, blank=True)
    first_seen_at = models.BigIntegerField(help_text="Epoch milliseconds")
    retired_at = models.BigIntegerField(null=True, blank=True, help_text="Epoch milliseconds; another took its place")

    class Meta:
        constraints = [
            # One device per position, so one device per run of units.
            models.UniqueConstraint(
                fields=["node", "position"], name="device_live_unique", condition=Q(retired_at=None)
            ),
            # `missing`: the node no longer reports it; bookings on it stay and nothing new lands there (NOD-5).
            models.CheckConstraint(condition=Q(health__in=["ok", "unhealthy", "missing"]), name="device_health_known"),
            models.CheckConstraint(condition=Q(position__range=(0, 63)), name="device_position_range"),
        ]
        indexes = [
            # The few that are sick, which every tick looks for (NOD-5).
            models.Index(fields=["node"], name="device_sick", condition=Q(retired_at=None) & ~Q(health="ok")),
        ]

    def __str__(self) -> str:
        return f"{self.node_id}/{self.position} {self.uuid}"


class Taint(models.Model):
    """A reason for which nothing new lands on a node.

    ``subjects`` are the reservations on whose account it was set: it goes when the last of them is settled. Without
    any it stays until it is cleared, or until ``until``.
    """

    node = models.ForeignKey(Node, on_delete=models.PROTECT, related_name="taints")
    key = models.CharField(max_length=64)
    effect = models.CharField(max_length=16, default="NoSchedule")
    reason = models.CharField(max_length=128, blank=True)
    subjects = ArrayField(models.CharField(max_length=64), default=list, blank=True)
    since = models.BigIntegerField(help_text="Epoch milliseconds")
    until = models.BigIntegerField(null=True, blank=True, help_text="Epoch milliseconds")

    class Meta:
        constraints = [
            # A taint is there or not; setting it twice is setting it once.
            models.UniqueConstraint(fields=["node", "key"], name="taint_unique"),
            models.CheckConstraint(condition=Q(effect="NoSchedule"), name="taint_effect_known"),
        ]

    def __str__(self) -> str:
        return f"{self.node_id} {self.key}"


class Maintenance(models.Model):
    """A time in which a node takes no bookings (NOD-7); what was booked before stays."""

    id = models.CharField(primary_key=True, max_length=64)
    node = models.ForeignKey(Node, on_delete=models.PROTECT, related_name="maintenances")
    starts_at = models.BigIntegerField(help_text="Epoch milliseconds")
    ends_at = models.BigIntegerField(help_text="Epoch milliseconds, exclusive")
    reason = models.CharField(max_length=128, blank=True)
    created_at = models.BigIntegerField(help_text="Epoch milliseconds")
    created_by = models.CharField(max_length=128)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(ends_at__gt=F("starts_at")), name="maintenance_not_empty"),
        ]
        indexes = [
            # Placement reads those that are not over.
            models.Index(fields=["node", "ends_at"], name="maintenance_of_node"),
        ]

    def __str__(self) -> str:
        return f"maintenance of {self.node_id}"


class Allocation(models.Model):
    """What one node should hold for one reservation, and what it said it holds (DESIGN §2).

    reservations writes ``desired`` and ``until``; ``nodes/sync`` writes ``observed``, ``holders`` and ``told_at``, the
    first time that an answer to the node carried desired ``bound``.
    """

    reservation_id = models.CharField(max_length=64)
    tenant_id = models.CharField(max_length=128)
    pool_id = models.CharField(max_length=128)
    node = models.ForeignKey(Node, on_delete=models.PROTECT, related_name="allocations")
    binding = models.CharField(max_length=16)
    devices = models.JSONField(help_text="[{position, uuid, class}]")
    resources = models.JSONField(default=dict, blank=True, help_text="Host amounts by name; empty: none booked")
    until = models.BigIntegerField(help_text="Epoch milliseconds")
    desired = models.CharField(max_length=16)
    observed = models.CharField(max_length=16, blank=True)
    observed_at = models.BigIntegerField(null=True, blank=True, help_text="When observed last changed")
    holders = models.IntegerField(default=0, help_text="How many workloads the node says still use the devices")
    told_at = models.BigIntegerField(null=True, blank=True, help_text="Epoch milliseconds")
    generation = models.BigIntegerField(default=1, db_default=1, help_text="Rises when it is planned anew")
    older = models.JSONField(
        null=True, blank=True, help_text="{devices, observed, holders}: an earlier plan that the node may still hold"
    )

    class Meta:
        constraints = [
            # One desired state per reservation and node, whoever plans it again.
            models.UniqueConstraint(fields=["reservation_id", "node"], name="allocation_unique"),
            models.CheckConstraint(
                condition=Q(desired__in=["planned", "bound", "withdrawn"]), name="allocation_desired_known"
            ),
            models.CheckConstraint(
                condition=Q(observed__in=["", "bound", "withdrawing", "withdrawn"]), name="allocation_observed_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.reservation_id} on {self.node_id}"
