"""The states of a node. ``cordoned`` stands beside them: an operator's word, not the node's."""

from computeplatform.transitions import Machine

REGISTERED = "registered"  # known, never heard of
READY = "ready"
LOST = "lost"  # silent for longer than three heartbeats (REC-4)
ADOPTING = "adopting"  # it knows a newer session than we do (NOD-6)
STATES = (REGISTERED, READY, LOST, ADOPTING)

HEARTBEAT_SECONDS = 10

NODE = Machine(
    name="node",
    table={
        (REGISTERED, "synced"): READY,
        (READY, "synced"): READY,
        (LOST, "synced"): READY,
        (ADOPTING, "synced"): ADOPTING,
        (READY, "silent"): LOST,
        (REGISTERED, "ahead"): ADOPTING,
        (READY, "ahead"): ADOPTING,
        (LOST, "ahead"): ADOPTING,
        (ADOPTING, "ahead"): ADOPTING,
        (ADOPTING, "adopted"): READY,
    },
    terminal=frozenset(),
)
