"""The types of the conditions that several operations set and take away."""

UNSCHEDULABLE = "Unschedulable"
QUEUED = "Queued"
DEVICES_HELD = "DevicesHeld"
HELD_BY_PREVIOUS = "DevicesHeldByPrevious"
PREEMPTION_SCHEDULED = "PreemptionScheduled"
NODE_LOST = "NodeLost"
DEVICE_UNHEALTHY = "DeviceUnhealthy"
