"""The methods of identity and access. Importing this package declares them."""

from iam.api import keys, policies, principals, session, tenants

__all__ = ["keys", "policies", "principals", "session", "tenants"]
