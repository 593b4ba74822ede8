"""What is decided, why, and what is kept of it (IAM-1, IAM-3, IAM-7; IAM-API §5-§9)."""

from decimal import Decimal
from typing import Any

import pytest

from computeplatform.api.calls import Resource
from computeplatform.clock import compute_now
from iam.models import ApiKey, Decision, Principal
from iam.operations import decisions
from iam.operations.decisions import Question, decide_many
from iam.ports import authenticate, decide
from iam.queries import live_callers
from tests.iam.support import (
    AGENTS,
    CREATE,
    ERRING,
    NOT_US_EAST,
    RESEARCH,
    allowed,
    caller,
    circumstances,
    last_decision,
    put,
    reservation,
)
from tests.support.world import Person, World, fresh_key

EXTEND = "compute:reservations:extend"
READ = "compute:reservations:read"
RELEASE = "compute:reservations:release"


def own(person: Person, **changed: Any) -> Resource:
    return reservation(creatorId=person.id, **changed)


def tenant(tenant_id: str = "acme") -> Resource:
    return Resource("compute-tenant", tenant_id, tenant_id, {"tenantId": tenant_id})


def about(tenant_id: str, subject_id: str = "", sponsor_id: str = "") -> Resource:
    attributes = {"tenantId": tenant_id, "subjectId": subject_id, "sponsorId": sponsor_id}
    return Resource("iam-tenant", tenant_id, tenant_id, attributes)


def node(node_id: str) -> Resource:
    return Resource("compute-node", node_id, "platform", {"tenantId": "platform", "nodeId": node_id})


FLEET = Resource("compute-fleet", "fleet", "platform", {"tenantId": "platform"})


def make_agent(world: World, **fields: Any) -> Person:
    """An agent of ann's, before there are methods that make one."""
    agent = world.person(world.acme, "robot")
    changed = {"kind": "agent", "sponsor_id": world.ann.id, "boundary": ["compute:*"], "roles": ["reserver"]} | fields
    Principal.objects.filter(id=agent.id).update(**changed)
    return agent


# --- The three policies of the specification, and one that errs ---


@pytest.mark.clause("IAM-1", "a policy on a group and the duration")
def test_research_may_reserve_a_day(world: World) -> None:
    put(world, RESEARCH)
    world.acme.api.iam("principals/update", principalId=world.ann.id, groups=["research"]).data  # noqa: B018
    assert allowed(world.ann, reservation(durationHours=24))
    assert not allowed(world.ann, reservation(durationHours=25))
    # The total after the change counts for an extension.
    assert allowed(world.ann, own(world.ann, durationHours=24), EXTEND)
    assert not allowed(world.ann, own(world.ann, durationHours=25), EXTEND)
    assert allowed(world.bob, reservation(durationHours=25))
    assert not allowed(
        world.acme, Resource("compute-fleet", "fleet", "acme", {"tenantId": "acme"}), "compute:fleet:read"
    )


@pytest.mark.clause("IAM-1", "a policy on agents")
def test_agents_need_a_lease_and_at_most_eight_gpus(world: World) -> None:
    put(world, AGENTS)
    agent = make_agent(world)
    assert allowed(agent, reservation(leaseSeconds=60))
    assert not allowed(agent, reservation())
    assert not allowed(agent, reservation(leaseSeconds=60, gpuCount=9))
    assert not allowed(agent, own(agent), EXTEND)
    assert allowed(world.ann, reservation(gpuCount=9))


@pytest.mark.clause("IAM-1", "a policy on the region")
def test_not_in_us_east(world: World) -> None:
    put(world, NOT_US_EAST)
    assert not allowed(world.ann, reservation(region="us-east"))
    assert allowed(world.ann, reservation(region="us-west"))
    # It names create alone.
    assert allowed(world.ann, own(world.ann, region="us-east"), EXTEND)
    denied = last_decision(outcome="deny", action=CREATE)
    assert (denied.reason, denied.policies) == (
        "forbidden",
        [{"policy": "rules", "version": 1, "statement": "not-us-east"}],
    )


