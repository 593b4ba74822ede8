"""``pools/create``, ``get``, ``list``, ``update``, ``archive``, ``offer``, ``withdrawOffer`` (POL-1, POL-3)."""

from typing import Any

from computeplatform.api.calls import Call
from computeplatform.api.fields import Creating, Flag, Id, Input, Items, Name, OneOf, Page, Shape, Text, Whole
from computeplatform.api.methods import Answer, Data, Replay, method
from computeplatform.errors import InvalidInput, Issue
from fleet import queries
from fleet.api.resources import load_pool, load_pool_for_tenant
from fleet.api.shapes import WORD, Maxima, OfferShape, PolicyChange, PolicyShape, PoolShape, offer_json, pool_json
from fleet.contracts import OFFER_PRIORITY, OfferView, Policy, PoolView
from fleet.domain.pools import DEVICE_CLASSES, PROFILE, SHARING_OF_CLASS, SHARINGS
from fleet.operations import pools as operations
from iam.queries.principals import tenant_exists
from quotas.queries import quotas_of


class CreateInput(Creating):
    name = Name()
    region = Text(max_length=64, pattern=WORD)
    gpuModel = Text(max_length=64, pattern=WORD, help_text="As `h100-sxm-80g`.")
    deviceClass = OneOf(choices=DEVICE_CLASSES)
    sharing = OneOf(choices=SHARINGS, required=False, help_text="Default: the first that fits the class.")
    profile = Text(pattern=PROFILE, required=False, help_text="MIG pools need one, as `1g.10gb`; no other takes one.")
    policy = PolicyShape(required=False)
    resources = Maxima(required=False, help_text="The owner's own maxima. Default: no limit on any.")


class GetInput(Input):
    poolId = Id()


class ListInput(Page):
    includeArchived = Flag(default=False)


class OfferInput(Creating):
    poolId = Id()
    toTenantId = Id(help_text="The tenant that may use the pool from now on.")
    resources = Maxima(help_text="What it may use at most; a resource that is not named grants 0.")
    budgetCheck = Flag(required=False, help_text="Default: as the pool's policy says.")
    maxPriority = Whole(max_value=100, default=OFFER_PRIORITY)


class UpdateInput(Input):
    poolId = Id()
    name = Name(required=False)
    policy = PolicyChange(required=False)
    version = Whole(min_value=1, required=False, help_text="Refuse the change if the pool is no longer at this one.")


class ArchiveInput(Input):
    poolId = Id()
    version = Whole(min_value=1, required=False, help_text="Refuse the change if the pool is no longer at this one.")


class WithdrawInput(Input):
    poolId = Id()
    toTenantId = Id()
    version = Whole(min_value=1, required=False, help_text="Refuse the change if the offer is no longer at this one.")


class PoolAnswer(Shape):
    pool = PoolShape()


class GetAnswer(Shape):
    pool = PoolShape()
    offer = OfferShape(required=False, help_text="The terms of the calling tenant, if it is not the owner.")


class ListAnswer(Shape):
    pools = Items(child=PoolShape())
    nextCursor = Text(required=False)


class OfferAnswer(Shape):
    offer = OfferShape()


def _offer_json(offer: OfferView) -> dict[str, Any]:
    return offer_json(offer, quotas_of(tenant_id=offer.tenant_id, pool_ids=[offer.pool_id]))


def _stored_pool(call: Call, pool_id: str) -> Answer:
    return {"pool": pool_json(queries.visible_pool(tenant_id=call.tenant_id, pool_id=pool_id))}


def _stored_offer(call: Call, key: str) -> Answer:
    pool_id, _, tenant_id = key.partition(" ")
    return {"offer": _offer_json(queries.offer_made(pool_id=pool_id, tenant_id=tenant_id))}


