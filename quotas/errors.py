"""What the ledger refuses."""

from computeplatform.errors import Refusal


class QuotaExceeded(Refusal):
    """The charge does not fit into the tenant's quota in this pool."""

    code = "QUOTA_EXCEEDED"

    def __init__(self, *, resource: str, requested: int, used: int, max: int) -> None:  # noqa: A002 - the contract's word
        super().__init__(
            f"Asked for {requested} {resource}, but only {max - used if max > used else 0} of {max} are left.",
            details={"resource": resource, "requested": requested, "used": used, "max": max},
        )
