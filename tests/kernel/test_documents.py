"""The index of methods, the OpenAPI document, its pages: generated, complete, and served by ourselves."""

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from django.test import Client
from drf_spectacular.validation import validate_schema

from computeplatform.api.methods import SHARED_CODES, Method, methods
from computeplatform.errors import CODES
from computeplatform.urls import DECLARING
from tests.support.world import World

assert DECLARING  # imported: every app has declared its methods

# Contract §14 for the methods of issue 2: action, resource.
AUTHORIZATION = {
    "reservations/create": "compute:reservations:create @ compute-reservation",
    "reservations/get": "compute:reservations:read @ compute-reservation",
    "reservations/list": "compute:reservations:read @ compute-tenant + items",
    "reservations/release": "compute:reservations:release @ compute-reservation",
    "reservations/cancel": "compute:reservations:release @ compute-reservation",
    "pools/create": "compute:pools:create @ compute-tenant",
    "pools/get": "compute:pools:read @ compute-tenant",
    "pools/list": "compute:pools:read @ compute-tenant",
    "pools/offer": "compute:pools:admin @ compute-pool",
    "quotas/list": "compute:quotas:read @ compute-tenant",
    "quotas/set": "compute:pools:admin @ compute-pool",
    "events/list": "compute:events:read @ compute-tenant",
    "nodes/register": "compute:fleet:admin @ compute-fleet",
    "nodes/list": "compute:fleet:read @ compute-fleet",
    "nodes/get": "compute:fleet:read @ compute-fleet",
    "nodes/sync": "compute:nodes:sync @ compute-node",
    "principals/create": "iam:principals:create @ iam-tenant",
    "principals/list": "iam:principals:read @ iam-tenant",
    "keys/create": "iam:keys:create @ iam-tenant",
    "keys/get": "iam:keys:read @ iam-tenant",
    "policies/put": "iam:policies:put @ iam-tenant",
    "policies/test": "iam:policies:read @ iam-tenant",
    "tenants/create": "iam:tenants:create @ iam-tenant",
    "session/whoami": "none",
}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return dict(Client().get("/api/openapi.json").json())


def operation(document: dict[str, Any], method: Method) -> dict[str, Any]:
    return dict(document["paths"][f"/{method.path}"]["post"])


every_method = pytest.mark.parametrize("method", methods(), ids=lambda m: f"{m.service}/{m.id}")


# --- The index ------------------------------------------------------------------------------------


@pytest.mark.clause("API-8", "index of methods")
def test_the_index_has_a_row_per_method_and_needs_no_credential():
    index = Client().get("/api/methods").json()["data"]["methods"]
    assert [f"/{m.path}" for m in methods()] == [row["path"] for row in index]
    for row in index:
        assert set(row) == {"method", "service", "path", "kind", "authorization", "module", "phase", "status"}
        assert row["kind"] in ("read", "mutation")
        assert row["status"] == "registered"
        assert all(row.values())


@pytest.mark.clause("API-8", "authorization of a method")
def test_each_method_is_authorized_as_the_contract_says():
    index = {row["method"]: row for row in Client().get("/api/methods").json()["data"]["methods"]}
    assert {name: index[name]["authorization"] for name in AUTHORIZATION} == AUTHORIZATION


@pytest.mark.clause("API-8", "module and phase of reservations")
def test_the_methods_of_reservations_are_module_capacity():
    index = {row["method"]: row for row in Client().get("/api/methods").json()["data"]["methods"]}
    phases = {name: row["phase"] for name, row in index.items() if row["module"] == "capacity"}
    assert phases.pop("reservations/cancel") == "v0.2"
    assert set(phases.values()) == {"v0.1"}
    assert {name for name in index if name.startswith("reservations/")} == {*phases, "reservations/cancel"}


# --- The document ---------------------------------------------------------------------------------


@pytest.mark.clause("API-8", "a valid OpenAPI document")
def test_the_document_is_valid_and_all_it_points_to_is_there(document: dict[str, Any]):
    validate_schema(document)
    text = str(document)
    for name in set(re.findall(r"'\$ref': '#/components/schemas/([^']+)'", text)):
        assert name in document["components"]["schemas"]
    ids = [operation(document, m)["operationId"] for m in methods()]
    assert len(set(ids)) == len(ids)


@pytest.mark.clause("API-8", "every method is described")
def test_the_document_describes_exactly_the_declared_methods(document: dict[str, Any]):
    assert set(document["paths"]) == {f"/{m.path}" for m in methods()}
    assert all(set(verbs) == {"post"} for verbs in document["paths"].values())
    assert document["components"]["securitySchemes"] == {"bearer": {"type": "http", "scheme": "bearer"}}


