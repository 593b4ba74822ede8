"""What the tests of identity and access share."""

from decimal import Decimal
from typing import Any

from computeplatform.api.calls import CallContext, Caller, Resource
from computeplatform.clock import compute_now
from iam.models import Decision
from iam.ports import authenticate, decide
from tests.support.world import Person, World

CREATE = "compute:reservations:create"

RESEARCH = """
@id("research-24h")
forbid (principal in Compute::Group::"acme/research",
        action in [Compute::Action::"compute:reservations:create", Compute::Action::"compute:reservations:extend"],
        resource)
when { resource.durationHours > 24 };
"""
AGENTS = """
@id("agents-lease-8")
forbid (principal,
        action in [Compute::Action::"compute:reservations:create", Compute::Action::"compute:reservations:extend"],
        resource)
when { (principal is Compute::Agent || context.delegated) && !(resource.leaseSeconds > 0 && resource.gpuCount <= 8) };
"""
NOT_US_EAST = """
@id("not-us-east")
forbid (principal, action == Compute::Action::"compute:reservations:create", resource)
when { resource.region == "us-east" };
"""
# Validates, overflows when it is evaluated, and would then be skipped by the engine.
ERRING = """
forbid (principal, action == Compute::Action::"compute:reservations:create", resource)
when { resource.gpuCount + 9223372036854775807 > 0 };
"""


def caller(person: Person) -> Caller:
    """The caller of a call that the person makes now."""
    return authenticate(person.api.token, now=compute_now(), source_ip="192.0.2.7")


def circumstances(**changed: Any) -> CallContext:
    """The context of a call that is made now."""
    context: dict[str, Any] = {"time": compute_now(), "source_ip": "192.0.2.7", "request_id": "req-test"}
    return CallContext(**(context | changed))


def reservation(tenant_id: str = "acme", **changed: Any) -> Resource:
    """A draft as it is decided on: 8 GPUs for 2 hours in eu-north."""
    attributes: dict[str, Any] = {
        "tenantId": tenant_id,
        "poolId": "pool_1",
        "ownerTenantId": "platform",
        "region": "eu-north",
        "gpuModel": "h100-sxm-80g",
        "gpuCount": 8,
        "deviceClass": "gpu",
        "deviceCount": 8,
        "profile": "",
        "sharing": "exclusive",
        "nodes": 1,
        "binding": "hold",
        "spot": False,
        "priority": 50,
        "durationHours": 2,
        "startsInHours": 0,
        "leaseSeconds": 0,
        "vcpu": 0,
        "memoryGiB": 0,
        "hugepages1Gi": 0,
        "estimatedCost": Decimal("0.0000"),
        "currency": "",
        "creatorId": "somebody",
        "creatorKind": "user",
        "creatorAgentId": "",
    }
    return Resource("compute-reservation", "res_1", tenant_id, attributes | changed)


def allowed(person: Person, resource: Resource, action: str = CREATE, **context: Any) -> bool:
    """Whether the person may do that now, in a call of its own; recorded as a call's decision is."""
    return decide(caller(person), action, resource, context=circumstances(**context), record=True).allowed


def put(world: World, text: str, name: str = "rules") -> dict[str, Any]:
    """Store a policy of acme; returns the answer."""
    return world.acme.api.iam("policies/put", name=name, text=text).data


def last_decision(**wanted: Any) -> Decision:
    """The latest entry of the audit log."""
    # Time stands still in these tests, so entries are told apart by what they are about.
    found = Decision.objects.filter(**wanted)
    assert found.count() == 1, list(found.values())
    return found.get()


def tokens_of(world: World) -> list[str]:
    """Every token in the world."""
    people = (world.acme, world.globex, world.ann, world.bob, world.vic, world.gil)
    return [world.admin.token, *(person.api.token for person in people)]
