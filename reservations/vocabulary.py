"""What policies can say about reservations (CRE-7, IAM-API §5-§7)."""

from iam.catalogue import BOOL, DECIMAL, LONG, STRING, Action, Kind, ResourceType, register

ATTRIBUTES: dict[str, Kind] = {
    "tenantId": STRING,
    "poolId": STRING,
    "ownerTenantId": STRING,
    "region": STRING,
    "gpuModel": STRING,
    "gpuCount": LONG,
    "deviceClass": STRING,
    "deviceCount": LONG,
    "profile": STRING,
    "sharing": STRING,
    "nodes": LONG,
    "binding": STRING,
    "spot": BOOL,
    "priority": LONG,
    "durationHours": LONG,
    "startsInHours": LONG,
    "leaseSeconds": LONG,
    "vcpu": LONG,
    "memoryGiB": LONG,
    "hugepages1Gi": LONG,
    "estimatedCost": DECIMAL,
    "currency": STRING,
    "creatorId": STRING,
    "creatorKind": STRING,
    "creatorAgentId": STRING,
}


def register_vocabulary() -> None:
    """Called when Django starts."""
    register(
        "reservations",
        resources=[
            # Without a gang everything is on one node.
            ResourceType("compute-reservation", "Reservation", ATTRIBUTES, in_tenant=True, empty={"nodes": 1})
        ],
        actions=[
            Action("compute:reservations:create", on=("Reservation",)),
            Action("compute:reservations:extend", on=("Reservation",)),
            Action("compute:reservations:release", on=("Reservation",)),
            Action("compute:reservations:read", on=("Reservation", "Tenant")),
            Action("compute:usage:read", on=("Tenant",)),
            Action("compute:budgets:read", on=("Tenant",)),
            Action("compute:budgets:admin", on=("Tenant",)),
        ],
    )
