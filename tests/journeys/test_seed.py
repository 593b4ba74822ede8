"""The seed of `manage.py up`: what it makes, and that it can be stopped anywhere and started again (DESIGN §8)."""

import json
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import authenticate

from computeplatform.clock import compute_now
from computeplatform.seed import Kind, seed
from fleet.models import Node, Offer, Pool
from iam.models import ApiKey, Principal, Tenant
from iam.ports import authenticate as sign_in
from quotas.models import Quota
from tests.support.api import Api

pytestmark = pytest.mark.usefixtures("nobody")

URL = "http://127.0.0.1:8000"


@pytest.fixture
def run(tmp_path: Path):
    """Seed the test's state directory; what the two files hold afterwards."""

    def run(*, kind: Kind = "demo", nodes: int = 2, base_url: str = URL) -> tuple[Any, Any]:
        seed(state_dir=tmp_path, kind=kind, nodes=nodes, base_url=base_url)
        return read(tmp_path / "credentials.json"), read(tmp_path / "nodes.json")

    return run


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def rows() -> dict[str, int]:
    counted = (Tenant, Principal, ApiKey, Pool, Offer, Quota, Node)
    return {model.__name__: model.objects.count() for model in counted}


def who(token: str) -> tuple[str, str]:
    caller = sign_in(token, now=compute_now(), source_ip=None)
    return caller.tenant_id, Principal.objects.get(id=caller.principal_id).name


