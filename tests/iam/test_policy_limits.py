"""What a tenant's policies may cost: their number and size, what a process keeps of them, how they are tried out
(IAM-1, IAM-2; IAM-API §9)."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.test.utils import CaptureQueriesContext

from iam.domain.scanner import MAX_BYTES, scan
from iam.models import Decision, Policy, PolicyVersion
from iam.operations.confirmations import gate
from iam.operations.decisions import Question, decide_many
from iam.operations.policies import MAX_TOTAL_BYTES, MAX_WORDS
from iam.ports import decide
from iam.queries.compiled import Compiled, Shelf, builtin_only
from iam.queries.replay import _MOST_WORK
from tests.iam.support import CREATE, NOT_US_EAST, RESEARCH, allowed, caller, circumstances, put, reservation
from tests.support.threads import held_elsewhere
from tests.support.world import Person, World

WORDS = scan(NOT_US_EAST).size


def stored(number: int, text: str = NOT_US_EAST, *, words: int = WORDS, prefix: str = "p") -> None:
    """Policies of acme, as many puts would leave them."""
    when = {"created_at": 0, "created_by": "x", "updated_at": 0, "updated_by": "x", "version": 1}
    rows = Policy.objects.bulk_create(Policy(tenant_id="acme", name=f"{prefix}{n}", **when) for n in range(number))
    given = {"text": text, "statements": [{"id": "s1", "effect": "forbid", "line": 2}], "words": words}
    made = {"version": 1, "created_at": 0, "created_by": "x"}
    PolicyVersion.objects.bulk_create(PolicyVersion(policy=row, **given, **made) for row in rows)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE iam_tenant SET policy_revision = nextval('iam_policy_revision') WHERE id = 'acme'")


# --- How many, how big ---


@pytest.mark.clause("IAM-2", "limits on size and count")
def test_all_policies_together_have_a_number_of_words(world: World) -> None:
    stored(2, words=(MAX_WORDS - WORDS) // 2)
    iam = world.acme.api.iam
    assert put(world, NOT_US_EAST, "fits")["policy"]["version"] == 1
    size = (MAX_WORDS - WORDS) // 2 * 2 + 2 * WORDS
    given = {"reason": "policies-too-big", "unit": "words", "size": size, "max": MAX_WORDS}
    iam("policies/put", name="one-more", text=NOT_US_EAST).refused("INVALID_STATE", **given)
    iam("policies/put", name="fits", text=NOT_US_EAST * 3).refused("INVALID_INPUT")  # a matter of the text, first
    iam("policies/put", name="fits", text=RESEARCH).refused("INVALID_STATE", reason="policies-too-big")
    assert sorted(Policy.objects.values_list("name", "version")) == [("fits", 1), ("p0", 1), ("p1", 1)]
    # What makes it no bigger is taken, and what was deleted does not count.
    assert put(world, NOT_US_EAST.replace("us-east", "us-west"), "fits")["policy"]["version"] == 2
    iam("policies/delete", name="p0").data  # noqa: B018
    assert put(world, RESEARCH, "one-more")["policy"]["version"] == 1
    # Another tenant has room of its own.
    stored(1, words=MAX_WORDS, prefix="q")
    assert world.globex.api.iam("policies/put", name="mine", text=RESEARCH.replace("acme", "globex")).status == 200
    # And where there is too much already, as with a lower limit, less is taken.
    assert put(world, NOT_US_EAST, "one-more")["policy"]["version"] == 2
    world.acme.api.iam("policies/put", name="two-more", text=NOT_US_EAST).refused("INVALID_STATE")


@pytest.mark.clause("IAM-2", "limits on size and count")
def test_all_policies_together_have_a_number_of_bytes(world: World) -> None:
    comment = "// " + "é" * ((MAX_BYTES - len(NOT_US_EAST.encode()) - 4) // 2) + "\n"
    long = comment + NOT_US_EAST
    stored(MAX_TOTAL_BYTES // len(long.encode()), long)
    answer = world.acme.api.iam("policies/put", name="one-more", text=long)
    answer.refused("INVALID_STATE", reason="policies-too-big", unit="bytes", max=MAX_TOTAL_BYTES)
    assert not Policy.objects.filter(name="one-more").exists()


@pytest.mark.clause("IAM-2", "a text that is bad is an answer")
@pytest.mark.parametrize("text", ["", "x" * (MAX_BYTES + 1), "// nothing", "permit(", NOT_US_EAST * 2])
def test_validate_says_what_is_wrong_with_any_text(world: World, text: str) -> None:
    answer = world.acme.api.iam("policies/validate", text=text).data
    assert answer["valid"] is False
    assert {issue["path"] for issue in answer["issues"]} == {"text"}


@pytest.mark.clause("IAM-1", "no queries that grow with the policies")
def test_a_call_asks_no_more_with_a_thousand_policies(world: World) -> None:
    def queries() -> int:
        context = circumstances()
        with CaptureQueriesContext(connection) as captured:
            decide(caller(world.ann), CREATE, reservation(), context=context, record=True)
        return len(captured)

    queries()
    bare = queries()
    stored(1_000)
    # The first call in a process reads them all at once.
    assert [queries(), queries()] == [bare + 1, bare]
    assert not allowed(world.ann, reservation(region="us-east"))


# --- In every process ---

CHILD = """
import sys
import django
django.setup()
from computeplatform.clock import compute_now
from tests.iam.support import CREATE, circumstances, reservation
from iam.ports import authenticate, decide
for line in sys.stdin:
    who = authenticate(line.strip(), now=compute_now(), source_ip=None)
    found = decide(who, CREATE, reservation(region="us-east"), context=circumstances(), record=False)
    print("allowed" if found.allowed else "denied", flush=True)
