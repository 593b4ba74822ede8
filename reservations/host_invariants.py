"""What must hold of host amounts at every commit (HST-1): read-only checks that name what differs."""

from computeplatform.invariants import invariant
from reservations.invariants import Found, Pools, _rows, _scope

_AMOUNTS = """
SELECT r.id, b.node_id, sum(b.vcpu_milli), sum(b.memory_mib), sum(b.hugepages_1gi), a.resources::text
FROM reservations_reservation r
JOIN reservations_booking b ON b.reservation_id = r.id AND b.planned = int8range(r.starts_at, r.ends_at)
    AND NOT isempty(b.during)
LEFT JOIN fleet_allocation a ON a.reservation_id = r.id AND a.node_id = b.node_id AND a.desired <> 'withdrawn'
WHERE r.state = ANY(%(booked)s) AND (%(all)s OR r.pool_id = ANY(%(pools)s))
GROUP BY r.id, b.node_id, a.id
HAVING (sum(b.vcpu_milli), sum(b.memory_mib), sum(b.hugepages_1gi))
    IS DISTINCT FROM (r.vcpu_milli::numeric, r.memory_mib::numeric, r.hugepages_1gi::numeric)
    OR a.resources IS DISTINCT FROM CASE WHEN r.vcpu_milli + r.memory_mib + r.hugepages_1gi = 0 THEN '{}'::jsonb
        ELSE jsonb_build_object('vcpuMilli', r.vcpu_milli, 'memoryMiB', r.memory_mib, 'hugepages1Gi', r.hugepages_1gi)
        END
"""


@invariant("reservations.host-amounts")
def host_amounts(pools: Pools) -> Found:
    """Each node of a reservation has its amounts booked once, and is told to enforce them (HST-1)."""
    for reservation_id, node_id, vcpu, memory, pages, told in _rows(_AMOUNTS, _scope(pools)):
        booked = f"{vcpu} milli-vCPU, {memory} MiB and {pages} pages are booked"
        yield reservation_id, f"on {node_id} {booked}, and {told} told; not what the reservation says"


_OVER = """
WITH booked AS (
    SELECT node_id, during, vcpu_milli, memory_mib, hugepages_1gi FROM reservations_booking
    WHERE vcpu_milli + memory_mib + hugepages_1gi > 0 AND NOT isempty(during) AND (%(all)s OR pool_id = ANY(%(pools)s))
), steps AS (
    SELECT node_id, lower(during) AS moment, vcpu_milli, memory_mib, hugepages_1gi FROM booked
    UNION ALL SELECT node_id, upper(during), -vcpu_milli, -memory_mib, -hugepages_1gi FROM booked
), used AS (
    SELECT node_id, moment, sum(sum(vcpu_milli)) OVER upto AS vcpu, sum(sum(memory_mib)) OVER upto AS memory,
        sum(sum(hugepages_1gi)) OVER upto AS pages
    FROM steps GROUP BY node_id, moment WINDOW upto AS (PARTITION BY node_id ORDER BY moment)
)
SELECT u.node_id, u.moment, u.vcpu, u.memory, u.pages, n.host_vcpu, n.host_memory_mib, n.host_hugepages_1gi
FROM used u JOIN fleet_node n ON n.id = u.node_id
WHERE n.host_lowered_at IS NULL AND (u.vcpu > coalesce(n.host_vcpu, 0) * 1000
    OR u.memory > coalesce(n.host_memory_mib, 0) OR u.pages > coalesce(n.host_hugepages_1gi, 0))
"""


@invariant("reservations.host-capacity")
def host_capacity(pools: Pools) -> Found:
    """At no instant more of a host is booked than it reports, unless it has come to report less (HST-1)."""
    for node_id, moment, vcpu, memory, pages, *reported in _rows(_OVER, _scope(pools)):
        there = f"{reported[0]} vCPU, {reported[1]} MiB, {reported[2]} pages"
        yield node_id, f"{vcpu} milli-vCPU, {memory} MiB, {pages} pages booked at {moment}; it reports {there}"
