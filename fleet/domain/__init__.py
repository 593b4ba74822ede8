"""Pure rules of the fleet: units, policies, node states, what a sync changes."""
