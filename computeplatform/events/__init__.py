"""Events: written in the transaction of their change, numbered after commit, read by sequence (EVT-1, EVT-2)."""
