"""The states of a node. ``cordoned`` and ``draining`` stand beside them: an operator's word, not the node's."""

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
        # What we do not know of it stays undecided, however long it is silent.
        (ADOPTING, "silent"): ADOPTING,
        # It turned out to be one of many that fell silent at once (REC-8).
        (LOST, "doubted"): READY,
        (ADOPTING, "doubted"): ADOPTING,
        (REGISTERED, "ahead"): ADOPTING,
        (READY, "ahead"): ADOPTING,
        (LOST, "ahead"): ADOPTING,
        (ADOPTING, "ahead"): ADOPTING,
        (ADOPTING, "adopted"): READY,
    },
    terminal=frozenset(),
)
