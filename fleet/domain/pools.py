"""What a pool can be: classes, how their devices are shared, and the quota resources that they are charged in."""

DEVICE_CLASSES = ("gpu", "mig", "slot")
SHARINGS = ("exclusive", "mig", "timeslice", "mps")

# The sharing modes of each class; the first is the default.
SHARING_OF_CLASS = {"gpu": ("exclusive",), "mig": ("mig",), "slot": ("timeslice", "mps")}

# `1g.10gb`, also with a suffix as in `1g.10gb+me`.
PROFILE = r"^[0-9]{1,2}g\.[0-9]{1,4}gb(\+[a-z][a-z.]{0,15})?\Z"
HOST_RESOURCES = ("vcpu", "memoryGiB")


def device_resource(device_class: str, profile: str) -> str:
    """The quota resource in which devices of a pool are charged: ``gpu``, ``mig:<profile>`` or ``slot`` (QTA-1)."""
    return f"mig:{profile}" if device_class == "mig" else device_class


def quota_resources(device_class: str, profile: str) -> tuple[str, ...]:
    """Every quota resource that a pool knows."""
    return (device_resource(device_class, profile), *HOST_RESOURCES)