@method(
    "pools/create",
    kind="mutation",
    action="compute:pools:create",
    input=CreateInput,
    output=PoolAnswer,
    replay=Replay(lambda answer: str(answer["pool"]["id"]), _stored_pool),
)
def create(call: Call, data: Data, _: None) -> Answer:
    """Make a pool that the calling tenant owns (POL-1).

    A pool holds devices of one kind: one class, one way of sharing, one GPU model, one region. Class `gpu` is shared
    `exclusive`, `mig` as `mig` and needs a `profile`, `slot` as `timeslice` or `mps`; other combinations are
    INVALID_INPUT. Nodes join it by `nodes/register` or `nodes/assign`; other tenants use it after `pools/offer`.

    `resources` are the owner's own quota maxima: exactly the rows that are named, and a resource without a row grants
    0. Left out, the pool's device resource, `vcpu` and `memoryGiB` have no limit (2^53−1). A resource that the pool
    does not know is INVALID_INPUT. `policy` members that are left out have their defaults. Emits `pool.created`.
    """
    sharing, profile = _kind(data)
    pool = operations.create_pool(
        tenant_id=call.tenant_id,
        name=data["name"],
        region=data["region"],
        gpu_model=data["gpuModel"],
        device_class=data["deviceClass"],
        sharing=sharing,
        profile=profile,
        policy=Policy.from_json(data.get("policy", {})),
        resources=data.get("resources"),
        by=call.actor,
        now=call.now,
    )
    return {"pool": pool_json(pool)}


@method(
    "pools/get",
    kind="read",
    action="compute:pools:read",
    input=GetInput,
    output=GetAnswer,
    load=load_pool_for_tenant,
)
def get(call: Call, data: Data, pool: PoolView) -> Answer:
    """A pool that the tenant owns or is offered, archived ones too; `offer` shows a borrower its own terms.

    Any other pool is NOT_FOUND, like an id that does not exist (API-5).
    """
    answer: Answer = {"pool": pool_json(pool)}
    offer = queries.offer_to(pool_id=pool.id, tenant_id=call.tenant_id) if pool.offered else None
    return answer | ({"offer": _offer_json(offer)} if offer else {})


@method("pools/list", kind="read", action="compute:pools:read", input=ListInput, output=ListAnswer)
def list_(call: Call, data: Data, _: None) -> Answer:
    """The pools that the tenant owns or is offered, newest first; archived ones only with `includeArchived`.

    `cursor` is the id of the last pool of the page before; an unknown or foreign one is INVALID_INPUT.
    """
    pools, cursor = queries.list_pools(
        tenant_id=call.tenant_id,
        limit=data["limit"],
        cursor=data.get("cursor"),
        include_archived=data["includeArchived"],
    )
    return {"pools": [pool_json(pool) for pool in pools]} | ({"nextCursor": cursor} if cursor else {})


@method(
    "pools/offer",
    kind="mutation",
    action="compute:pools:admin",
    resource="compute-pool",
    input=OfferInput,
    output=OfferAnswer,
    load=load_pool,
    codes=("INVALID_STATE",),
    replay=Replay(lambda answer: f"{answer['offer']['poolId']} {answer['offer']['toTenantId']}", _stored_offer),
)
def offer(call: Call, data: Data, pool: PoolView) -> Answer:
    """Let another tenant use the pool, or change the terms on which it does (POL-1, QTA-4).

    Sets the tenant's quota rows to `resources`; rows that are not named stay as they are, and a resource without a row
    grants 0. `maxPriority` is the highest priority that the tenant may ask for, `budgetCheck` whether its budget is
    looked at. Decided on the pool in its owner's tenant: a borrower is refused whatever its policies say.

    INVALID_INPUT for a tenant that does not exist, the owner itself, or a resource that the pool does not know;
    INVALID_STATE for an archived pool. Emits `pool.offered`, and `quota.changed` per row that changes.
    """
    if not tenant_exists(data["toTenantId"]):
        raise InvalidInput.at("toTenantId", "there is no such tenant")
    made = operations.offer_pool(
        pool_id=pool.id,
        to_tenant_id=data["toTenantId"],
        resources=data["resources"],
        budget_check=data.get("budgetCheck"),
        max_priority=data["maxPriority"],
        by=call.actor,
        now=call.now,
    )
    return {"offer": _offer_json(made)}


