"""The policies that are part of the code (IAM-API §8): in force in every tenant, beside its own."""

from collections.abc import Sequence

_OWN = "resource.subjectId == principal.id"
_SPONSORED = "resource.sponsorId == principal.id"


def _role(name: str) -> str:
    return f'principal in Compute::Role::"{name}"'


def _of(group: str, *verbs: str) -> list[str]:
    return [f"{group}:{verb}" for verb in verbs]


def _permit(who: str, actions: Sequence[str], resource: str = "resource", *, when: str = "") -> str:
    listed = ", ".join(f'Compute::Action::"{action}"' for action in actions)
    condition = f" when {{ {when} }}" if when else ""
    return f"permit ({who}, action in [{listed}], {resource}){condition};"


# One entry per Cedar statement, in order; several may carry one name, under which decisions show them.
STATEMENTS: tuple[tuple[str, str], ...] = (
    ("isolation", "forbid (principal, action, resource) unless { resource.tenantId == principal.tenantId };"),
    (
        "tenant-admin",
        (
            f"permit ({_role('tenant-admin')}, action, resource)"
            " unless { resource is Compute::Fleet || resource is Compute::Node };"
        ),
    ),
    ("fleet-admin", _permit(_role("fleet-admin"), _of("compute:fleet", "read", "admin"))),
    ("viewer", _permit(_role("viewer"), ["compute:*:read"])),
    (
        "reserver",
        _permit(
            _role("reserver"),
            ["compute:pools:read", "compute:quotas:read", "compute:reservations:read"],
            "resource is Compute::Tenant",
        ),
    ),
    ("reserver", _permit(_role("reserver"), ["compute:reservations:create"])),
    (
        "reserver",
        _permit(
            _role("reserver"),
            _of("compute:reservations", "read", "extend", "release"),
            "resource is Compute::Reservation",
            when="resource.creatorId == principal.id",
        ),
    ),
    (
        "node",
        _permit(
            "principal is Compute::Service",
            ["compute:nodes:sync"],
            "resource is Compute::Node",
            when='principal.nodeId != "" && principal.nodeId == resource.nodeId',
        ),
    ),
    ("self", _permit("principal", ["iam:principals:read", *_of("iam:keys", "read", "rotate", "revoke")], when=_OWN)),
    ("self", _permit("principal", _of("iam:delegations", "read", "assume", "revoke"), when=_OWN)),
    (
        "self",
        _permit(
            "principal is Compute::User",
            ["iam:delegations:grant", *_of("iam:confirmations", "read", "decide")],
            when=_OWN,
        ),
    ),
    (
        "sponsor",
        _permit(
            "principal is Compute::User",
            _of("iam:agents", "create", "read", "suspend", "resume", "suspendAll"),
            when=_SPONSORED,
        ),
    ),
    (
        "sponsor",
        _permit(
            "principal is Compute::User",
            _of("iam:keys", "read", "create", "rotate", "revoke"),
            when=_SPONSORED,
        ),
    ),
)
