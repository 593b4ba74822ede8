"""``iam/principals/*`` (IAM-API §3)."""

from typing import Any

import pytest

from iam.models import Principal
from tests.support.world import Person, World, fresh_key


def made(world: World, **fields: Any) -> dict[str, Any]:
    shape = {"kind": "user", "name": "Zoë"} | fields
    return world.acme.api.iam("principals/create", **shape).data["principal"]


def test_a_new_principal(world: World, clock: Any) -> None:
    principal = made(world, roles=["viewer"], groups=["research", "b2"])
    assert principal == {
        "id": principal["id"],
        "tenantId": "acme",
        "kind": "user",
        "name": "Zoë",
        "roles": ["viewer"],
        "groups": ["research", "b2"],
        "status": "active",
        "createdAt": clock.now,
        "version": 1,
    }
    assert world.acme.api.iam("principals/get", principalId=principal["id"]).data == {"principal": principal}


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"kind": "agent"}, "kind"),
        ({"kind": None}, "kind"),
        ({"name": ""}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"name": "x" * 129}, "name"),
        ({"roles": ["root"]}, "roles.0"),
        ({"roles": ["viewer", "viewer"]}, "roles"),
        ({"roles": ["viewer", "fleet-admin"]}, "roles.1"),
        ({"groups": ["Research"]}, "groups.0"),
        ({"groups": [f"g{n}" for n in range(33)]}, "groups"),
        ({"groups": "research"}, "groups"),
        ({"nodeId": "node_1"}, "nodeId"),
        ({"id": "me"}, "id"),
        ({"idempotencyKey": "with space"}, "idempotencyKey"),
    ],
)
def test_wrong_fields_are_named(world: World, fields: dict[str, Any], path: str) -> None:
    before = Principal.objects.count()
    world.acme.api.iam("principals/create", **({"kind": "user", "name": "x"} | fields)).refused_at(path)
    assert Principal.objects.count() == before


@pytest.mark.clause("IAM-4", "fleet administrators only in the platform")
def test_fleet_admin_is_a_role_of_the_platform_alone(world: World) -> None:
    world.acme.api.iam("principals/update", principalId=world.ann.id, roles=["fleet-admin"]).refused_at("roles.0")
    assert Principal.objects.get(id=world.ann.id).roles == ["reserver"]
    roles = ["tenant-admin", "reserver", "viewer", "fleet-admin"]
    assert world.admin.iam("principals/create", kind="user", name="op", roles=roles).data["principal"]["roles"] == roles


@pytest.mark.clause("API-11", "the same key answers the stored object")
def test_the_same_key_makes_one_principal(world: World) -> None:
    key = fresh_key()
    first = made(world, idempotencyKey=key)
    assert made(world, idempotencyKey=key, roles=[]) == first
    world.acme.api.iam("principals/create", kind="user", name="else", idempotencyKey=key).refused("CONFLICT")
    assert Principal.objects.filter(name__in=["Zoë", "else"]).count() == 1


def test_update_replaces_what_is_given_and_counts_versions(world: World) -> None:
    one = made(world, groups=["a", "b"], roles=["viewer"])
    changed = world.acme.api.iam("principals/update", principalId=one["id"], groups=["c"], version=1).data["principal"]
    assert changed == one | {"groups": ["c"], "version": 2}
    same = world.acme.api.iam("principals/update", principalId=one["id"], groups=["c"]).data["principal"]
    assert same == changed
    renamed = world.acme.api.iam("principals/update", principalId=one["id"], name="Zed", roles=[]).data["principal"]
    assert renamed == changed | {"name": "Zed", "roles": [], "version": 3}


@pytest.mark.clause("API-11", "a stale version is CONFLICT")
def test_a_stale_update_changes_nothing(world: World) -> None:
    one = made(world)
    world.acme.api.iam("principals/update", principalId=one["id"], name="two", version=1).data  # noqa: B018
    answer = world.acme.api.iam("principals/update", principalId=one["id"], name="three", version=1)
    answer.refused("CONFLICT", reason="stale-version", version=2)
    assert Principal.objects.get(id=one["id"]).name == "two"


def test_only_agents_have_a_boundary(world: World) -> None:
    answer = world.acme.api.iam("principals/update", principalId=world.ann.id, boundary=["compute:*"], name="new")
    answer.refused_at("boundary")
    assert Principal.objects.get(id=world.ann.id).name == "ann"


@pytest.mark.clause("IAM-1", "a changed role bites at the next call")
def test_a_changed_role_bites_at_the_next_call(world: World) -> None:
    world.ann.api.iam("principals/list").refused("ACCESS_DENIED")
    world.acme.api.iam("principals/update", principalId=world.ann.id, roles=["tenant-admin"]).data  # noqa: B018
    assert world.ann.api.iam("principals/list").status == 200
    world.acme.api.iam("principals/update", principalId=world.ann.id, roles=[]).data  # noqa: B018
    world.ann.api.iam("principals/list").refused("ACCESS_DENIED")


def last_admin_refused(world: World) -> None:
    admin = world.acme
    for method, fields in (("update", {"roles": ["viewer"]}), ("suspend", {})):
        answer = admin.api.iam(f"principals/{method}", principalId=admin.id, **fields)
        answer.refused("INVALID_STATE", reason="last-admin")
    stored = Principal.objects.get(id=admin.id)
    assert (stored.status, stored.roles) == ("active", ["tenant-admin"])


