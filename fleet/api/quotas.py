"""``quotas/list`` and ``quotas/set``: served here, because they need to know whose pool it is (DESIGN §2)."""

from computeplatform.api.calls import Call, Resource
from computeplatform.api.fields import Id, Input, Items, Shape, Text, Whole
from computeplatform.api.methods import Answer, Data, method
from computeplatform.errors import InvalidInput
from fleet import queries
from fleet.api.resources import load_pool, load_pool_for_tenant
from fleet.api.shapes import RESOURCE, QuotaShape, quota_json
from fleet.contracts import PoolView
from fleet.domain.pools import quota_resources
from iam.operations.decisions import refuse_barred
from quotas.operations.limits import set_max
from quotas.queries import quotas_of

READ = "compute:quotas:read"


class ListInput(Input):
    poolId = Id(required=False)
    ofTenantId = Id(required=False, help_text="A borrower of the caller's own pools. Default: the caller itself.")


class SetInput(Input):
    poolId = Id()
    toTenantId = Id(help_text="The owner itself, or a tenant that the pool is offered to.")
    resource = Text(pattern=RESOURCE)
    max = Whole()
    version = Whole(required=False, help_text="The row's present version; 0: there must be none yet.")


class ListAnswer(Shape):
    quotas = Items(child=QuotaShape())


class SetAnswer(Shape):
    quota = QuotaShape()


def _load_for_list(call: Call, data: Data) -> tuple[Resource, PoolView | None]:
    resource, pool = load_pool_for_tenant(call, data)
    if pool and pool.tenant_id != call.tenant_id and data.get("ofTenantId", call.tenant_id) != call.tenant_id:
        refuse_barred(call.caller, READ, resource, context=call.context, reason="no-permit")
    return resource, pool


@method(
    "quotas/list",
    kind="read",
    action=READ,
    input=ListInput,
    output=ListAnswer,
    load=_load_for_list,
)
def list_(call: Call, data: Data, pool: PoolView | None) -> Answer:
    """What a tenant may use and uses, per pool and resource, ordered by pool and resource (QTA-1, QTA-2).

    Without `ofTenantId` the caller's own rows, in `poolId` or in all pools; a row whose offer was withdrawn shows max
    0. With it the rows of that tenant in pools that the caller owns, and only there: where `poolId` is another
    tenant's pool, a foreign `ofTenantId` is ACCESS_DENIED. `overBy` is how far `used` is above a lowered `max`.
    """
    of_tenant = data.get("ofTenantId", call.tenant_id)
    pool_ids = [pool.id] if pool else None
    if of_tenant != call.tenant_id:
        pool_ids = pool_ids or queries.owned_pool_ids(tenant_id=call.tenant_id)
    rows = quotas_of(tenant_id=of_tenant, pool_ids=pool_ids)
    return {"quotas": [quota_json(row) for row in rows]}


@method(
    "quotas/set",
    kind="mutation",
    action="compute:pools:admin",
    resource="compute-pool",
    input=SetInput,
    output=SetAnswer,
    load=load_pool,
)
def set_(call: Call, data: Data, pool: PoolView) -> Answer:
    """Set what a tenant may use of one resource of a pool; the pool's owner alone may (QTA-1).

    `max` is a number of whole units: devices, vCPUs, GiB. Below `used` it stops new charges and ends nothing that
    runs. Resources are `gpu`, `mig:<profile>` or `slot` as the pool's class has it, `vcpu` and `memoryGiB`; another,
    or a tenant that the pool is not offered to, is INVALID_INPUT. Emits `quota.changed` if the maximum is another one.
    """
    known = quota_resources(pool.device_class, pool.profile)
    if data["resource"] not in known:
        raise InvalidInput.at("resource", f"is no resource of this pool, which has {', '.join(known)}")
    to_tenant = data["toTenantId"]
    if to_tenant != pool.tenant_id and queries.offer_to(pool_id=pool.id, tenant_id=to_tenant) is None:
        raise InvalidInput.at("toTenantId", "the pool is not offered to this tenant")
    row = set_max(
        tenant_id=to_tenant,
        pool_id=pool.id,
        resource=data["resource"],
        max=data["max"],
        version=data.get("version"),
        by=call.actor,
        now=call.now,
    )
    return {"quota": quota_json(row)}
