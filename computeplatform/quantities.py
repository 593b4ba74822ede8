"""Amounts as people and programs read them."""

from decimal import Decimal


def money(amount: Decimal) -> str:
    """Decimal text, at least two places, no more than needed (QTA-3)."""
    text = f"{amount:.4f}"
    whole, _, places = text.partition(".")
    return f"{whole}.{places.rstrip('0').ljust(2, '0')}"


def covers_cost(*, approved: Decimal, approved_currency: str, cost: Decimal, currency: str) -> bool:
    """Whether what was approved is enough for this cost. Another currency cannot be compared, so it is not."""
    return cost == 0 or (currency == approved_currency and cost <= approved)
