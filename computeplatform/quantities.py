"""Amounts as people and programs read them."""

from decimal import Decimal


def money(amount: Decimal) -> str:
    """Decimal text, at least two places, no more than needed (QTA-3)."""
    text = f"{amount:.4f}"
    whole, _, places = text.partition(".")
    return f"{whole}.{places.rstrip('0').ljust(2, '0')}"
