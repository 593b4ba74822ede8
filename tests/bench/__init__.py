"""Benchmarks: `make bench` prints a table with medians and ranges. Nothing here passes or fails."""