"""


@contextmanager
def another_process() -> Iterator[Any]:
    """A process on the same database; called with a token, it says what it decides for its owner."""
    where = connection.settings_dict
    server = f"{where['USER']}:{where['PASSWORD']}@{where['HOST'] or 'localhost'}:{where['PORT']}"
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD],
        env=os.environ
        | {
            "DATABASE_URL": f"postgresql://{server}/{where['NAME']}",
            "DJANGO_SETTINGS_MODULE": "computeplatform.settings",
        },
        cwd=settings.BASE_DIR,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdin
    assert child.stdout
    questions, answers = child.stdin, child.stdout

    def ask(token: str) -> str:
        questions.write(token + "\n")
        questions.flush()
        return answers.readline().strip()

    try:
        yield ask
    finally:
        questions.close()
        child.wait(timeout=30)
        answers.close()


@pytest.mark.clause("IAM-1", "a changed policy bites at the next call")
@pytest.mark.django_db(transaction=True)
def test_a_changed_policy_bites_in_another_process(world: World) -> None:
    with another_process() as ask:
        token = world.ann.api.token
        said = [ask(token)]
        put(world, NOT_US_EAST)
        said.append(ask(token))
        put(world, RESEARCH)
        said.append(ask(token))
        put(world, NOT_US_EAST, "other")
        said.append(ask(token))
        world.acme.api.iam("policies/delete", name="other").data  # noqa: B018
        said.append(ask(token))
    assert said == ["allowed", "denied", "allowed", "denied", "allowed"]


# --- What a process keeps ---


def of(words: int) -> Compiled:
    found = builtin_only()
    return Compiled(found.policies, found.references, found.reads_by_scope, words)


def test_the_least_recently_used_leave_when_the_shelf_is_full() -> None:
    shelf, made = Shelf(1_000), []

    def get(tenant: str, words: int = 400, revision: int = 1) -> None:
        shelf.get(tenant, revision, lambda: made.append((tenant, revision)) or of(words))  # type: ignore[func-returns-value]

    for tenant in ("a", "b", "a", "c", "a", "b"):
        get(tenant)
    # c pushed b out, for a had been used since; then b pushed c out.
    assert made == [("a", 1), ("b", 1), ("c", 1), ("b", 1)]
    assert shelf.words == 800
    get("big", 5_000)  # more than there is room for: it is kept alone
    get("big", 5_000)
    assert (made[-1], len(made), shelf.words) == (("big", 1), 5, 5_000)
    # Those without policies of their own take room too.
    for n in range(30):
        get(f"small-{n}", 0)
    assert shelf.words == 1_000
    get("small-29", 0)
    get("small-9", 0)
    assert made[-1] == ("small-9", 1)
    assert len(made) == 5 + 30 + 1


def test_two_states_of_a_tenant_are_kept() -> None:
    shelf, made = Shelf(1_000_000), []
    for revision in (1, 2, 1, 2, 3, 2, 3, 1):
        shelf.get("a", revision, lambda n=revision: made.append(n) or of(1))  # type: ignore[func-returns-value, misc]
    assert made == [1, 2, 3, 1]


def test_what_one_thread_compiles_the_others_wait_for() -> None:
    shelf, made, going = Shelf(1_000), [], threading.Event()

    def make() -> Compiled:
        made.append(1)
        going.wait(timeout=10)
        return of(1)

    with ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(shelf.get, "a", 1, make) for _ in range(8)]
        going.set()
        found = {id(future.result(timeout=10)) for future in futures}
    assert (len(found), made) == (1, [1])


def test_what_could_not_be_compiled_is_tried_again() -> None:
    shelf = Shelf(1_000)

    def fail() -> Compiled:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        shelf.get("a", 1, fail)
    assert shelf.get("a", 1, lambda: of(7)).words == 7


# --- Trying a text out ---


def changed(world: World, text: str, **fields: Any) -> list[tuple[str, str, str]]:
    found = world.acme.api.iam("policies/test", text=text, last=1_000, **fields).data["changed"]
    return [(one["requestId"], one["before"], one["after"]) for one in found]


@pytest.mark.clause("IAM-2", "test shows what would change")
def test_decisions_of_sessions_are_made_again_as_such(world: World) -> None:
    agent = world.agent(world.ann)
    session = world.session(agent, world.bob)
    assert allowed(Person(world.bob.id, session), reservation(), request_id="req-session")
    assert allowed(world.bob, reservation(), request_id="req-alone")
    scope = f'principal, action == Compute::Action::"{CREATE}", resource'
    assert changed(world, f"forbid ({scope}) when {{ context.delegated }};") == [("req-session", "allow", "deny")]
    # The session may no more than its user alone.
    both = changed(world, f"forbid ({scope}) unless {{ context.delegated }};")
    assert sorted(both) == [("req-alone", "allow", "deny"), ("req-session", "allow", "deny")]


def test_what_no_policy_can_turn_is_not_shown(world: World) -> None:
    """A ceiling, a confirmation that is missing, another tenant, somebody else's to decide."""
    agent = world.agent(world.ann)
    nobody = world.person(world.acme, "nobody")
    session = world.session(agent, nobody, confirm=[CREATE])
    who, context = caller(Person(nobody.id, session)), circumstances(request_id="req-confirm")
    asked = gate({}, cost=reservation().attributes["estimatedCost"], currency="", opens=False)  # type: ignore[arg-type]
    decide_many([Question(who, CREATE, reservation(), context, gate=asked)], now=context.time)
    assert not allowed(nobody, reservation(), request_id="req-nobody")
    scoped = world.session(agent, nobody, scopes=["compute:pools:*"])
    assert not allowed(Person(nobody.id, scoped), reservation(), request_id="req-scoped")
    world.acme.api("pools/list", tenantId="globex").refused("ACCESS_DENIED")
    # Refused although policies permit it: only a user grants, and a key makes no wider one.
    robot = world.person(world.acme, "robot", "tenant-admin", kind="service")
    robot.api.iam("delegations/grant", agentId=agent.id, scopes=["*"]).refused("ACCESS_DENIED")
    boss = world.person(world.acme, "boss", "tenant-admin", scopes=["iam:*"])
    boss.api.iam("keys/create", principalId=boss.id, scopes=["*"]).refused("ACCESS_DENIED")
    assert sorted(entry.reason for entry in Decision.objects.filter(principal_id__in=[robot.id, boss.id])) == [
        "key-scope",
        "no-permit",
    ]
    everybody = "permit (principal, action, resource);"
    # Somebody who has no right to create would get it; not in the session, whose user wants to be asked.
    assert changed(world, everybody) == [("req-nobody", "deny", "allow")]