@pytest.mark.clause("IAM-1", "an erring forbid denies")
@pytest.mark.parametrize("effect", ["forbid", "permit"])
def test_a_statement_that_errs_denies(world: World, effect: str) -> None:
    put(world, ERRING.replace("forbid", effect))
    assert not allowed(world.ann, reservation())
    assert not allowed(world.acme, reservation(), request_id="req-admin")
    denied = last_decision(outcome="deny", principal_id=world.ann.id)
    assert denied.reason == "policy-error"
    assert len(denied.errors) == 1
    assert denied.errors[0].startswith("rules version 1, statement s1: integer overflow")
    # Where the sum fits, nothing errs.
    assert allowed(world.ann, reservation(gpuCount=0)) is (effect == "permit")


# --- Roles and the other built-in policies ---


@pytest.mark.clause("IAM-1", "without a permit it is denied")
def test_without_a_role_nothing_is_permitted(world: World) -> None:
    nobody = world.person(world.acme, "nobody")
    for action, resource in ((CREATE, reservation()), (READ, tenant()), ("compute:pools:read", tenant())):
        assert not allowed(nobody, resource, action)
    assert {d.reason for d in Decision.objects.filter(outcome="deny")} == {"no-permit"}


ROLES: list[tuple[str, str, dict[str, bool]]] = [
    # action, on what, who may: admin, reserver on their own, reserver on another's, viewer
    (CREATE, "own", {"acme": True, "ann": True, "vic": False}),
    (READ, "own", {"acme": True, "ann": True, "bob": False, "vic": True}),
    (EXTEND, "own", {"acme": True, "ann": True, "bob": False, "vic": False}),
    (RELEASE, "own", {"acme": True, "ann": True, "bob": False, "vic": False}),
    (READ, "tenant", {"acme": True, "ann": True, "vic": True}),
    ("compute:pools:read", "tenant", {"acme": True, "ann": True, "vic": True}),
    ("compute:quotas:read", "tenant", {"acme": True, "ann": True, "vic": True}),
    ("compute:usage:read", "tenant", {"acme": True, "ann": False, "vic": True}),
    ("compute:events:read", "tenant", {"acme": True, "ann": False, "vic": True}),
    ("compute:webhooks:admin", "tenant", {"acme": True, "ann": False, "vic": False}),
    ("compute:pools:create", "tenant", {"acme": True, "ann": False, "vic": False}),
    ("iam:principals:read", "iam", {"acme": True, "ann": False, "vic": False}),
    ("iam:policies:put", "iam", {"acme": True, "ann": False, "vic": False}),
]


@pytest.mark.parametrize(("action", "on", "people"), ROLES)
def test_what_a_role_may(world: World, action: str, on: str, people: dict[str, bool]) -> None:
    resource = {"own": own(world.ann), "tenant": tenant(), "iam": about("acme")}[on]
    assert {name: allowed(getattr(world, name), resource, action) for name in people} == people


def test_what_everybody_may_with_their_own(world: World) -> None:
    ann, service = world.ann, world.person(world.acme, "build", kind="service")
    for verb in (
        "principals:read",
        "keys:read",
        "keys:rotate",
        "keys:revoke",
        "delegations:read",
        "delegations:assume",
    ):
        assert allowed(ann, about("acme", ann.id), f"iam:{verb}")
        assert allowed(service, about("acme", service.id), f"iam:{verb}")
        assert not allowed(ann, about("acme", service.id), f"iam:{verb}")
    for verb in ("delegations:grant", "confirmations:read", "confirmations:decide"):
        assert allowed(ann, about("acme", ann.id), f"iam:{verb}")
        assert not allowed(service, about("acme", service.id), f"iam:{verb}")
    for verb in ("keys:create", "principals:update", "policies:read"):
        assert not allowed(ann, about("acme", ann.id), f"iam:{verb}")


