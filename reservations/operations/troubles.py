"""What a running reservation carries while something of it is lost or sick, and how that ends (REC-4, NOD-5)."""

from collections.abc import Mapping, Sequence

from django.db import connection

from computeplatform.conditions import from_json, to_json, without_condition
from computeplatform.db.gaps import service_gaps
from fleet import queries as fleet
from fleet.contracts import PoolView
from reservations.domain.conditions import DEVICE_UNHEALTHY, NODE_LOST
from reservations.models import Downtime, Reservation


def lost_deadlines(rows: Sequence[Reservation], pools: Mapping[str, PoolView], *, now: int) -> dict[str, int]:
    """When those that run on lost nodes are given up: the pool's grace after the last contact (REC-4).

    Gaps in our own service move it (REC-8). No query where nothing is the matter with any of the rows.
    """
    disturbed = [row for row in rows if row.disturbed_since is not None]
    lost = fleet.lost_nodes({row.pool_id for row in disturbed}) if disturbed else {}
    if not lost:
        return {}
    gaps = service_gaps(since=min(lost.values()), now=now)
    found = {}
    for row in disturbed:
        grace = pools[row.pool_id].policy.node_lost_grace_seconds * 1_000
        contacts = [lost[part["nodeId"]] for part in row.placement if part["nodeId"] in lost]
        if contacts:
            found[row.id] = min(gaps.moved(contact + grace, since=contact) for contact in contacts)
    return found


def open_downtimes(began: Mapping[str, int]) -> None:
    """These reservations are down as a whole since then, and from then on unbilled; one that is down stays so."""
    Downtime.objects.bulk_create(
        [Downtime(reservation_id=id_, began_at=at) for id_, at in sorted(began.items())], ignore_conflicts=True
    )


def close_downtimes(ended: Mapping[str, int]) -> None:
    """Something of these reservations works again, or they have ended; one that is not down: nothing happens."""
    if not ended:
        return
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE reservations_downtime AS d SET ended_at = greatest(d.began_at, e.at)"
            " FROM unnest(%s::text[], %s::bigint[]) AS e(id, at) WHERE d.reservation_id = e.id AND d.ended_at IS NULL",
            [list(ended), list(ended.values())],
        )


def leave_trouble(leaving: Mapping[Reservation, int]) -> None:
    """The reservations have left their nodes at these times: what was wrong with them is no longer their concern."""
    disturbed = {row: at for row, at in leaving.items() if row.disturbed_since is not None}
    for row in disturbed:
        row.disturbed_since = None
        row.conditions = to_json(without_condition(from_json(row.conditions), NODE_LOST, DEVICE_UNHEALTHY))
    close_downtimes({row.id: at for row, at in disturbed.items()})
