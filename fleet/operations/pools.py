"""Making pools and offering them (POL-1)."""

from collections.abc import Mapping

from computeplatform.api.calls import Actor
from computeplatform.db.retry import in_transaction
from computeplatform.errors import InvalidInput, Issue
from computeplatform.events.outbox import emit
from computeplatform.ids import new_id
from fleet import events
from fleet.contracts import OFFER_PRIORITY, OfferView, Policy, PoolView
from fleet.domain.pools import quota_resources
from fleet.errors import PoolArchived, PoolNotFound
from fleet.locks import lock_pool_rows
from fleet.models import Offer, Pool
from fleet.projections import offer_view, owner_view
from quotas.contracts import UNLIMITED
from quotas.operations.limits import ensure_rows


@in_transaction
def create_pool(
    *,
    tenant_id: str,
    name: str,
    region: str,
    gpu_model: str,
    device_class: str,
    sharing: str,
    profile: str,
    policy: Policy,
    resources: Mapping[str, int] | None,
    by: Actor,
    now: int,
) -> PoolView:
    """Make a pool and its owner's quota rows. ``resources`` None: no limit on any resource that the pool knows.

    Raises InvalidInput for a resource that the pool does not know. Emits ``pool.created``.
    """
    known = quota_resources(device_class, profile)
    if resources is not None:
        _refuse_unknown(resources, known)
    pool = Pool.objects.create(
        id=new_id("pool"),
        tenant_id=tenant_id,
        name=name,
        region=region,
        gpu_model=gpu_model,
        device_class=device_class,
        sharing=sharing,
        profile=profile,
        policy=policy.as_json(),
        created_at=now,
        created_by=by.principal_id,
    )
    maxima = dict.fromkeys(known, UNLIMITED) if resources is None else resources
    ensure_rows(tenant_id=tenant_id, pool_id=pool.id, maxima=maxima, by=by, now=now)
    emit([events.pool_created(pool, by=by, now=now)])
    return owner_view(pool)


@in_transaction
def offer_pool(
    *,
    pool_id: str,
    to_tenant_id: str,
    resources: Mapping[str, int],
    budget_check: bool | None,
    max_priority: int = OFFER_PRIORITY,
    by: Actor,
    now: int,
) -> OfferView:
    """Open the pool to another tenant, or change the terms of its offer; sets the quota rows that are named.

    The caller has been allowed to administer the pool, and ``to_tenant_id`` exists. Raises PoolArchived, and
    InvalidInput for an offer to the owner or a resource that the pool does not know. Emits ``pool.offered``.
    """
    pool = lock_pool_rows([pool_id]).get(pool_id)
    if pool is None:
        raise PoolNotFound
    if pool.archived_at is not None:
        raise PoolArchived
    if to_tenant_id == pool.tenant_id:
        raise InvalidInput.at("toTenantId", "is the pool's owner, who needs no offer")
    _refuse_unknown(resources, quota_resources(pool.device_class, pool.profile))
    offer = Offer.objects.filter(pool=pool, tenant_id=to_tenant_id).first()
    if offer is None:
        offer = Offer(id=new_id("offer"), pool=pool, tenant_id=to_tenant_id, version=0)
    if offer.version == 0 or offer.withdrawn_at is not None:
        offer.created_at, offer.created_by, offer.withdrawn_at = now, by.principal_id, None
    offer.budget_check, offer.max_priority = budget_check, max_priority
    offer.version += 1
    offer.save()
    ensure_rows(tenant_id=to_tenant_id, pool_id=pool.id, maxima=resources, by=by, now=now)
    emit([events.pool_offered(offer, pool, resources=resources, by=by, now=now)])
    return offer_view(offer)


def _refuse_unknown(resources: Mapping[str, int], known: tuple[str, ...]) -> None:
    wrong = [name for name in resources if name not in known]
    if wrong:
        words = f"is no resource of this pool, which has {', '.join(known)}"
        raise InvalidInput([Issue(f"resources.{name}", words) for name in sorted(wrong)])