def test_what_a_sponsor_may_with_its_agents(world: World) -> None:
    agent = make_agent(world)
    for verb in ("agents:create", "agents:suspend", "agents:suspendAll", "keys:create", "keys:rotate", "keys:revoke"):
        assert allowed(world.ann, about("acme", agent.id, world.ann.id), f"iam:{verb}")
        assert not allowed(world.bob, about("acme", agent.id, world.ann.id), f"iam:{verb}")
    assert not allowed(world.ann, about("acme", agent.id, world.ann.id), "iam:principals:update")


@pytest.mark.clause("IAM-4", "the fleet exists only in the platform")
def test_the_fleet_is_the_platforms(world: World) -> None:
    admin = Person("", world.admin)
    both = ["tenant-admin", "reserver"]
    operator = world.admin.iam("principals/create", kind="user", name="op", roles=both).data["principal"]
    token = world.admin.iam("keys/create", principalId=operator["id"]).data["token"]
    plain = Person(operator["id"], type(world.admin)(token, "platform"))
    for verb in ("read", "admin"):
        assert allowed(admin, FLEET, f"compute:fleet:{verb}")
        # Being a tenant's administrator, the platform's own included, makes nobody fleet administrator.
        assert not allowed(plain, FLEET, f"compute:fleet:{verb}")
        assert not allowed(world.acme, FLEET, f"compute:fleet:{verb}")
    assert not allowed(admin, node("node_1"), "compute:nodes:sync")


@pytest.mark.clause("NOD-1", "a key good for the sync of its node alone")
def test_a_nodes_software_may_sync_its_node_and_nothing_else(world: World) -> None:
    made = world.node(world.pool())
    service = Person(Principal.objects.get(node_id=made.id).id, made.api)
    assert allowed(service, node(made.id), "compute:nodes:sync")
    assert not allowed(service, node("node_other"), "compute:nodes:sync")
    assert not allowed(service, FLEET, "compute:fleet:read")
    assert not allowed(service, about("platform", service.id), "iam:keys:rotate")
    made.api.iam("session/whoami").data  # noqa: B018
    assert ApiKey.objects.get(principal_id=service.id).scopes == ["compute:nodes:sync"]


@pytest.mark.clause("IAM-4", "decided in the owner's tenant")
@pytest.mark.clause("IAM-1", "a deny wins")
def test_another_tenants_resource_is_refused_whatever_policies_say(world: World) -> None:
    everything = "permit (principal, action, resource);"
    put(world, everything)
    world.globex.api.iam("policies/put", name="all", text=everything).data  # noqa: B018
    pool = {"poolId": "p", "region": "r", "gpuModel": "g", "deviceClass": "gpu", "sharing": "exclusive"}
    theirs = Resource("compute-pool", "p", "globex", {"tenantId": "globex", **pool})
    assert not allowed(world.acme, theirs, "compute:pools:admin")
    assert not allowed(Person("", world.admin), reservation(), READ)
    denied = last_decision(outcome="deny", tenant_id="acme", action="compute:pools:admin")
    # The caller's administrator learns nothing of the other tenant's policies.
    assert (denied.reason, denied.policies) == ("forbidden", [{"policy": "builtin", "statement": "isolation"}])
    # Nor are the caller's own policies asked about it.
    put(world, ERRING, name="erring")
    assert not allowed(world.acme, reservation("globex"))
    denied = last_decision(tenant_id="acme", action=CREATE)
    assert (denied.reason, denied.policies, denied.errors) == (
        "forbidden",
        [{"policy": "builtin", "statement": "isolation"}],
        [],
    )


# --- Ceilings ---


@pytest.mark.clause("IAM-1", "every ceiling must permit too")
def test_an_agents_boundary_is_a_ceiling(world: World) -> None:
    agent = make_agent(world, boundary=["compute:*:read"])
    assert allowed(agent, tenant(), READ)
    assert not allowed(agent, reservation())
    assert last_decision(outcome="deny").reason == "boundary"
    Principal.objects.filter(id=agent.id).update(boundary=["compute:reservations:*"])
    assert allowed(agent, reservation())