def test_the_last_administrator_stays(world: World) -> None:
    last_admin_refused(world)
    # Neither a suspended administrator nor another tenant's is one who remains.
    second = world.person(world.acme, "second", "tenant-admin")
    world.acme.api.iam("principals/suspend", principalId=second.id).data  # noqa: B018
    last_admin_refused(world)
    world.acme.api.iam("principals/resume", principalId=second.id).data  # noqa: B018
    world.acme.api.iam("principals/suspend", principalId=world.acme.id).data  # noqa: B018
    last = second.api.iam("principals/update", principalId=second.id, roles=[])
    last.refused("INVALID_STATE", reason="last-admin")


def test_an_administrator_may_be_renamed_and_keep_the_role(world: World) -> None:
    roles = ["viewer", "tenant-admin"]
    data = world.acme.api.iam("principals/update", principalId=world.acme.id, name="chief", roles=roles).data
    assert (data["principal"]["name"], data["principal"]["roles"]) == ("chief", roles)


def test_suspend_and_resume_repeated_change_nothing(world: World) -> None:
    first = world.acme.api.iam("principals/suspend", principalId=world.ann.id, reason="on leave").data["principal"]
    assert (first["status"], first["version"]) == ("suspended", 2)
    assert world.acme.api.iam("principals/suspend", principalId=world.ann.id).data["principal"] == first
    stored = Principal.objects.get(id=world.ann.id)
    assert (stored.status_reason, stored.status_by) == ("on leave", world.acme.id)
    again = world.acme.api.iam("principals/resume", principalId=world.ann.id).data["principal"]
    assert (again["status"], again["version"]) == ("active", 3)
    assert world.acme.api.iam("principals/resume", principalId=world.ann.id).data["principal"] == again


def test_agents_are_suspended_elsewhere(world: World) -> None:
    robot = world.agent(world.ann)
    for method in ("suspend", "resume"):
        answer = world.acme.api.iam(f"principals/{method}", principalId=robot.id)
        answer.refused("INVALID_STATE", reason="use-agents")
    assert Principal.objects.get(id=robot.id).status == "active"


def names(world: World, **filters: Any) -> list[str]:
    return [p["name"] for p in world.acme.api.iam("principals/list", **filters).data["principals"]]


def test_lists_are_filtered(world: World) -> None:
    made(world, name="build", kind="service", groups=["ci"])
    world.acme.api.iam("principals/suspend", principalId=world.bob.id).data  # noqa: B018
    assert names(world, kind="service") == ["build"]
    assert names(world, group="ci") == ["build"]
    assert names(world, group="none") == []
    assert names(world, status="suspended") == ["bob"]
    assert sorted(names(world, role="reserver")) == ["ann", "bob"]
    assert names(world, role="reserver", status="active") == ["ann"]


def test_pages_are_newest_first_and_meet(world: World, clock: Any) -> None:
    for number in range(5):
        clock.advance(seconds=number % 2)
        made(world, name=f"n{number}")
    everybody = names(world, limit=200)
    seen: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = world.acme.api.iam("principals/list", limit=2, **cursor).data
        seen += [p["name"] for p in page["principals"]]
        if "nextCursor" not in page:
            break
        assert len(page["principals"]) == 2
        cursor = {"cursor": page["nextCursor"]}
        clock.advance(milliseconds=1)
        made(world, name="meanwhile")
    assert seen == everybody
    assert set(seen[:2]) <= {"n4", "n3"}


@pytest.mark.parametrize("limit", [0, 201, 1.5, "5", True])
def test_limits_are_not_bent(world: World, limit: Any) -> None:
    world.acme.api.iam("principals/list", limit=limit).refused_at("limit")


def test_unknown_and_foreign_cursors_are_refused(world: World) -> None:
    for cursor in ("usr_unknown", world.gil.id):
        world.acme.api.iam("principals/list", cursor=cursor).refused_at("cursor")


@pytest.mark.clause("API-5", "another tenant's object is not there")
@pytest.mark.parametrize("method", ["get", "update", "suspend", "resume"])
def test_foreign_ids_are_unknown_ids(world: World, method: str) -> None:
    foreign = world.acme.api.iam(f"principals/{method}", principalId=world.gil.id)
    unknown = world.acme.api.iam(f"principals/{method}", principalId="usr_nobody")
    first, second = foreign.refused("NOT_FOUND"), unknown.refused("NOT_FOUND")
    assert first | {"requestId": ""} == second | {"requestId": ""}
    world.acme.api.iam(f"principals/{method}", principalId="x" * 65).refused_at("principalId")
    assert Principal.objects.get(id=world.gil.id).version == 1


@pytest.mark.clause("API-5", "without the permission")
@pytest.mark.parametrize("method", ["update", "suspend", "resume"])
def test_without_the_permission_an_id_that_exists_is_denied(world: World, method: str) -> None:
    world.ann.api.iam(f"principals/{method}", principalId=world.ann.id).refused("ACCESS_DENIED")
    world.ann.api.iam(f"principals/{method}", principalId="usr_nobody").refused("NOT_FOUND")
    assert Principal.objects.get(id=world.ann.id).version == 1


def test_everybody_reads_themselves_and_only_administrators_others(world: World) -> None:
    people: list[Person] = [world.ann, world.vic]
    for person in people:
        found = person.api.iam("principals/get", principalId=person.id).data["principal"]
        assert found["id"] == person.id
        person.api.iam("principals/get", principalId=world.bob.id).refused("ACCESS_DENIED")
        person.api.iam("principals/list").refused("ACCESS_DENIED")
        person.api.iam("principals/create", kind="user", name="x").refused("ACCESS_DENIED")
