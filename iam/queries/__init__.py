"""Reads, each through its tenant. Other apps use what is named here."""

from iam.queries.credentials import live_callers

__all__ = ["live_callers"]