def test_the_first_reason_that_applies_is_named(world: World) -> None:
    agent = make_agent(world, boundary=["compute:*:read"], roles=[])
    ApiKey.objects.filter(principal_id=agent.id).update(scopes=["iam:*"])
    about_agents = f'(principal == Compute::Agent::"{agent.id}", action, resource);'
    steps = [
        ("policy-error", ERRING + f"forbid {about_agents}"),
        ("forbidden", f"permit {about_agents} forbid {about_agents}"),
        ("no-permit", NOT_US_EAST),
        ("key-scope", f"permit {about_agents}"),
    ]
    for reason, text in steps:
        put(world, text)
        assert not allowed(agent, reservation(), request_id=f"req-{reason}")
        assert last_decision(request_id=f"req-{reason}").reason == reason
    ApiKey.objects.filter(principal_id=agent.id).update(scopes=["*"])
    assert not allowed(agent, reservation(), request_id="req-boundary")
    assert last_decision(request_id="req-boundary").reason == "boundary"
    Principal.objects.filter(id=agent.id).update(boundary=["*"])
    assert allowed(agent, reservation(), request_id="req-permitted")
    assert last_decision(request_id="req-permitted").reason == "permitted"


# --- Attributes and context ---


@pytest.mark.clause("CRE-7", "typed: integers are Long, money is decimal")
@pytest.mark.parametrize(
    ("cost", "fits"),
    [
        (Decimal("99.9999"), True),
        (Decimal("1E+2"), True),
        (Decimal("100.0001"), False),
        (Decimal("922337203685477.5807"), False),
        (Decimal("922337203685477.5808"), False),
        (Decimal("0.00001"), False),
        (Decimal("NaN"), False),
        (100, False),
        (1.5, False),
        ("1.0", False),
    ],
)
def test_costs_are_compared_as_decimals(world: World, cost: Any, fits: bool) -> None:
    put(
        world,
        'forbid (principal, action == Compute::Action::"compute:reservations:create", resource)'
        ' when { resource.estimatedCost.greaterThan(decimal("100.0")) };',
    )
    assert allowed(world.ann, reservation(estimatedCost=cost)) is fits


@pytest.mark.parametrize(
    "changed",
    [
        {"gpuCount": "8"},
        {"gpuCount": True},
        {"gpuCount": 2**63},
        {"spot": 0},
        {"region": None},
        {"color": "red"},
        {"tenantId": "globex"},
    ],
)
def test_attributes_that_do_not_fit_deny(world: World, changed: dict[str, Any]) -> None:
    assert not allowed(world.acme, reservation(**changed))
    assert last_decision(outcome="deny").reason == "policy-error"


def test_a_missing_attribute_denies(world: World) -> None:
    whole = reservation()
    partial = {name: value for name, value in whole.attributes.items() if name != "spot"}
    assert not allowed(world.acme, Resource(whole.type, whole.id, whole.tenant_id, partial))
    assert not allowed(world.acme, tenant(), CREATE)
    assert not allowed(world.acme, tenant(), "compute:nothing:read")
    assert not allowed(world.acme, Resource("compute-thing", "x", "acme", {"tenantId": "acme"}), READ)
    assert Decision.objects.filter(outcome="deny", reason="policy-error").count() == 4


@pytest.mark.parametrize(
    ("source_ip", "fits"),
    [
        ("192.0.2.9", True),
        ("198.51.100.1", False),
        ("2001:db8::1", False),
        ("fe80::1%eth0", False),
        ("", True),
        (None, True),
    ],
)
def test_policies_see_the_address(world: World, source_ip: str | None, fits: bool) -> None:
    put(
        world,
        'forbid (principal, action == Compute::Action::"compute:reservations:create", resource)'
        ' when { context has sourceIp && !context.sourceIp.isInRange(ip("192.0.2.0/24")) };',
    )
    assert allowed(world.ann, reservation(), source_ip=source_ip) is fits


