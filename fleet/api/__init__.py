"""The fleet's methods; importing this package declares them."""

from fleet.api import maintenance, nodes, pools, quotas, sync

__all__ = ["maintenance", "nodes", "pools", "quotas", "sync"]
