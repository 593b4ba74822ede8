"""Reservations and bookings, read-only."""

from django.contrib import admin
from unfold.admin import TabularInline

from computeplatform.admin_tools import ReadOnlyAdmin, instant
from reservations.models import Booking, Reservation


class BookingInline(TabularInline):  # type: ignore[misc]
    """What the reservation holds."""

    model = Booking
    extra = 0
    can_delete = False
    fields = ("node_id", "units", "devices", "planned", "during", "billed")
    readonly_fields = fields

    def has_add_permission(self, *_: object) -> bool:
        """Bookings are made by placement."""
        return False


@admin.register(Reservation)
class ReservationAdmin(ReadOnlyAdmin):
    """Every reservation, drafts too."""

    list_display = (
        "id",
        "tenant_id",
        "state",
        "reason",
        "pool_id",
        "device_class",
        "count",
        "nodes",
        instant("starts_at"),
        instant("ends_at"),
        instant("created_at"),
    )
    list_filter = ("state", "device_class", "binding", "spot", "pool_id")
    search_fields = ("id", "tenant_id", "creator_id", "name", "idempotency_key")
    ordering = ("-created_at", "-id")
    inlines = (BookingInline,)


@admin.register(Booking)
class BookingAdmin(ReadOnlyAdmin):
    """Runs of units for time ranges."""

    list_display = ("id", "reservation_id", "tenant_id", "pool_id", "node_id", "devices", "units", "during", "billed")
    list_filter = ("pool_id",)
    search_fields = ("reservation__id", "tenant_id", "node_id")
    ordering = ("-id",)
