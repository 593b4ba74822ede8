"""What the ledger refuses."""

from computeplatform.errors import Refusal


class QuotaExceeded(Refusal):
    """The charge does not fit into the tenant's quota in this pool."""

    code = "QUOTA_EXCEEDED"

    def __init__(self, *, resource: str, requested: int, used: int, max: int) -> None:  # noqa: A002 - the contract's word
        super().__init__(
            f"{requested} {resource} asked for, but {used} of {max} are in use.",
            details={"resource": resource, "requested": requested, "used": used, "max": max},
        )
