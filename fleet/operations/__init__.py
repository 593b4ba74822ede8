"""The fleet's writes."""
