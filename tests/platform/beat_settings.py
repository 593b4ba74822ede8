"""The tests' settings with a schedule of one tick, for beat processes that tests start."""

from tests.settings import *  # noqa: F403

COMPUTE_BEAT = {"probe": {"task": "tests.probe", "queue": "maintenance", "every": 1, "bounds": (1, 60)}}
