"""The only writes of identity and access."""
