"""What the fleet refuses."""

from computeplatform.errors import Conflict, InvalidState, NotFound


class PoolNotFound(NotFound):
    """No such pool is visible to the tenant."""


class OfferNotFound(NotFound):
    """The pool was never offered to this tenant."""


class NodeNotFound(NotFound):
    """No such node."""


class NodeNameTaken(Conflict):
    """Another node has this name."""

    fix = "Choose another name; nodes/list shows those in use."

    def __init__(self) -> None:
        super().__init__(details={"reason": "name-taken"})


class PoolArchived(InvalidState):
    """The pool is archived and takes nothing new."""

    def __init__(self) -> None:
        super().__init__(details={"reason": "pool-archived"})


class NodeInUse(InvalidState):
    """Reservations hold this node; it can change its pool only without them."""

    fix = "Cordon the node and wait until its reservations have ended."

    def __init__(self, *, allocations: int) -> None:
        super().__init__(
            f"{allocations} reservations hold this node; it can change its pool only without them.",
            details={"reason": "node-in-use", "allocations": allocations},
        )


class NodeMoved(Conflict):
    """The node changed its pool at this moment."""

    fix = "Read the node again and repeat the change."

    def __init__(self) -> None:
        super().__init__(details={"reason": "node-moved"})


class NodeStillUsed(InvalidState):
    """Bookings or allocations of this node are live; it can be removed only without them."""

    fix = "Drain the node and wait until what runs there has ended, or release it."

    def __init__(self, *, bookings: int, allocations: int) -> None:
        super().__init__(
            f"{bookings} bookings and {allocations} allocations of this node are live;"
            " it can be removed only without them.",
            details={"reason": "node-in-use", "bookings": bookings, "allocations": allocations},
        )


class NodeRemoved(InvalidState):
    """The node was removed; only its history is left."""

    fix = "Register the machine again: it becomes a new node."

    def __init__(self) -> None:
        super().__init__(details={"reason": "node-removed"})


class MaintenanceNotFound(NotFound):
    """The node has no such maintenance."""
