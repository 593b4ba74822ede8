"""``/api/iam/policies/…``."""

from typing import Any

from computeplatform.api.calls import Call, Resource
from computeplatform.api.fields import Flag, Input, Instant, Items, OneOf, Page, Shape, Text, Whole
from computeplatform.api.methods import Answer, method
from iam.adapters.validation import check_text
from iam.api.shapes import (
    IamId,
    PrincipalReference,
    ResourceReference,
    Slug,
    StatementReference,
    about,
    about_tenant,
    page_answer,
    without_empty,
)
from iam.contracts import PolicyInfo
from iam.domain.scanner import MAX_BYTES, Scanned
from iam.errors import PolicyRefused
from iam.operations import policies as operations
from iam.queries.policies import get_policy, policy_page
from iam.queries.remarks import remarks
from iam.queries.replay import Changed, replay


class PolicyText(Text):
    """Cedar text. What is wrong with it is answered with line and column, so the field checks its length alone."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(max_length=MAX_BYTES, **kwargs)


class PutInput(Input):
    name = Slug()
    text = PolicyText()
    version = Whole(required=False, help_text="The version that was read, 0 for none; a stale one is CONFLICT.")


class GetInput(Input):
    name = Slug()
    version = Whole(min_value=1, required=False, help_text="An old version.")


class ListInput(Page):
    cursor = Slug(required=False, help_text="`nextCursor` of the page before: a name.")


class DeleteInput(Input):
    name = Slug()
    version = Whole(min_value=1, required=False, help_text="The version that was read; a stale one is CONFLICT.")


class ValidateInput(Input):
    text = Text(min_length=0, help_text="Also one that is too long, or empty: that is an answer.")


class TestInput(Input):
    name = Slug(required=False)
    text = PolicyText()
    last = Whole(min_value=1, max_value=1_000, default=100)


class StatementShape(Shape):
    id = Text()
    effect = OneOf(choices=["permit", "forbid"])
    line = Whole()


class PolicySummary(Shape):
    name = Slug()
    tenantId = IamId()
    version = Whole()
    statements = Items(child=StatementShape())
    createdAt = Instant()
    createdBy = Text()
    updatedAt = Instant()
    updatedBy = Text()


class PolicyShape(PolicySummary):
    text = Text()


class WarningShape(Shape):
    message = Text()
    line = Whole()
    column = Whole()


class IssueShape(Shape):
    path = Text()
    message = Text()
    line = Whole(required=False)
    column = Whole(required=False)
    statement = Text(required=False)


class OneOutput(Shape):
    policy = PolicyShape()


class PutOutput(OneOutput):
    warnings = Items(child=WarningShape())


class ListOutput(Shape):
    policies = Items(child=PolicySummary())
    nextCursor = Text(required=False)


class ValidateOutput(Shape):
    valid = Flag()
    issues = Items(child=IssueShape())
    warnings = Items(child=WarningShape())
    statements = Items(child=StatementShape())


class ChangedShape(Shape):
    decisionId = IamId()
    at = Instant()
    requestId = Text(required=False)
    principal = PrincipalReference()
    action = Text()
    resource = ResourceReference()
    before = OneOf(choices=["allow", "deny"])
    after = OneOf(choices=["allow", "deny"])
    policies = Items(child=StatementReference())


class TestOutput(Shape):
    examined = Whole()
    changed = Items(child=ChangedShape())


def _load(call: Call, data: dict[str, Any]) -> tuple[Resource, PolicyInfo]:
    return about(call), get_policy(call.tenant_id, data["name"], None)


def _load_version(call: Call, data: dict[str, Any]) -> tuple[Resource, PolicyInfo]:
    return about(call), get_policy(call.tenant_id, data["name"], data.get("version"))


def _summary(policy: PolicyInfo) -> Answer:
    return {
        "name": policy.name,
        "tenantId": policy.tenant_id,
        "version": policy.version,
        "statements": list(policy.statements),
        "createdAt": policy.created_at,
        "createdBy": policy.created_by,
        "updatedAt": policy.updated_at,
        "updatedBy": policy.updated_by,
    }


def _whole(policy: PolicyInfo) -> Answer:
    return {**_summary(policy), "text": policy.text}


def _warnings(call: Call, scanned: Scanned) -> list[Answer]:
    return [
        {"message": remark.message, "line": remark.line, "column": remark.column}
        for remark in remarks(call.tenant_id, scanned)
    ]


@method(
    "policies/put",
    kind="mutation",
    action="iam:policies:put",
    resource="iam-tenant",
    input=PutInput,
    output=PutOutput,
    load=about_tenant,
    codes=("INVALID_STATE",),
    service="iam",
    module="iam",
)
def put(call: Call, data: dict[str, Any], _loaded: None) -> Answer:
    """Create or replace a policy of the tenant. It is in force at the next call, in every process (IAM-1).

    `text`: 1-16384 bytes of Cedar, 1-64 statements, each at most 4096 bytes, 32 levels of nesting (brackets and `if`)
    and 200 operators, no templates. `@id("…")` names a statement, else it is `s1`, `s2`, … by place; twice the same
    is INVALID_INPUT. The text is validated against the schema: every fault is in `details.issues` with `line`,
    `column` and, where there is one, `statement` (IAM-2). This is looked at after the caller's permission. `version`
    is the one that was read, 0 for "must not exist"; a stale one is CONFLICT. The same text stores no new version.
    More than 1,000 policies: INVALID_STATE `too-many-policies`. All of a tenant's policies together have at most
    100,000 words (names, literals and signs; a usual statement has 50) and 2 MiB, since every decision reads them all;
    more is INVALID_STATE `policies-too-big` with `unit`, `size` and `max`. `warnings` refuse nothing: names of what
    does not exist, permits to everybody, rights that amount to all rights, a forbid that nobody could take back.
    """
    policy, scanned = operations.put_policy(
        tenant_id=call.tenant_id,
        name=data["name"],
        text=data["text"],
        version=data.get("version"),
        by=call.actor,
        now=call.now,
    )
    return {"policy": _whole(policy), "warnings": _warnings(call, scanned)}


@method(
    "policies/get",
    kind="read",
    action="iam:policies:read",
    resource="iam-tenant",
    input=GetInput,
    output=OneOutput,
    load=_load_version,
    service="iam",
    module="iam",
)
def get(_call: Call, _data: dict[str, Any], loaded: PolicyInfo) -> Answer:
    """A policy with its text. With `version` an old one, also of a policy that was deleted since."""
    return {"policy": _whole(loaded)}


@method(
    "policies/list",
    kind="read",
    action="iam:policies:read",
    resource="iam-tenant",
    input=ListInput,
    output=ListOutput,
    load=about_tenant,
    service="iam",
    module="iam",
)
def list_(call: Call, data: dict[str, Any], _loaded: None) -> Answer:
    """The policies in force, by name, without their text. `cursor` is a name; an unknown one is INVALID_INPUT."""
    found, following = policy_page(call.tenant_id, limit=data["limit"], cursor=data.get("cursor"))
    return page_answer("policies", [_summary(policy) for policy in found], following)


@method(
    "policies/delete",
    kind="mutation",
    action="iam:policies:delete",
    resource="iam-tenant",
    input=DeleteInput,
    output=OneOutput,
    load=_load,
    service="iam",
    module="iam",
)
def delete(call: Call, data: dict[str, Any], loaded: PolicyInfo) -> Answer:
    """Take a policy out of force at the next call. Its versions stay readable, and their numbers go on under this name.

    `version` is the one that was read; a stale one is CONFLICT. Answers the policy as it was.
    """
    gone = operations.delete_policy(
        tenant_id=call.tenant_id, name=loaded.name, version=data.get("version"), by=call.actor, now=call.now
    )
    return {"policy": _whole(gone)}


@method(
    "policies/validate",
    kind="read",
    action="iam:policies:read",
    resource="iam-tenant",
    input=ValidateInput,
    output=ValidateOutput,
    load=about_tenant,
    service="iam",
    module="iam",
)
def validate(call: Call, data: dict[str, Any], _loaded: None) -> Answer:
    """What `policies/put` would say of a text, without storing it. Bad text is an answer, not a refusal."""
    scanned, issues = check_text(data["text"])
    return {
        "valid": not issues,
        "issues": [issue.as_json() for issue in issues],
        "warnings": [] if issues else _warnings(call, scanned),
        "statements": [
            {"id": statement.id, "effect": statement.effect, "line": scanned.place(statement.start)[0]}
            for statement in scanned.statements
            if statement.effect
        ],
    }


@method(
    "policies/test",
    kind="read",
    action="iam:policies:read",
    resource="iam-tenant",
    input=TestInput,
    output=TestOutput,
    load=about_tenant,
    service="iam",
    module="iam",
)
def test(call: Call, data: dict[str, Any], _loaded: None) -> Answer:
    """Decide the last recorded decisions again as if `text` were in force under `name`; nothing is stored or recorded.

    `last` 1-1000 (100). Without `name` the text stands beside all policies in force. Each decision is made for the
    principal as it was then, with its roles, groups, attributes and context, in a delegated session as in one; the
    other policies are today's. What a ceiling, the rule for sessions or a missing confirmation refused stays refused.
    `changed` has those with another outcome. `examined` is less than `last` where there are fewer, and in a tenant with
    more than 20,000 words of policy text (20,000,000 by the number of words). Bad text is INVALID_INPUT, as in
    `policies/put`. One at a time in a tenant: RATE_LIMITED with `details.reason` `busy`.
    """
    scanned, issues = check_text(data["text"])
    if issues:
        raise PolicyRefused(issues)
    examined, changed = replay(call.tenant_id, name=data.get("name"), scanned=scanned, last=data["last"])
    return {"examined": examined, "changed": [_changed(one) for one in changed]}


def _changed(one: Changed) -> Answer:
    answer = {
        "decisionId": one.decision_id,
        "at": one.at,
        "requestId": one.request_id,
        "principal": {"id": one.principal_id, "kind": one.principal_kind},
        "action": one.action,
        "resource": {"type": one.resource_type, "id": one.resource_id},
        "before": one.before,
        "after": one.after,
        "policies": list(one.policies),
    }
    return without_empty(answer, "requestId")
