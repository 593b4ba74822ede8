"""The ledger's writes."""
