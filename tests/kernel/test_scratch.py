import pytest
from django.test import Client
def test_a(world):
    c = Client(enforce_csrf_checks=True)
    tok = world.ann.api.token
    h = {"authorization": f"Bearer {tok}"}
    def show(*a, **k):
        m = k.pop("m", "post")
        hh = h | k.pop("headers", {})
        r = getattr(c, m)(*a, headers=hh, **k)
        print(m, a, k, hh.keys() - {"authorization"}, r.status_code, r.headers.get("Content-Type"), r.headers.get("X-Request-Id"), r.content[:300])
    J="application/json"
    show("/api/iam/session/whoami", data="{}", content_type=J)
    show("/api/iam/session/whoami", data="{}", content_type=J, headers={"accept": "text/html"})
    show("/api/iam/session/whoami?format=xml", data="{}", content_type=J)
    show("/api/iam/session/whoami", data="", content_type="application/x-www-form-urlencoded")
    show("/api/iam/session/whoami", data="a=b", content_type="application/x-www-form-urlencoded")
    show("/api/iam/session/whoami", m="options")
    show("/api/iam/session/whoami", m="get")
    show("/api/iam/session/whoami", m="head")
    show("/api/iam/session/nope", data="{}", content_type=J)
    show("/api/methods", data="{}", content_type=J)
    show("/api/openapi.json", data="{}", content_type=J)
    show("/api/docs", data="{}", content_type=J)
    show("/api/docs", m="get", headers={"accept": "application/json"})
    show("/api/docs", m="get")
    show("/healthz", data="{}", content_type=J)
    show("/api", m="get")
    show("/api/", m="get")
    show("/nope", m="get")
    show("/api/iam/session/whoami/", data="{}", content_type=J)
    show("/api/iam/session/whoami", data="{}", content_type=J, headers={"host":"evil.example:99999x"})
    show("/api/iam/session/whoami", data=b"\xff", content_type=J)
    show("/api/iam/session/whoami", data=b"{\"a\":", content_type=J)
    show("/api/iam/session/whoami", data=b"{\"\":1,\"non_field_errors\":2}", content_type=J)
    show("/api/iam/session/whoami", data=b"\x0c", content_type=J)
    show("/api/iam/session/whoami", data="{}", content_type=J, headers={"cookie":"sessionid="+"a"*32})
    assert 0
