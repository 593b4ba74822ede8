"""iam's own part of the vocabulary, and the parts of the kernel's groups, which have no app of their own."""

from iam.catalogue import STRING, Action, ResourceType, register

_READS = ("principals", "keys", "policies", "agents", "delegations", "confirmations", "decisions", "tenants")
_MUTATIONS = {
    "principals": ("create", "update", "suspend", "resume"),
    "keys": ("create", "rotate", "revoke"),
    "policies": ("put", "delete"),
    "agents": ("create", "suspend", "resume", "suspendAll"),
    "delegations": ("grant", "assume", "revoke"),
    "confirmations": ("decide",),
    "tenants": ("create", "suspend", "resume"),
}


def register_vocabulary() -> None:
    """Called when Django starts."""
    register(
        "iam",
        resources=[
            ResourceType("compute-tenant", "Tenant", {"tenantId": STRING}),
            ResourceType("iam-tenant", "IamTenant", {"tenantId": STRING, "subjectId": STRING, "sponsorId": STRING}),
        ],
        actions=[
            *(Action(f"iam:{group}:read", on=("IamTenant",)) for group in _READS),
            *(
                Action(f"iam:{group}:{verb}", on=("IamTenant",))
                for group, verbs in _MUTATIONS.items()
                for verb in verbs
            ),
        ],
    )
    register(
        "computeplatform",
        actions=[
            Action("compute:events:read", on=("Tenant",)),
            Action("compute:webhooks:read", on=("Tenant",)),
            Action("compute:webhooks:admin", on=("Tenant",)),
        ],
    )
