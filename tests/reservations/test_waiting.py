"""Holding the answer while it is pending (CRE-15)."""

import pytest

from reservations import reconcilers
from tests.support.api import Api, admit_all, settle
from tests.support.world import World, request


@pytest.mark.clause("CRE-15", "returns as soon as the state changes")
def test_the_answer_comes_when_it_is_placed(world: World, pool: str):
    first = world.ann.api("reservations/create", **request(pool, 8)).data["reservation"]
    looks: list[str] = []

    def admit_then_make_room() -> None:
        looks.append("look")
        admit_all()
        if len(looks) == 2:
            world.ann.api("reservations/release", reservationId=first["id"])
            reconcilers.placement_tick()

    bob = Api(world.bob.api.token, "acme", work=admit_then_make_room, looks=10)
    made = bob("reservations/create", **request(pool, 8, wait={"timeoutMs": 5000})).data["reservation"]
    assert made["state"] == "placed"
    assert len(looks) == 2


@pytest.mark.clause("CRE-15", "a timeout returns it still pending, not an error")
def test_when_the_time_is_up_it_is_still_pending(world: World, pool: str):
    world.ann.api("reservations/create", **request(pool, 8))
    made = world.ann.api("reservations/create", **request(pool, 8, wait={"timeoutMs": 100})).data["reservation"]
    assert (made["state"], made["conditions"][0]["reason"]) == ("pending", "NoFreeDevices")


@pytest.mark.clause("CRE-15", "what never fits is not waited for")
def test_what_never_fits_is_answered_at_once(world: World, pool: str):
    looks = []

    def look() -> None:
        looks.append(1)
        settle()

    world.ann.api.work = look
    made = world.ann.api("reservations/create", **request(pool, 9, wait={"timeoutMs": 30_000})).data["reservation"]
    assert made["conditions"][0]["reason"] == "NeverFits"
    assert len(looks) == 1
