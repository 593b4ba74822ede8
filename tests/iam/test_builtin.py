"""The built-in policies: every action of §14 against every role and relation, in one table (IAM-4; IAM-API §8)."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from computeplatform.api.calls import Attribute, CallContext, Resource
from computeplatform.api.methods import methods
from computeplatform.urls import DECLARING
from iam.catalogue import actions_by_name, entity_types
from iam.contracts import Subject
from iam.queries.compiled import builtin_only
from iam.queries.judging import judge

assert DECLARING  # imported: every app has declared its methods

ADMIN, FLEET, RESERVER, VIEWER = "tenant-admin", "fleet-admin", "reserver", "viewer"

# Who may: roles; "owner" of the thing or whom the call is about, "owner-user" if that must be a person, "creator" a
# reserver who made it, "sponsor" of whom the call is about, "node" the software of that node.
WHO: dict[tuple[str, str], set[str]] = {
    ("compute:reservations:create", "Reservation"): {ADMIN, RESERVER},
    ("compute:reservations:read", "Reservation"): {ADMIN, VIEWER, "creator"},
    ("compute:reservations:read", "Tenant"): {ADMIN, VIEWER, RESERVER},
    ("compute:reservations:extend", "Reservation"): {ADMIN, "creator"},
    ("compute:reservations:release", "Reservation"): {ADMIN, "creator"},
    ("compute:pools:create", "Tenant"): {ADMIN},
    ("compute:pools:read", "Tenant"): {ADMIN, VIEWER, RESERVER},
    ("compute:pools:admin", "Pool"): {ADMIN},
    ("compute:quotas:read", "Tenant"): {ADMIN, VIEWER, RESERVER},
    ("compute:usage:read", "Tenant"): {ADMIN, VIEWER},
    ("compute:budgets:read", "Tenant"): {ADMIN, VIEWER},
    ("compute:budgets:admin", "Tenant"): {ADMIN},
    ("compute:events:read", "Tenant"): {ADMIN, VIEWER},
    ("compute:webhooks:read", "Tenant"): {ADMIN, VIEWER},
    ("compute:webhooks:admin", "Tenant"): {ADMIN},
    # The viewer's "compute:*:read" takes in the fleet; there is one in the platform alone.
    ("compute:fleet:read", "Fleet"): {FLEET, VIEWER},
    ("compute:fleet:admin", "Fleet"): {FLEET},
    ("compute:nodes:sync", "Node"): {"node"},
    ("compute:reservedhosts:read", "ReservedHost"): {ADMIN, VIEWER},
    ("compute:reservedhosts:read", "Tenant"): {ADMIN, VIEWER},
    ("compute:reservedhosts:release", "ReservedHost"): {ADMIN},
    ("iam:principals:read", "IamTenant"): {ADMIN, "owner"},
    ("iam:principals:create", "IamTenant"): {ADMIN},
    ("iam:principals:update", "IamTenant"): {ADMIN},
    ("iam:principals:suspend", "IamTenant"): {ADMIN},
    ("iam:principals:resume", "IamTenant"): {ADMIN},
    ("iam:keys:read", "IamTenant"): {ADMIN, "owner", "sponsor"},
    ("iam:keys:create", "IamTenant"): {ADMIN, "sponsor"},
    ("iam:keys:rotate", "IamTenant"): {ADMIN, "owner", "sponsor"},
    ("iam:keys:revoke", "IamTenant"): {ADMIN, "owner", "sponsor"},
    ("iam:policies:read", "IamTenant"): {ADMIN},
    ("iam:policies:put", "IamTenant"): {ADMIN},
    ("iam:policies:delete", "IamTenant"): {ADMIN},
    ("iam:agents:create", "IamTenant"): {ADMIN, "sponsor"},
    ("iam:agents:read", "IamTenant"): {ADMIN, "sponsor"},
    ("iam:agents:suspend", "IamTenant"): {ADMIN, "sponsor"},
    ("iam:agents:resume", "IamTenant"): {ADMIN, "sponsor"},
    ("iam:agents:suspendAll", "IamTenant"): {ADMIN, "sponsor"},
    ("iam:delegations:grant", "IamTenant"): {ADMIN, "owner-user"},
    ("iam:delegations:read", "IamTenant"): {ADMIN, "owner"},
    ("iam:delegations:assume", "IamTenant"): {ADMIN, "owner"},
    ("iam:delegations:revoke", "IamTenant"): {ADMIN, "owner"},
    ("iam:confirmations:read", "IamTenant"): {ADMIN, "owner-user"},
    ("iam:confirmations:decide", "IamTenant"): {ADMIN, "owner-user"},
    ("iam:decisions:read", "IamTenant"): {ADMIN},
    ("iam:tenants:read", "IamTenant"): {ADMIN},
    ("iam:tenants:create", "IamTenant"): {ADMIN},
    ("iam:tenants:suspend", "IamTenant"): {ADMIN},
    ("iam:tenants:resume", "IamTenant"): {ADMIN},
}


@pytest.mark.clause("IAM-4", "actions and resources of every method")
def test_every_method_of_iam_asks_for_the_action_that_it_is_called_by() -> None:
    own = [m for m in methods() if m.service == "iam" and m.id != "session/whoami"]
    assert len(own) > 30
    for method in own:
        verb = "read" if method.kind == "read" else method.name
        assert (method.action, method.resource) == (f"iam:{method.group}:{verb}", "iam-tenant"), method.id


NOBODY = Subject("usr_1", "user", "platform", (), ())


def with_role(role: str) -> Subject:
    return replace(NOBODY, roles=(role,))


# Everybody the table speaks of, with the attributes of the resource that make them so, and what they count as.
CALLERS: dict[str, tuple[Subject, Mapping[str, Attribute], set[str]]] = {
    "nobody": (NOBODY, {}, set()),
    ADMIN: (with_role(ADMIN), {}, {ADMIN}),
    FLEET: (with_role(FLEET), {}, {FLEET}),
    RESERVER: (with_role(RESERVER), {}, {RESERVER}),
    VIEWER: (with_role(VIEWER), {}, {VIEWER}),
    "a reserver's own": (with_role(RESERVER), {"creatorId": "usr_1"}, {RESERVER, "creator"}),
    "own, without a role": (NOBODY, {"creatorId": "usr_1"}, set()),
    "about the caller": (NOBODY, {"subjectId": "usr_1"}, {"owner", "owner-user"}),
    "about the calling agent": (
        replace(NOBODY, kind="agent", sponsor_id="usr_2", boundary=("*",)), {"subjectId": "usr_1"}, {"owner"},
    ),
    "about the calling service": (replace(NOBODY, kind="service"), {"subjectId": "usr_1"}, {"owner"}),
    "its sponsor": (NOBODY, {"subjectId": "agt_1", "sponsorId": "usr_1"}, {"sponsor"}),
    "a service named as sponsor": (replace(NOBODY, kind="service"), {"sponsorId": "usr_1"}, set()),
    "the node's software": (replace(NOBODY, kind="service", node_id="node_1"), {"nodeId": "node_1"}, {"node"}),
    "another node's": (replace(NOBODY, kind="service", node_id="node_2"), {"nodeId": "node_1"}, set()),
    "a service of no node": (replace(NOBODY, kind="service"), {"nodeId": ""}, set()),
}  # fmt: skip


def allowed(subject: Subject, action: str, entity: str, attributes: Mapping[str, Attribute], tenant: str) -> bool:
    kind = entity_types()[entity]
    resource = Resource(kind.name, "x", tenant, kind.completed({**attributes, "tenantId": tenant}))
    return judge(subject, action, resource, CallContext(time=1_700_000_000_000), builtin_only()).allowed


def test_the_table_has_every_action_on_everything_it_is_asked_of() -> None:
    assert set(WHO) == {(action.name, entity) for action in actions_by_name().values() for entity in action.on}


@pytest.mark.clause("IAM-4", "actions and resources of every method")
@pytest.mark.parametrize("who", CALLERS)
def test_who_may_what(who: str) -> None:
    subject, attributes, counts_as = CALLERS[who]
    found = {
        asked: allowed(subject, *asked, attributes, "platform")
        for asked in WHO
        # An attribute that the thing does not have makes nobody anything.
        if attributes.keys() <= entity_types()[asked[1]].attributes.keys()
    }
    assert found == {asked: bool(WHO[asked] & counts_as) for asked in found}
    assert found


@pytest.mark.clause("IAM-4", "a caller of another tenant is refused")
@pytest.mark.clause("IAM-4", "the fleet exists only in the platform")
def test_in_another_tenant_nobody_may_anything() -> None:
    everything = replace(NOBODY, tenant_id="acme", roles=(ADMIN, RESERVER, VIEWER))
    about = {"creatorId": "usr_1", "subjectId": "usr_1", "sponsorId": "usr_1"}
    for action, entity in WHO:
        known = {k: v for k, v in about.items() if k in entity_types()[entity].attributes}
        assert not allowed(everything, action, entity, known, "platform"), action
