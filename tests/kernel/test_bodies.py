"""Request bodies, media types and HTTP methods, over HTTP on real methods."""

import json
from typing import Any

import pytest
from django.test import Client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from computeplatform.api.methods import Method, methods
from computeplatform.urls import DECLARING
from tests.kernel.conftest import stored
from tests.kernel.test_strict_json import bytes_like_json
from tests.support.api import Answer, Api
from tests.support.world import World

WHOAMI = "/api/iam/session/whoami"
CREATE = "/api/compute/pools/create"
LIST = "/api/compute/pools/list"
JSON = "application/json"
assert DECLARING  # imported: every app has declared its methods


def post(api: Api, path: str, body: bytes | str, content_type: str | None = JSON) -> Answer:
    """Post with any media type, or none."""
    media: dict[str, Any] = {} if content_type is None else {"CONTENT_TYPE": content_type}
    raw = body.encode() if isinstance(body, str) else body
    response = api.client.generic(
        "POST", path, raw, content_type="", headers={"authorization": f"Bearer {api.token}"}, **media
    )
    return Answer(response.status_code, response.json(), dict(response.headers))


def padded(size: int, **fields: Any) -> bytes:
    body = json.dumps(fields).encode()
    return body + b" " * (size - len(body))


# --- Strict JSON on the wire ----------------------------------------------------------------------


@pytest.mark.clause("API-4", "strict JSON")
@pytest.mark.parametrize(
    "body",
    [
        b'{"tenantId": "acme", "tenantId": "acme"}',
        b'{"tenantId": "acme", "limit": NaN}',
        b'{"tenantId": "acme", "limit": Infinity}',
        b'{"tenantId": "acme", "limit": 1e309}',
        b'{"tenantId": "acme", "limit": 9007199254740992}',
        b'{"tenantId": "acme", "cursor": "\\u0000"}',
        b'{"tenantId": "acme", "cursor": "\\ud800"}',
        b'{"tenantId": "acme", "\\ud800": 1}',
        b'{"tenantId": "acme", "cursor": "\xff"}',
        b'{"tenantId": "acme", "x":' + b"[" * 32 + b"]" * 32 + b"}",
        b'{"tenantId": "acme"',
        b"[]",
        b"null",
        b"",
        b'{"tenantId": "acme", "limit": 0.99999999999999999999}',
    ],
)
def test_what_is_not_strict_json_is_invalid_input(world: World, body: bytes):
    world.ann.api.raw(LIST, body).refused("INVALID_INPUT")


@pytest.mark.clause("API-4", "strict JSON")
def test_whole_numbers_may_be_spelled_with_a_point(world: World):
    assert world.ann.api.raw(LIST, b'{"tenantId": "acme", "limit": 1.0}').data["pools"] == []


@pytest.mark.clause("API-4", "every wrong field at once")
def test_every_wrong_field_is_named_at_once(world: World):
    before = stored()
    refused = world.admin(
        "pools/create",
        name="",
        region=5,
        gpuModel="h100",
        deviceClass="tpu",
        resources={"gpu": "8", "NOPE": 1},
        policy={"price": {"perDeviceHour": 2}, "maxDurationHours": True},
        colour="red",
        idempotencyKey="two words",
    ).refused("INVALID_INPUT")
    paths = {issue["path"] for issue in refused["details"]["issues"]}
    assert {"name", "region", "deviceClass", "colour", "idempotencyKey", "resources.gpu"} <= paths
    assert {"policy.price.perDeviceHour", "policy.maxDurationHours"} <= paths
    assert all(issue["message"] for issue in refused["details"]["issues"])
    assert stored() == before


@pytest.mark.clause("API-4", "no clamping")
@pytest.mark.parametrize("limit", [0, -1, 201, 2**53 - 1, True, "50", None, 1.5, [], {}])
def test_numbers_out_of_range_or_of_another_type_are_refused(world: World, limit: Any):
    world.ann.api("pools/list", limit=limit).refused_at("limit")


@pytest.fixture
def reader(world: World) -> Api:
    return world.ann.api


@pytest.mark.clause("API-4", "strict JSON")
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=st.binary(max_size=80) | bytes_like_json)
def test_no_bytes_whatsoever_make_the_platform_fail(reader: Api, body: bytes):
    assert reader.raw(LIST, body).refused("INVALID_INPUT")["details"]["issues"]


_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.clause("API-4", "strict JSON")
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    body=st.fixed_dictionaries(
        {"tenantId": st.just("acme")},
        optional={"limit": _json, "cursor": _json, "includeArchived": _json, "other": _json},
    )
)
def test_no_json_whatsoever_makes_the_platform_fail(reader: Api, body: dict[str, Any]):
    answer = reader.raw(LIST, json.dumps(body))
    assert answer.status in (200, 400)


# --- Size -----------------------------------------------------------------------------------------


@pytest.mark.clause("API-4", "body limit")
def test_a_body_of_exactly_the_limit_is_read_and_one_more_byte_is_refused(world: World):
    limit = 64 * 1024
    assert world.ann.api.raw(LIST, padded(limit, tenantId="acme")).status == 200
    refused = world.ann.api.raw(LIST, padded(limit + 1, tenantId="acme")).refused("PAYLOAD_TOO_LARGE", maxBytes=limit)
    assert str(limit) in refused["message"]
    assert world.ann.api.raw(LIST, b"x" * 200_000).error["code"] == "PAYLOAD_TOO_LARGE"


@pytest.mark.clause("API-4", "body limit")
def test_the_limit_of_each_method_is_the_contracts():
    assert {m.id: m.body_limit for m in methods() if m.body_limit != 64 * 1024} == {"nodes/sync": 1024 * 1024}


