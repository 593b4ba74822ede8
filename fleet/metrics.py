"""What the fleet counts for Prometheus; no tenant, node or field names in labels."""

from prometheus_client import Counter

SYNC_UNKNOWN_FIELDS = Counter(
    "compute_nodes_sync_unknown_fields",
    "Fields of node reports that this server does not know and has ignored (API-4).",
)
