"""What the fleet tells (EVT-1). A node's events belong to the platform, a pool's and an offer's to the pool's owner."""

from collections.abc import Mapping
from typing import Any

from computeplatform.api.calls import Actor
from computeplatform.events.outbox import NewEvent
from fleet.contracts import PLATFORM
from fleet.models import Node, Offer, Pool

POOL_CREATED = "pool.created"
POOL_OFFERED = "pool.offered"
POOL_UPDATED = "pool.updated"
POOL_ARCHIVED = "pool.archived"
POOL_OFFER_WITHDRAWN = "pool.offer-withdrawn"
POOL_MASS_SILENCE = "pool.mass-silence"
POOL_MASS_SILENCE_ENDED = "pool.mass-silence-ended"
NODE_REGISTERED = "node.registered"
NODE_READY = "node.ready"
NODE_LOST = "node.lost"
NODE_RETURNED = "node.returned"
NODE_ADOPTING = "node.adopting"
NODE_ADOPTED = "node.adopted"
NODE_CORDONED = "node.cordoned"
NODE_UNCORDONED = "node.uncordoned"
NODE_DRAINING = "node.draining"
NODE_REMOVED = "node.removed"
NODE_MAINTENANCE_PLANNED = "node.maintenance-planned"
NODE_MAINTENANCE_CANCELLED = "node.maintenance-cancelled"
NODE_ASSIGNED = "node.assigned"
NODE_DEVICES_CHANGED = "node.devices-changed"
NODE_HOST_CHANGED = "node.host-changed"
NODE_TAINTED = "node.tainted"
NODE_UNTAINTED = "node.untainted"


def pool_created(pool: Pool, *, by: Actor, now: int) -> NewEvent:
    """A pool exists; nobody but its owner sees it yet."""
    data = {
        "name": pool.name,
        "region": pool.region,
        "gpuModel": pool.gpu_model,
        "deviceClass": pool.device_class,
        "sharing": pool.sharing,
    }
    return _event(POOL_CREATED, pool.tenant_id, ("pool", pool.id, pool.version), data, by=by, now=now)


def pool_updated(pool: Pool, *, changed: Mapping[str, Any], by: Actor, now: int) -> NewEvent:
    """Its name or members of its policy are others now; a member without a value is None."""
    return _event(POOL_UPDATED, pool.tenant_id, ("pool", pool.id, pool.version), changed, by=by, now=now)


def pool_archived(pool: Pool, *, by: Actor, now: int) -> NewEvent:
    """The pool takes no new bookings."""
    return _event(POOL_ARCHIVED, pool.tenant_id, ("pool", pool.id, pool.version), {"name": pool.name}, by=by, now=now)


def offer_withdrawn(offer: Offer, pool: Pool, *, by: Actor, now: int) -> NewEvent:
    """A tenant may book nothing more in the pool. The subject is the offer."""
    data = {"poolId": pool.id, "toTenantId": offer.tenant_id}
    subject = ("offer", offer.id, offer.version)
    return _event(POOL_OFFER_WITHDRAWN, pool.tenant_id, subject, data, by=by, now=now)


def pool_offered(offer: Offer, pool: Pool, *, resources: Mapping[str, int], by: Actor, now: int) -> NewEvent:
    """A tenant may use the pool, or on other terms than before. The subject is the offer."""
    data = {
        "poolId": pool.id,
        "toTenantId": offer.tenant_id,
        "maxPriority": offer.max_priority,
        "resources": dict(resources),
    }
    return _event(POOL_OFFERED, pool.tenant_id, ("offer", offer.id, offer.version), data, by=by, now=now)


def pool_mass_silence(pool: Pool, *, silent: int, nodes: int, by: Actor, now: int) -> NewEvent:
    """Many of its nodes fell silent at once: none of them is lost until an operator says so (REC-8)."""
    data = {"silent": silent, "nodes": nodes}
    return _event(POOL_MASS_SILENCE, pool.tenant_id, ("pool", pool.id, pool.version), data, by=by, now=now)


def pool_mass_silence_ended(pool: Pool, *, reason: str, by: Actor, now: int) -> NewEvent:
    """All of them were heard of again (``returned``), or an operator has had the others lost (``operator``)."""
    subject = ("pool", pool.id, pool.version)
    return _event(POOL_MASS_SILENCE_ENDED, pool.tenant_id, subject, {}, by=by, now=now, reason=reason)


def node_event(type_: str, node: Node, *, by: Actor, now: int, reason: str = "", **data: Any) -> NewEvent:
    """Something about a node that its present version says."""
    subject = ("node", node.id, node.version)
    return _event(type_, PLATFORM, subject, {"name": node.name, **data}, by=by, now=now, reason=reason)


def _event(
    type_: str,
    tenant_id: str,
    subject: tuple[str, str, int],
    data: Mapping[str, Any],
    *,
    by: Actor,
    now: int,
    reason: str = "",
) -> NewEvent:
    return NewEvent(
        type=type_,
        tenant_id=tenant_id,
        at=now,
        subject_type=subject[0],
        subject_id=subject[1],
        subject_version=subject[2],
        reason=reason,
        actor_id=by.principal_id,
        agent_id=by.agent_id,
        request_id=by.request_id,
        data=data,
    )
