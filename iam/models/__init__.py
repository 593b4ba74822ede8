"""Identity and access rows: who there is, how they sign in, what policies say, what was decided (CONTRACT §8)."""

from iam.models.audit import Decision, DecisionBatch, UnsealedDecision
from iam.models.confirmations import Confirmation
from iam.models.credentials import ApiKey, DelegatedSession, Delegation
from iam.models.people import Operator, Principal, Tenant
from iam.models.policies import Policy, PolicyVersion

__all__ = [
    "ApiKey",
    "Confirmation",
    "Decision",
    "DecisionBatch",
    "DelegatedSession",
    "Delegation",
    "Operator",
    "Policy",
    "PolicyVersion",
    "Principal",
    "Tenant",
    "UnsealedDecision",
]