@pytest.mark.clause("API-4", "body limit")
def test_a_node_may_send_more(world: World):
    node = world.node(world.pool())
    for size, code in ((1024 * 1024, "INVALID_INPUT"), (1024 * 1024 + 1, "PAYLOAD_TOO_LARGE")):
        node.api.raw("/api/compute/nodes/sync", padded(size, tenantId="platform")).refused(code)


@pytest.mark.clause("API-4", "body limit")
def test_who_is_not_known_is_told_so_before_the_body_is_looked_at(world: World):
    stranger = Api("cpk_nobody", "acme")
    stranger.raw(LIST, b"x" * 200_000).refused("UNAUTHENTICATED")
    stranger.raw(LIST, b"\xff").refused("UNAUTHENTICATED")


# --- Media types ----------------------------------------------------------------------------------


@pytest.mark.clause("API-3", "media type")
@pytest.mark.parametrize("media", [JSON, "application/json; charset=utf-8", "Application/JSON", "application/json;x=y"])
def test_json_is_accepted_with_parameters_and_in_any_case(world: World, media: str):
    assert post(world.ann.api, WHOAMI, "{}", media).status == 200


@pytest.mark.clause("API-3", "media type")
@pytest.mark.parametrize(
    ("media", "body"),
    [
        *(("application/x-www-form-urlencoded", body) for body in ("{}", "a=b", "")),
        *(("multipart/form-data; boundary=x", body) for body in ("{}", "--x--", "")),
        *((media, "{}") for media in ("text/plain", "application/xml", "*/*", "application/*", "text/json", "x")),
    ],
)
def test_another_media_type_is_refused(world: World, media: str, body: str):
    post(world.ann.api, WHOAMI, body, media).refused("UNSUPPORTED_MEDIA_TYPE")


@pytest.mark.clause("API-3", "media type")
def test_a_body_without_a_type_is_refused_and_no_body_is_an_empty_object(world: World):
    post(world.ann.api, WHOAMI, "{}", None).refused("UNSUPPORTED_MEDIA_TYPE")
    assert post(world.ann.api, WHOAMI, "", None).status == 200
    assert post(world.ann.api, LIST, "", JSON).refused_at("tenantId")


@pytest.mark.clause("API-1", "one JSON object out")
@pytest.mark.parametrize(
    "accept", ["text/html", "application/xml", "text/html,application/xhtml+xml;q=0.9", "nonsense", ""]
)
def test_the_answer_is_json_whatever_accept_says(world: World, accept: str):
    response = world.ann.api.client.post(
        f"{WHOAMI}?format=xml", "{}", JSON, headers={"authorization": f"Bearer {world.ann.api.token}", "accept": accept}
    )
    assert (response.status_code, response["Content-Type"]) == (200, JSON)


# --- HTTP methods and addresses -------------------------------------------------------------------


@pytest.mark.clause("API-3", "HTTP method")
@pytest.mark.parametrize("verb", ["GET", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "BREW"])
def test_a_method_takes_post_alone(world: World, verb: str):
    response = Client().generic(verb, WHOAMI, headers={"authorization": f"Bearer {world.ann.api.token}"})
    assert response.status_code == 405
    assert response["Allow"] == "POST"
    if verb != "HEAD":
        assert response.json()["error"]["code"] == "METHOD_NOT_ALLOWED"


@pytest.mark.clause("API-3", "unknown address")
@pytest.mark.parametrize("verb", ["GET", "POST", "PUT", "DELETE"])
@pytest.mark.parametrize(
    "path",
    [
        "/api/",
        "/api/nope",
        "/api/compute/",
        "/api/compute/pools",
        "/api/compute/pools/nope",
        "/api/compute/pools/create/",
        "/api/compute/pools/create/x",
        "/api/iam/pools/create",
        "/api/compute/session/whoami",
        "/api/Compute/pools/create",
        "/api/compute/pools%2Fcreate%00",
        "/api/docs/nope",
    ],
)
def test_an_unknown_address_is_not_found_in_the_envelope(db: None, verb: str, path: str):
    # As a browser or curl would send it: without a forgery token, which the API must not ask for.
    response = Client(enforce_csrf_checks=True).generic(verb, path, b"{}", content_type=JSON)
    assert response.status_code == 404
    assert response["Content-Type"].startswith(JSON)
    assert response.json()["error"]["code"] == "NOT_FOUND"


@pytest.mark.clause("API-3", "HTTP method")
@pytest.mark.parametrize("path", ["/api/methods", "/api/openapi.json", "/api/docs/errors/NOT_FOUND"])
def test_a_document_is_only_read(db: None, path: str):
    client = Client(enforce_csrf_checks=True)
    assert client.get(path).status_code == client.head(path).status_code == 200
    refused = client.post(path, "{}", JSON)
    assert (refused.status_code, refused["Allow"]) == (405, "GET, HEAD")
    assert refused.json()["error"]["code"] == "METHOD_NOT_ALLOWED"


@pytest.mark.clause("API-1", "address of a method")
@pytest.mark.parametrize("method", methods(), ids=lambda m: f"{m.service}/{m.id}")
def test_every_method_is_there_asks_for_a_token_and_no_forgery_token(db: None, method: Method):
    response = Client(enforce_csrf_checks=True).post(f"/api/{method.service}/{method.id}", "{}", JSON)
    assert response.status_code == 401
    assert response.json()["error"]["code"] == "UNAUTHENTICATED"


@pytest.mark.clause("API-5", "tenantId")
@pytest.mark.parametrize("method", methods(), ids=lambda m: f"{m.service}/{m.id}")
def test_every_input_but_whoamis_has_a_tenant(method: Method):
    assert ("tenantId" in method.input().fields) == (method.id != "session/whoami")
    if "tenantId" in method.input().fields:
        assert method.input().fields["tenantId"].required