@pytest.mark.clause("API-3", "codes per method")
@pytest.mark.clause("API-8", "every method is described")
@every_method
def test_a_method_is_described_with_input_output_codes_action_and_resource(document: dict[str, Any], method: Method):
    described = operation(document, method)
    assert (described["x-action"], described["x-resource"]) == (method.action, method.resource)
    assert described["x-codes"] == list(method.codes)
    assert set(SHARED_CODES) <= set(method.codes)
    assert set(described["responses"]) == {"200", *(str(CODES[code].status) for code in method.codes)}
    for code in method.codes:
        answer = described["responses"][str(CODES[code].status)]
        assert code in answer["description"]
        assert answer["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Error"}
    assert described["security"] == [{"bearer": []}]
    assert len(described["summary"]) > 10
    assert method.description in described["description"]
    body = described["requestBody"]["content"] if method.input().fields else {"application/json": None}
    assert list(body) == ["application/json"]
    success = described["responses"]["200"]["content"]["application/json"]["schema"]
    assert (success["required"], success["additionalProperties"]) == (["data"], False)


@pytest.mark.clause("API-8", "every method is described")
@every_method
def test_the_described_input_is_closed_and_names_its_fields(document: dict[str, Any], method: Method):
    fields = method.input().fields
    if not fields:
        return
    reference = operation(document, method)["requestBody"]["content"]["application/json"]["schema"]["$ref"]
    schema = document["components"]["schemas"][reference.rpartition("/")[2]]
    assert set(schema["properties"]) == set(fields)
    assert set(schema.get("required", [])) == {name for name, field in fields.items() if field.required}
    assert schema.get("additionalProperties") is (None if method.input.ignore_unknown else False)


@pytest.mark.clause("API-11", "creating mutations take a key")
def test_what_creates_takes_a_key_and_what_changes_a_version():
    takers = {m.id for m in methods() if m.replay}
    assert {
        "pools/create",
        "pools/offer",
        "nodes/register",
        "keys/create",
        "keys/rotate",
        "principals/create",
    } <= takers
    for method in methods():
        fields = method.input().fields
        assert ("idempotencyKey" in fields) == (method.replay is not None or method.id == "reservations/create")
        if method.replay or "version" in fields:
            assert "CONFLICT" in method.codes or method.kind == "read"


# --- The pages ------------------------------------------------------------------------------------


class Assets(HTMLParser):
    """What a page loads, and the scripts and handlers that stand in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.inline: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        source = found.get("src") if tag in ("script", "img") else found.get("href") if tag == "link" else None
        if source:
            self.loaded.append(source)
        if (tag == "script" and not source) or any(name.startswith("on") for name in found):
            self.inline.append(tag)


def directives(policy: str) -> dict[str, list[str]]:
    return {words[0]: words[1:] for words in (part.split() for part in policy.split(";")) if words}


@pytest.mark.clause("API-8", "pages")
def test_the_pages_load_only_what_we_serve_and_their_policy_allows(db: None):
    client = Client()
    page = client.get("/api/docs", headers={"accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
    assert page.status_code == 200
    policy = directives(page["Content-Security-Policy"])
    assert policy["default-src"] == ["'self'"]
    assert policy["script-src"] == ["'self'"]
    assets = Assets(page.content.decode())
    assert assets.inline == []
    assert len(assets.loaded) >= 4
    for address in assets.loaded:
        assert re.match(r"/(?!/)|\?", address), address
        asset = client.get(address if address.startswith("/") else f"/api/docs{address}")
        assert asset.status_code == 200, address
        assert len(asset.getvalue()) > 100
        asset.close()
        if ".js" in address or "script" in address:
            assert "javascript" in asset["Content-Type"]
    script = next(a for a in assets.loaded if "script" in a)
    code = client.get(script if script.startswith("/") else f"/api/docs{script}").content.decode()
    assert "/api/openapi.json" in code
    assert "http://" not in code
    assert "https://" not in code


@pytest.mark.clause("API-8", "pages")
def test_what_is_not_a_page_may_not_be_run_or_framed(world: World):
    for response in (
        Client().get("/api/methods"),
        Client().get("/healthz"),
        world.ann.api.client.post("/api/iam/session/whoami", "{}", "application/json"),
    ):
        assert response["Content-Security-Policy"] == "default-src 'none'; frame-ancestors 'none'"
        assert response["X-Content-Type-Options"] == "nosniff"


@pytest.mark.clause("API-8", "no credential")
@pytest.mark.parametrize("path", ["/api/openapi.json", "/api/docs", "/api/methods", "/api/docs/errors/CONFLICT"])
def test_documents_need_no_credential_and_ignore_a_bad_one(db: None, path: str):
    assert Client().get(path).status_code == 200
    assert Client(headers={"authorization": "Bearer nonsense"}).get(path).status_code == 200
