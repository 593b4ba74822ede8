"""Identity and access for operators: read-only, without secrets (OPS-1, OPS-2)."""

from iam.admin import audit, delegations, people

__all__ = ["audit", "delegations", "people"]