def test_policies_see_the_time_of_the_call(world: World) -> None:
    put(
        world,
        'forbid (principal, action == Compute::Action::"compute:reservations:create", resource)'
        ' when { context.time >= datetime("2030-01-01T00:00:00.001Z") };',
    )
    new_year = 1_893_456_000_000
    assert allowed(world.ann, reservation(), time=new_year)
    assert not allowed(world.ann, reservation(), time=new_year + 1)


# --- The audit log ---


@pytest.mark.clause("IAM-3", "the entry says why")
@pytest.mark.clause("IAM-7", "all mutations and all denials are entries")
def test_an_entry_has_everything_but_secrets(world: World) -> None:
    context = circumstances(request_id="req-entry")
    verdict = decide(
        caller(world.ann), CREATE, reservation(estimatedCost=Decimal("17.6000")), context=context, record=True
    )
    entry = Decision.objects.get(id=verdict.decision_id)
    key = ApiKey.objects.get(principal_id=world.ann.id)
    assert (entry.tenant_id, entry.at, entry.request_id) == ("acme", context.time, "req-entry")
    assert (entry.principal_id, entry.principal_kind, entry.key_id) == (world.ann.id, "user", key.id)
    assert (entry.action, entry.resource_type, entry.resource_id) == (CREATE, "compute-reservation", "res_1")
    assert (entry.outcome, entry.reason) == ("allow", "permitted")
    assert entry.policies == [{"policy": "builtin", "statement": "reserver"}]
    assert entry.attributes["gpuCount"] == 8
    assert entry.attributes["estimatedCost"] == "17.6000"
    assert entry.context == {"delegated": False, "agentId": "", "time": context.time, "sourceIp": "192.0.2.7"}
    assert world.ann.api.token[12:] not in str(Decision.objects.filter(id=entry.id).values())
    assert key.token_hash not in str(Decision.objects.filter(id=entry.id).values())


@pytest.mark.clause("IAM-7", "allowed reads are counted")
def test_allowed_reads_are_counted_and_not_kept(world: World) -> None:
    def counted(action: str, outcome: str) -> float:
        return decisions.DECISIONS.labels(action, outcome)._value.get()

    before = (counted(READ, "allow"), Decision.objects.count())
    verdict = decide(caller(world.ann), READ, tenant(), context=circumstances(), record=True)
    assert (verdict.allowed, verdict.decision_id) == (True, "")
    assert (counted(READ, "allow"), Decision.objects.count()) == (before[0] + 1, before[1])
    assert not decide(caller(world.ann), READ, own(world.bob), context=circumstances(), record=True).allowed
    assert Decision.objects.count() == before[1] + 1


@pytest.mark.clause("IAM-7", "the rows of a list are no entries")
def test_rows_of_a_list_are_neither_kept_nor_counted(world: World) -> None:
    before = Decision.objects.count()
    for resource, expected in ((own(world.ann), True), (own(world.bob), False)):
        verdict = decide(caller(world.ann), READ, resource, context=circumstances(), record=False)
        assert (verdict.allowed, verdict.decision_id) == (expected, "")
    assert Decision.objects.count() == before


