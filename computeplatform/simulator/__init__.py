"""Simulated nodes: they speak the real protocol over HTTP and know nothing of the server's insides (NOD-3)."""