@method(
    "pools/update",
    kind="mutation",
    action="compute:pools:admin",
    resource="compute-pool",
    input=UpdateInput,
    output=PoolAnswer,
    load=load_pool,
)
def update(call: Call, data: Data, pool: PoolView) -> Answer:
    """Change the pool's name and members of its policy (POL-1). Archived pools too: what runs there still goes by it.

    `policy` is merged member by member: what is left out stays, `null` gives the default again (or removes what has
    none), and a member that is an object (`kubernetes`, `perGpu`, `price`) is replaced as a whole. What a change acts
    on:

    - `price`, `perGpu`: reservations that are admitted later. What is admitted keeps its price and its share, for
      extensions and re-placements too (QTA-3, HST-2).
    - `maxDurationHours`, `maxAdvanceDays`, `tenantRoot`, `kubernetes`, `agentsNeedLease`, `budgetCheck`: requests and
      extensions that come later. Nothing that is admitted ends or is refused for them.
    - `placer`, `preemptSpot`, `spotNoticeSeconds`: every placement and preemption from now on, of what waits too.
    - `nodeLostGraceSeconds`, `bindTimeoutSeconds`, `maxPendingHours`: everything that runs, binds or waits, counted
      from when its time began; a shorter one may have run out already, and is acted on at once.

    A stale `version` is CONFLICT. A change to what is the case already changes nothing. Emits `pool.updated`. Decided
    on the pool in its owner's tenant.
    """
    changed = operations.update_pool(
        pool_id=pool.id,
        name=data.get("name"),
        policy=data.get("policy", {}),
        version=data.get("version"),
        by=call.actor,
        now=call.now,
    )
    return {"pool": pool_json(changed)}


@method(
    "pools/archive",
    kind="mutation",
    action="compute:pools:admin",
    resource="compute-pool",
    input=ArchiveInput,
    output=PoolAnswer,
    load=load_pool,
)
def archive(call: Call, data: Data, pool: PoolView) -> Answer:
    """Take no new bookings in the pool; an archived pool is answered unchanged (POL-1, POL-3).

    Within seconds pending reservations are cancelled with reason `pool-archived`. Placed and later ones run to their
    end, are placed anew if they must be, and cannot be extended. All quota maxima of the pool become 0; the rows stay.
    It cannot be undone. A stale `version` is CONFLICT. Emits `pool.archived`, and `quota.changed` per row.
    """
    archived = operations.archive_pool(pool_id=pool.id, version=data.get("version"), by=call.actor, now=call.now)
    return {"pool": pool_json(archived)}


@method(
    "pools/withdrawOffer",
    kind="mutation",
    action="compute:pools:admin",
    resource="compute-pool",
    input=WithdrawInput,
    output=OfferAnswer,
    load=load_pool,
)
def withdraw_offer(call: Call, data: Data, pool: PoolView) -> Answer:
    """Take the pool away from a tenant; an offer that was withdrawn already is answered unchanged (POL-1, POL-3).

    The tenant no longer sees the pool. Within seconds its pending reservations are cancelled with reason
    `offer-withdrawn`; placed and later ones run to their end, are placed anew if they must be, and cannot be extended.
    Its quota maxima in the pool become 0; the rows stay. `pools/offer` opens the pool to it again. NOT_FOUND for a
    tenant that it was never offered to; a stale `version` is CONFLICT. Emits `pool.offer-withdrawn`, and
    `quota.changed` per row.
    """
    withdrawn = operations.withdraw_offer(
        pool_id=pool.id, to_tenant_id=data["toTenantId"], version=data.get("version"), by=call.actor, now=call.now
    )
    return {"offer": _offer_json(withdrawn)}


def _kind(data: Data) -> tuple[str, str]:
    """Sharing and profile, after checking that they fit the class."""
    device_class = data["deviceClass"]
    fitting = SHARING_OF_CLASS[device_class]
    sharing, profile = data.get("sharing", fitting[0]), data.get("profile", "")
    issues = []
    if sharing not in fitting:
        issues.append(Issue("sharing", f"devices of class {device_class} are shared {' or '.join(fitting)}"))
    if device_class == "mig" and not profile:
        issues.append(Issue("profile", "a MIG pool needs one"))
    if device_class != "mig" and profile:
        issues.append(Issue("profile", "only a MIG pool has one"))
    if issues:
        raise InvalidInput(issues)
    return sharing, profile