@pytest.mark.clause("IAM-7", "a denial stays when the call is refused")
@pytest.mark.clause("IAM-3", "the caller sees ACCESS_DENIED and nothing else")
def test_every_denial_reads_the_same_and_is_kept(world: World) -> None:
    scoped = world.person(world.acme, "sam", "tenant-admin", scopes=["compute:*"])
    put(world, f'forbid (principal == Compute::User::"{world.bob.id}", action, resource);', "no-bob")
    errs = f'permit (principal == Compute::User::"{world.vic.id}", action, resource is Compute::IamTenant)'
    put(
        world,
        errs + " when { 9223372036854775807 + (if resource.subjectId == principal.id then 0 else 1) > 0 };",
        "errs",
    )
    refused = {
        "no-permit": world.ann.api.iam("principals/create", kind="user", name="x"),
        "forbidden": world.bob.api.iam("principals/create", kind="user", name="x"),
        "key-scope": scoped.api.iam("principals/create", kind="user", name="x"),
        "policy-error": world.vic.api.iam("principals/create", kind="user", name="x"),
        "forbidden elsewhere": world.acme.api.iam("tenants/create", id="new", name="New"),
    }
    bodies = [answer.refused("ACCESS_DENIED") | {"requestId": ""} for answer in refused.values()]
    bodies.append(world.gil.api.iam("principals/list", tenantId="acme").refused("ACCESS_DENIED") | {"requestId": ""})
    assert all(body == bodies[0] for body in bodies)
    assert "details" not in bodies[0]
    for reason, answer in refused.items():
        entry = last_decision(request_id=answer.error["requestId"])
        assert entry.outcome == "deny"
        assert entry.reason == reason.partition(" ")[0]
    assert not Principal.objects.filter(name="x").exists()


def test_a_retry_with_its_key_is_decided_again_and_made_once(world: World) -> None:
    key = fresh_key()
    for _ in range(2):
        world.acme.api.iam("principals/create", kind="user", name="once", idempotencyKey=key).data  # noqa: B018
    assert Decision.objects.filter(action="iam:principals:create", principal_id=world.acme.id).count() >= 2
    assert Principal.objects.filter(name="once").count() == 1


# --- For workers ---


def test_a_batch_is_decided_and_kept_at_once(world: World, django_assert_num_queries: Any) -> None:
    ann, vic = caller(world.ann), caller(world.vic)
    questions = [
        Question(ann, CREATE, reservation(), circumstances()),
        Question(vic, CREATE, reservation(), circumstances()),
        Question(ann, READ, tenant(), circumstances()),
    ] * 10
    now = compute_now()
    decide_many(questions[:1], now=now)  # the tenant's policies are compiled now
    before = Decision.objects.count()
    with django_assert_num_queries(1):
        verdicts = decide_many(questions, now=now)
    assert [v.allowed for v in verdicts] == [True, False, True] * 10
    assert [bool(v.decision_id) for v in verdicts] == [True, True, False] * 10
    assert Decision.objects.count() == before + 20


def test_a_live_caller_is_who_authenticates_now(world: World) -> None:
    key = ApiKey.objects.get(principal_id=world.ann.id)
    world.acme.api.iam("principals/update", principalId=world.ann.id, groups=["research"]).data  # noqa: B018
    now = compute_now()
    wanted = [(world.ann.id, key.id, ""), (world.bob.id, key.id, ""), ("x", "y", ""), (world.ann.id, key.id, "agent")]
    [(who, live)] = live_callers(wanted, now=now).items()
    assert who == wanted[0]
    assert live == authenticate(world.ann.api.token, now=now, source_ip=None)
    assert live.traits == authenticate(world.ann.api.token, now=now, source_ip=None).traits
    assert live.traits["subject"].groups == ("research",)  # type: ignore[attr-defined]


def ends(world: World, how: str) -> None:
    key = ApiKey.objects.get(principal_id=world.ann.id)
    if how == "key":
        world.acme.api.iam("keys/revoke", keyId=key.id).data  # noqa: B018
    elif how == "principal":
        world.acme.api.iam("principals/suspend", principalId=world.ann.id).data  # noqa: B018
    else:
        world.admin.iam("tenants/suspend", id="acme").data  # noqa: B018


@pytest.mark.parametrize("how", ["key", "principal", "tenant", "time", "agent"])
def test_a_caller_who_is_no_longer_good_is_none(world: World, how: str) -> None:
    key = ApiKey.objects.get(principal_id=world.ann.id)
    now, agent_id = compute_now(), ""
    assert live_callers([(world.ann.id, key.id, "")], now=now)
    if how == "time":
        now = key.expires_at
    elif how == "agent":
        agent_id = "agt_1"
    else:
        ends(world, how)
    assert live_callers([(world.ann.id, key.id, agent_id)], now=now) == {}