@pytest.mark.clause("IAM-2", "test shows what would change")
def test_decisions_of_other_tenants_are_not_made_again(world: World) -> None:
    world.globex.api.iam("policies/put", name="none", text="forbid (principal is Compute::User, action, resource);")
    assert not allowed(world.gil, reservation("globex"))
    found = world.acme.api.iam("policies/test", text="permit (principal, action, resource);", last=1_000).data
    assert found["changed"] == []
    assert found["examined"] == Decision.objects.filter(tenant_id="acme").count()


def test_one_text_at_a_time_is_tried_out(world: World) -> None:
    with held_elsewhere("policies-test:acme"):
        answer = world.acme.api.iam("policies/test", text=NOT_US_EAST)
    answer.refused("RATE_LIMITED", reason="busy")
    assert answer.headers["Retry-After"] == str(answer.error["retryAfterSeconds"])
    assert world.acme.api.iam("policies/test", text=NOT_US_EAST).status == 200


def test_many_policies_bound_how_many_decisions_are_examined(world: World) -> None:
    for n in range(3):
        assert allowed(world.ann, reservation(), request_id=f"req-{n}")
    stored(1, words=_MOST_WORK // 2 - WORDS)
    assert world.acme.api.iam("policies/test", text=NOT_US_EAST, last=1_000).data["examined"] == 2
