"""Making pools, changing and offering them, and taking that back (POL-1, POL-3)."""

from collections.abc import Mapping
from typing import Any

from computeplatform.api.calls import Actor
from computeplatform.db.retry import in_transaction
from computeplatform.errors import InvalidInput, Issue, StaleVersion
from computeplatform.events.outbox import emit
from computeplatform.ids import new_id
from computeplatform.wakes import wake
from fleet import events
from fleet.contracts import OFFER_PRIORITY, OfferView, Policy, PoolView
from fleet.domain.pools import quota_resources
from fleet.errors import OfferNotFound, PoolArchived, PoolNotFound
from fleet.locks import lock_pool_rows
from fleet.models import Offer, Pool
from fleet.projections import offer_view, owner_view
from quotas.contracts import UNLIMITED
from quotas.operations.limits import close_rows, ensure_rows


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
    pool = _locked(pool_id)
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


@in_transaction
def update_pool(
    *,
    pool_id: str,
    name: str | None,
    policy: Mapping[str, Any],
    version: int | None,
    by: Actor,
    now: int,
) -> PoolView:
    """Change a pool's name and members of its policy; a member that is None has its default again.

    Raises PoolNotFound and StaleVersion. What is the same already changes nothing. Emits ``pool.updated``.
    """
    pool = _locked(pool_id)
    _refuse_stale(pool, version)
    before = Policy.from_json(pool.policy)
    after = before.merged(policy)
    old, new = before.as_json(), after.as_json()
    members = sorted(old.keys() | new.keys())
    different = {member: new.get(member) for member in members if old.get(member) != new.get(member)}
    changed: dict[str, Any] = {"policy": different} if different else {}
    if name is not None and name != pool.name:
        changed["name"] = name
    if changed:
        pool.name, pool.policy = changed.get("name", pool.name), new
        pool.version += 1
        pool.save(update_fields=["name", "policy", "version"])
        emit([events.pool_updated(pool, changed=changed, by=by, now=now)])
        # What waits may fit on other terms, or have waited for long enough.
        wake("placement", pool.id)
    return owner_view(pool)


@in_transaction
def archive_pool(*, pool_id: str, version: int | None, by: Actor, now: int) -> PoolView:
    """Take no new bookings in the pool, of anybody; an archived one is left as it is (POL-3).

    Raises PoolNotFound and StaleVersion. Emits ``pool.archived``.
    """
    pool = _locked(pool_id)
    _refuse_stale(pool, version)
    if pool.archived_at is None:
        pool.archived_at, pool.version = now, pool.version + 1
        pool.save(update_fields=["archived_at", "version"])
        close_rows(pool_id=pool.id, by=by, now=now)
        emit([events.pool_archived(pool, by=by, now=now)])
        wake("reconcile", pool.id)
    return owner_view(pool)


@in_transaction
def withdraw_offer(*, pool_id: str, to_tenant_id: str, version: int | None, by: Actor, now: int) -> OfferView:
    """Take back an offer; one that was taken back already is left as it is (POL-3).

    Raises PoolNotFound, OfferNotFound and StaleVersion. Emits ``pool.offer-withdrawn``.
    """
    pool = _locked(pool_id)
    offer = Offer.objects.filter(pool=pool, tenant_id=to_tenant_id).first()
    if offer is None:
        raise OfferNotFound
    _refuse_stale(offer, version)
    if offer.withdrawn_at is None:
        offer.withdrawn_at, offer.version = now, offer.version + 1
        offer.save(update_fields=["withdrawn_at", "version"])
        close_rows(pool_id=pool.id, tenant_id=to_tenant_id, by=by, now=now)
        emit([events.offer_withdrawn(offer, pool, by=by, now=now)])
        wake("reconcile", pool.id)
    return offer_view(offer)


def _locked(pool_id: str) -> Pool:
    try:
        return lock_pool_rows([pool_id])[pool_id]
    except KeyError:
        raise PoolNotFound from None


def _refuse_stale(row: Pool | Offer, version: int | None) -> None:
    if version is not None and version != row.version:
        raise StaleVersion(given=version, present=row.version)


def _refuse_unknown(resources: Mapping[str, int], known: tuple[str, ...]) -> None:
    wrong = [name for name in resources if name not in known]
    if wrong:
        words = f"is no resource of this pool, which has {', '.join(known)}"
        raise InvalidInput([Issue(f"resources.{name}", words) for name in sorted(wrong)])
