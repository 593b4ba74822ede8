"""The whole life of reservations against a reference model: short here, long by `make soak`."""

import os

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model.machine import Platform
from tests.model.with_agents import PlatformWithAgents
from tests.support.clock import Clock
from tests.support.world import World

# How many stories `make soak` tells, each of them a new one.
STORIES = int(os.environ.get("STORIES", "0"))

ROUGH = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


SHORT = settings(
    max_examples=6, stateful_step_count=30, derandomize=True, deadline=None, database=None,
    suppress_health_check=ROUGH, phases=[Phase.generate],
)  # fmt: skip
LONG = settings(
    max_examples=max(STORIES, 1), stateful_step_count=60, deadline=None, suppress_health_check=ROUGH, print_blob=True
)


def tell(of: type[Platform], world: World, clock: Clock, how: settings) -> None:
    machine = type("Machine", (of,), {"world": world, "clock": clock})
    run_state_machine_as_test(machine, settings=how)


@pytest.mark.slow
@pytest.mark.clause("REC-1", "random calls, ticks, clock moves, node reports and deaths: a model agrees at every step")
@pytest.mark.clause("REC-5", "after every step of random stories every invariant holds, and used is what callers hold")
def test_short_stories(world: World, clock: Clock):
    tell(Platform, world, clock, SHORT)


@pytest.mark.slow
@pytest.mark.clause("IAM-5", "random grants, sessions, suspensions and rotations: a model says which calls are 401")
@pytest.mark.clause("IAM-6", "random questions and answers: a model says their states, codes and recorded reasons")
@pytest.mark.clause("OPS-4", "in random stories nothing lives on after a tick of an agent that was ended")
def test_short_stories_with_agents(world: World, clock: Clock):
    tell(PlatformWithAgents, world, clock, SHORT)


@pytest.mark.soak
@pytest.mark.parametrize("machine", [Platform, PlatformWithAgents])
def test_long_stories(world: World, clock: Clock, machine: type[Platform]):
    tell(machine, world, clock, LONG)
