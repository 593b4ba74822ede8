"""What a scrape of ``/metrics`` reads of reservations; no label names a tenant."""

from collections.abc import Iterator

from django.db import connection

from computeplatform.metrics import gauge
from reservations.domain.states import LIVE


@gauge("compute_reservations", "Live reservations by pool and state", "pool", "state")
def reservations_by_state() -> Iterator[tuple[tuple[str, ...], float]]:
    """One sample per pool and live state."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pool_id, state, count(*) FROM reservations_reservation WHERE state = ANY(%s) GROUP BY 1, 2",
            [sorted(LIVE)],
        )
        for pool_id, state, count in cursor.fetchall():
            yield (pool_id, state), float(count)


@gauge("compute_devices_booked", "Devices booked at this moment, by pool", "pool")
def devices_booked() -> Iterator[tuple[tuple[str, ...], float]]:
    """One sample per pool with bookings."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pool_id, sum(devices) FROM reservations_booking WHERE during @> compute_now() GROUP BY 1"
        )
        for pool_id, devices in cursor.fetchall():
            yield (pool_id,), float(devices)
