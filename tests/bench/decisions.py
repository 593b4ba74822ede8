"""Decisions by themselves: a tenant with 10, 100 and 1,000 policies, in one thread, without a database (IAM-1).

Cold is the first decision after a policy has changed: all of the tenant's policies are compiled anew. What one process
compiles for the first time costs a little more, for every text is then looked through as well.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal

import django

django.setup()

from computeplatform.api.calls import Attribute, CallContext, Resource  # noqa: E402 - registers what policies speak about
from iam.catalogue import resources_by_name  # noqa: E402
from iam.contracts import PolicyInfo, Subject  # noqa: E402
from iam.domain.scanner import scan  # noqa: E402
from iam.queries.compiled import Compiled, compile_beside_builtin, not_stored  # noqa: E402
from iam.queries.judging import judge  # noqa: E402
from tests.bench.samples import Samples  # noqa: E402

ROUNDS = 3
COLD = 5
WARM_SECONDS = 1.0

# What a tenant writes: limits for groups, regions and agents. Each is about creates, so each is looked at.
_TEXTS = (
    'when { resource.region == "region-%d" }',
    'when { principal in Compute::Group::"acme/group-%d" && resource.durationHours > 24 }',
    'when { resource.gpuCount > 8 && resource.estimatedCost.greaterThan(decimal("1%d.0")) }',
)
_OF_AGENTS = "when { context.delegated && !(resource.leaseSeconds > 0 && resource.nodes <= 1%d) }"

_USER = Subject("usr_1", "user", "acme", ("reserver",), ("group-x",))
_AGENT = replace(
    _USER, agent_id="agt_1", delegation_id="dlg_1", session_id="ses_1", boundary=("*",), session_scopes=("*",)
)


def measure() -> Iterator[Samples]:
    """The first decision after a change, and those that follow."""
    for count in (10, 100, 1_000):
        policies = [_policy(n, _TEXTS[n % len(_TEXTS)]) for n in range(count)]
        yield _cold(f"decision, {count} policies, cold", policies)
        yield _warm(f"decision, {count} policies", compile_beside_builtin(policies), _USER)
        with_agents = [*policies[1:], _policy(0, _OF_AGENTS)]
        yield _warm(f"decision, {count} policies, in a session", compile_beside_builtin(with_agents), _AGENT)


def _policy(number: int, condition: str) -> PolicyInfo:
    scope = 'principal, action == Compute::Action::"compute:reservations:create", resource'
    return not_stored("acme", f"policy-{number}", scan(f"forbid ({scope})\n{condition % number};\n"))


def _cold(name: str, policies: list[PolicyInfo]) -> Samples:
    samples = Samples(name)
    for _ in range(COLD):
        begun = time.perf_counter()
        _decide(compile_beside_builtin(policies), _USER)
        samples.p50.append((time.perf_counter() - begun) * 1_000)
    return samples


def _warm(name: str, compiled: Compiled, subject: Subject) -> Samples:
    samples = Samples(name)
    for _ in range(ROUNDS):
        took = _timed(lambda: _decide(compiled, subject))
        samples.p50.append(statistics.median(took) * 1_000)
        samples.p99.append(statistics.quantiles(took, n=100)[-1] * 1_000)
        samples.rates.append(len(took) / sum(took))
    return samples


def _timed(work: Callable[[], None]) -> list[float]:
    took: list[float] = []
    end = time.perf_counter() + WARM_SECONDS
    while time.perf_counter() < end:
        begun = time.perf_counter()
        work()
        took.append(time.perf_counter() - begun)
    return took


def _decide(compiled: Compiled, subject: Subject) -> None:
    kind = resources_by_name()["compute-reservation"]
    made_by: dict[str, Attribute] = {"creatorId": "usr_1", "creatorAgentId": subject.agent_id}
    shape: dict[str, Attribute] = {"gpuCount": 8, "leaseSeconds": 3_600, "estimatedCost": Decimal("17.6000")}
    attributes = kind.completed({"tenantId": "acme", "region": "eu-north"} | shape | made_by)
    resource = Resource(kind.name, "res_1", "acme", attributes)
    found = judge(subject, "compute:reservations:create", resource, CallContext(time=1_700_000_000_000), compiled)
    assert found.allowed, found
