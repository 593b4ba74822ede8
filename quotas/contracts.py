"""What the ledger gives to and takes from other apps. Tenants, pools and reservations are opaque ids here."""

from collections.abc import Mapping
from dataclasses import dataclass

# The largest whole number that every JSON reader keeps exactly; as a maximum it means "no limit of its own".
UNLIMITED = 2**53 - 1


def maximum(limit: int) -> str:
    """A maximum as people read it."""
    return "no limit" if limit >= UNLIMITED else str(limit)


@dataclass(frozen=True)
class ChargeLine:
    """One resource charged for one reservation, until it is refunded. Amounts are whole units of the resource."""

    reservation_id: str
    tenant_id: str
    pool_id: str
    resource: str
    amount: int


@dataclass(frozen=True)
class ChargeRequest:
    """All that one reservation is to be charged: all of it or nothing (QTA-1). Amounts of 0 leave no line."""

    reservation_id: str
    tenant_id: str
    pool_id: str
    amounts: Mapping[str, int]

    def __post_init__(self) -> None:
        if any(amount < 0 for amount in self.amounts.values()):
            raise ValueError(f"{self.reservation_id}: a charge cannot be negative")


@dataclass(frozen=True)
class QuotaView:
    """What a tenant may use of one resource of a pool, and what it uses. ``used`` may be above a lowered ``max``."""

    id: str
    tenant_id: str
    pool_id: str
    resource: str
    max: int
    used: int
    version: int
