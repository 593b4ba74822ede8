"""What operators do in the admin: decided and recorded as a call of their principal in the platform tenant (OPS-1).

Isolation keeps that principal out of other tenants, as it should. So an operator's act is decided on what operators
administer, the fleet, and the entry says beside the question what was done, to what, in whose tenant and why
(docs/adr/0010).
"""

from dataclasses import dataclass

from computeplatform.api.calls import Actor, CallContext, Caller, Resource
from computeplatform.errors import AccessDenied
from iam.contracts import PLATFORM, Subject
from iam.errors import OperatorMayNotAct
from iam.models import Operator
from iam.operations.decisions import Question, decide_many


@dataclass(frozen=True, kw_only=True)
class OperatorAct:
    """What a signed-in operator is about to do: the method that a caller would use, to which object of which tenant."""

    operator_id: int
    method: str
    subject_type: str
    subject_id: str
    tenant_id: str
    reason: str


def authorise(act: OperatorAct, action: str, resource: Resource, *, context: CallContext) -> Actor:
    """Decide the act and record it, whatever comes of it; returns whom the operation acts for.

    Raises OperatorMayNotAct where the operator stands for nobody, and AccessDenied where policies do not permit it.
    """
    operator = Operator.objects.filter(pk=act.operator_id, is_active=True).select_related("principal__tenant").first()
    if operator is None:
        raise OperatorMayNotAct
    caller = _caller(operator)
    note = {
        "operator": {
            "username": operator.username,
            "method": act.method,
            "subject": {"type": act.subject_type, "id": act.subject_id, "tenantId": act.tenant_id},
            "reason": act.reason,
        }
    }
    verdict = decide_many([Question(caller, action, resource, context, note)], now=context.time)[0]
    if not verdict.allowed:
        raise AccessDenied
    return Actor(caller.principal_id, request_id=context.request_id)


def _caller(operator: Operator) -> Caller:
    """The operator's principal, as it stands now; there is no key, so no scopes bound it."""
    who = operator.principal
    if who is None or who.tenant_id != PLATFORM or (who.kind, who.status) != ("user", "active"):
        raise OperatorMayNotAct
    subject = Subject(
        principal_id=who.id,
        kind=who.kind,
        tenant_id=who.tenant_id,
        roles=tuple(who.roles),
        groups=tuple(who.groups),
        policy_revision=who.tenant.policy_revision,
        name=who.name,
        tenant_name=who.tenant.name,
    )
    return Caller(who.id, who.kind, who.tenant_id, traits={"subject": subject})
