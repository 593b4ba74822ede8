"""The methods of identity and access. Importing this package declares them."""

from iam.api import agents, confirmations, decisions, delegations, keys, policies, principals, session, tenants

__all__ = [
    "agents",
    "confirmations",
    "decisions",
    "delegations",
    "keys",
    "policies",
    "principals",
    "session",
    "tenants",
]