def test_what_a_demo_starts_with(run, tmp_path):
    credentials, nodes = run()
    assert list(credentials) == ["baseUrl", "platform", "tenants", "pool", "operator"]
    assert credentials["baseUrl"] == URL
    assert credentials["platform"]["tenantId"] == "platform"
    assert who(credentials["platform"]["admin"]) == ("platform", "admin")
    assert list(credentials["tenants"]) == ["acme", "globex"]
    for tenant, people in credentials["tenants"].items():
        assert {name: who(token) for name, token in people.items()} == {
            name: (tenant, name) for name in ("admin", "user", "service")
        }
        roles = Principal.objects.filter(tenant_id=tenant).values_list("kind", "name", "roles")
        assert sorted(roles) == [
            ("service", "service", ["reserver"]),
            ("user", "admin", ["tenant-admin"]),
            ("user", "user", ["reserver"]),
        ]
        pools = Api(people["user"], tenant)("pools/list").data["pools"]
        assert [pool["id"] for pool in pools] == [credentials["pool"]["id"]]
        assert Quota.objects.get(tenant_id=tenant).resource == "gpu"
    pool = Pool.objects.get(id=credentials["pool"]["id"])
    assert (pool.tenant_id, pool.device_class, pool.gpu_model) == ("platform", "gpu", "h100-sxm-80g")
    assert pool.policy["tenantRoot"].startswith("/")
    assert [node["name"] for node in nodes] == ["sim-1", "sim-2"]
    assert {node["gpus"] for node in nodes} == {8}
    assert {Node.objects.get(id=node["nodeId"]).pool_id for node in nodes} == {pool.id}
    for name in ("credentials.json", "nodes.json"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["credentials.json", "nodes.json"]


def test_the_operator_signs_in_and_is_a_principal_of_the_platform(run):
    operator = run()[0]["operator"]
    user = authenticate(username=operator["username"], password=operator["password"])
    assert user.username == "operator"
    assert user.is_staff
    assert user.is_superuser
    assert (user.principal.tenant_id, user.principal.kind) == ("platform", "user")
    first = user.password
    run()
    user.refresh_from_db()
    assert user.password == first, "another hash would have ended the operator's sessions"


def test_a_node_s_token_may_sync_that_node_alone(run):
    nodes = run()[1]
    report = {"bootId": "boot-1", "sequence": 1, "software": {"version": "1"}, "devices": [], "allocations": []}
    node = Api(nodes[0]["token"], "platform")
    assert node("nodes/sync", nodeId=nodes[0]["nodeId"], **report).data["session"] == 1
    node("nodes/sync", nodeId=nodes[1]["nodeId"], **report).refused("ACCESS_DENIED")
    node("nodes/list").refused("ACCESS_DENIED")


def test_without_tenants_the_platform_may_use_everything(run):
    credentials, nodes = run(kind="none", nodes=3)
    assert credentials["tenants"] == {}
    assert list(Tenant.objects.values_list("id", flat=True)) == ["platform"]
    assert Quota.objects.get(tenant_id="platform", resource="gpu").max == 2**53 - 1
    assert len(nodes) == 3
    seen = Api(credentials["platform"]["admin"], "platform")("nodes/list").data["nodes"]
    assert {node["name"] for node in seen} == {"sim-1", "sim-2", "sim-3"}


def test_a_second_start_changes_nothing(run):
    first, before = run(), rows()
    assert run() == first
    assert rows() == before


def test_another_port_changes_the_address_alone(run):
    first, _ = run()
    second, _ = run(base_url="http://127.0.0.1:9000")
    assert second == first | {"baseUrl": "http://127.0.0.1:9000"}


def test_more_nodes_are_registered_and_fewer_forget_none(run):
    two = run(nodes=2)[1]
    four = run(nodes=4)[1]
    assert four[:2] == two
    assert [node["name"] for node in four] == ["sim-1", "sim-2", "sim-3", "sim-4"]
    assert run(nodes=1)[1] == four
    assert Node.objects.count() == 4


def test_a_demo_s_directory_keeps_its_tenants(run):
    first, _ = run()
    assert run(kind="none")[0] == first
    assert run()[0] == first


def test_a_directory_without_tenants_may_get_them(run):
    first, _ = run(kind="none")
    second, _ = run()
    assert second == first | {"tenants": second["tenants"]}
    assert list(second["tenants"]) == ["acme", "globex"]


@pytest.mark.parametrize("lost", [["credentials.json"], ["nodes.json"], ["credentials.json", "nodes.json"]])
def test_after_a_crash_before_the_files_were_written_there_are_new_keys_for_the_same_people(run, tmp_path, lost):
    first, nodes = run()
    before = rows()
    for name in lost:
        (tmp_path / name).unlink()
    (tmp_path / "credentials.part").write_text("{")
    second, again = run()
    minted = 7 * ("credentials.json" in lost) + 2 * ("nodes.json" in lost)
    assert rows() == before | {"ApiKey": before["ApiKey"] + minted}
    assert second["pool"] == first["pool"]
    assert [node["nodeId"] for node in again] == [node["nodeId"] for node in nodes]
    assert who(second["platform"]["admin"]) == ("platform", "admin")
    assert who(second["tenants"]["globex"]["service"]) == ("globex", "service")
    assert {who(node["token"])[1] for node in again} == {"sim-1", "sim-2"}
    operator = second["operator"]
    assert authenticate(username=operator["username"], password=operator["password"])


def test_a_token_that_no_longer_works_is_replaced_and_no_other(run):
    first, _ = run()
    platform = Api(first["tenants"]["acme"]["admin"], "acme")
    key = sign_in(first["tenants"]["acme"]["user"], now=compute_now(), source_ip=None).key_id
    assert platform.iam("keys/revoke", keyId=key).status == 200
    second, _ = run()
    assert second["tenants"]["globex"] == first["tenants"]["globex"]
    changed = {name for name, token in second["tenants"]["acme"].items() if token != first["tenants"]["acme"][name]}
    assert changed == {"user"}
    assert who(second["tenants"]["acme"]["user"]) == ("acme", "user")


def test_who_was_suspended_stays_so(run):
    first, _ = run()
    admin = Api(first["tenants"]["acme"]["admin"], "acme")
    user = sign_in(first["tenants"]["acme"]["user"], now=compute_now(), source_ip=None).principal_id
    assert admin.iam("principals/suspend", principalId=user).status == 200
    platform = Api(first["platform"]["admin"], "platform")
    assert platform.iam("tenants/suspend", id="globex").status == 200
    before = rows()
    assert run()[0] == first
    assert rows() == before


def test_an_offer_that_was_changed_stays_as_it_is(run):
    first, _ = run()
    platform = Api(first["platform"]["admin"], "platform")
    pool = first["pool"]["id"]
    assert platform("pools/offer", poolId=pool, toTenantId="acme", resources={"gpu": 3}).status == 200
    run()
    assert Quota.objects.get(tenant_id="acme", resource="gpu").max == 3
