"""The fleet's methods; importing this package declares them."""

from fleet.api import nodes, pools, quotas, sync

__all__ = ["nodes", "pools", "quotas", "sync"]
