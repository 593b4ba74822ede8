"""Whose address a call has, with and without proxies in front (IAM-API §5: ``sourceIp``; API-12)."""

import ipaddress
import json
from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from hypothesis import given
from hypothesis import strategies as st

from computeplatform import environment
from computeplatform.addresses import client_address, network_of
from iam.models import Decision
from tests.support.api import Answer, Api
from tests.support.world import World

LIST = "/api/compute/pools/list"
TRUSTED = [ipaddress.ip_network(text) for text in ("10.0.0.0/8", "192.0.2.1/32", "fd00::/8")]


@pytest.mark.clause("API-12", "the address behind proxies")
@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        # No proxy of ours connected: what the header says is what anybody says.
        ("203.0.113.9", "", "203.0.113.9"),
        ("203.0.113.9", "198.51.100.7", "203.0.113.9"),
        ("203.0.113.9", "10.0.0.1", "203.0.113.9"),
        # One did, and appended whom it was called by.
        ("10.0.0.1", "198.51.100.7", "198.51.100.7"),
        ("10.0.0.1", "6.6.6.6, 198.51.100.7", "198.51.100.7"),
        ("10.0.0.1", "6.6.6.6,10.9.9.9 , 198.51.100.7,10.0.0.2", "198.51.100.7"),
        ("10.0.0.1", "nonsense, 198.51.100.7, 192.0.2.1", "198.51.100.7"),
        ("192.0.2.1", "198.51.100.7", "198.51.100.7"),
        ("192.0.2.2", "198.51.100.7", "192.0.2.2"),
        # Nobody but proxies: the farthest that is known.
        ("10.0.0.1", "10.0.0.3, 10.0.0.2", "10.0.0.3"),
        ("10.0.0.1", "", "10.0.0.1"),
        # What cannot be read is not believed.
        ("10.0.0.1", "nonsense", "10.0.0.1"),
        ("10.0.0.1", "198.51.100.7, unknown", "10.0.0.1"),
        ("10.0.0.1", "198.51.100.7,", "10.0.0.1"),
        ("10.0.0.1", "198.51.100.7, 10.0.0.2, _hidden", "10.0.0.1"),
        ("10.0.0.1", "198.51.100.7, _hidden, 10.0.0.2", "10.0.0.1"),
        ("10.0.0.1", "300.1.1.1", "10.0.0.1"),
        # IPv6, ports, zones, IPv4 in IPv6.
        ("fd00::1", "2001:db8::7", "2001:db8::7"),
        ("fd00::1", "[2001:db8::7]:443", "2001:db8::7"),
        ("fd00::1%eth0", "2001:DB8:0::7", "2001:db8::7"),
        ("10.0.0.1", "198.51.100.7:4711", "198.51.100.7"),
        ("::ffff:10.0.0.1", "::ffff:198.51.100.7", "198.51.100.7"),
        ("", "198.51.100.7", ""),
        (None, "198.51.100.7", None),
    ],
)
def test_the_client_is_the_right_most_address_that_is_no_proxy_of_ours(
    peer: str | None, forwarded: str, client: str | None
):
    assert client_address(peer, forwarded, TRUSTED) == client


@given(said=st.text(max_size=40))
def test_whatever_a_client_says_its_address_is_the_one_the_proxy_saw(said: str):
    assert client_address("10.0.0.1", f"{said}, 198.51.100.7", TRUSTED) == "198.51.100.7"


@pytest.mark.clause("API-12", "an IPv6 address counts as its /64")
def test_as_whom_an_address_counts():
    assert network_of("198.51.100.7") == "198.51.100.7"
    assert network_of("2001:db8:1:2:3:4:5:6") == network_of("2001:db8:1:2::9") == "2001:db8:1:2::/64"
    assert network_of("2001:db8:1:3::9") == "2001:db8:1:3::/64"
    assert network_of("::ffff:198.51.100.7") == "198.51.100.7"
    assert network_of(None) == network_of("") == network_of("nonsense") == "unknown"


def from_proxy(token: str, forwarded: str, peer: str = "10.0.0.1") -> Answer:
    api = Api(token, "acme")
    api.client.defaults["REMOTE_ADDR"] = peer
    return api.raw(LIST, json.dumps({"tenantId": "acme"}), x_forwarded_for=forwarded)


@pytest.mark.clause("API-12", "the address behind proxies")
def test_policies_and_the_audit_log_see_the_client(world: World, settings: Any):
    text = (
        'forbid (principal, action == Compute::Action::"compute:pools:read", resource)'
        ' when { context has sourceIp && !context.sourceIp.isInRange(ip("198.51.100.0/24")) };'
    )
    world.acme.api.iam("policies/put", name="office", text=text).data  # noqa: B018
    settings.TRUSTED_PROXIES = TRUSTED
    assert from_proxy(world.ann.api.token, "6.6.6.6, 198.51.100.7").status == 200
    for forwarded, peer in (("198.51.100.7, 203.0.113.9", "10.0.0.1"), ("198.51.100.7", "203.0.113.9")):
        answer = from_proxy(world.ann.api.token, forwarded, peer)
        answer.refused("ACCESS_DENIED")
        entry = Decision.objects.get(request_id=answer.error["requestId"])
        assert entry.context["sourceIp"] == "203.0.113.9"


@pytest.mark.clause("API-12", "the address behind proxies")
def test_no_proxy_is_trusted_unless_it_is_named(world: World, settings: Any):
    assert settings.TRUSTED_PROXIES == []
    settings.COMPUTE_LIMITS = settings.COMPUTE_LIMITS | {"address": 1}
    from_proxy("nonsense", "198.51.100.7").refused("UNAUTHENTICATED")
    from_proxy("nonsense", "198.51.100.8").refused("RATE_LIMITED")
    settings.TRUSTED_PROXIES = TRUSTED
    from_proxy("nonsense", "198.51.100.7").refused("UNAUTHENTICATED")
    from_proxy("nonsense", "6.6.6.6, 198.51.100.7").refused("RATE_LIMITED")
    from_proxy("nonsense", "198.51.100.8").refused("UNAUTHENTICATED")


def test_the_log_names_the_client_and_not_what_a_header_says(
    world: World, settings: Any, log_lines: Callable[[], list[dict[str, Any]]]
):
    settings.TRUSTED_PROXIES = TRUSTED
    api = Api(world.ann.api.token, "acme")
    api.client.defaults["REMOTE_ADDR"] = "10.0.0.1"
    body = json.dumps({"tenantId": "acme"})
    api.raw(LIST, body, x_forwarded_for="6.6.6.6, 198.51.100.7", x_real_ip="6.6.6.6", forwarded="for=6.6.6.6")
    assert {line["ip"] for line in log_lines() if line.get("request") == f"POST {LIST}"} == {"198.51.100.7"}


def test_what_is_no_network_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TRUSTED_PROXIES", "10.0.0.0/8, 192.0.2.1,fd00::/8")
    assert environment.networks("TRUSTED_PROXIES") == TRUSTED
    monkeypatch.setenv("TRUSTED_PROXIES", "")
    assert environment.networks("TRUSTED_PROXIES") == []
    for wrong in ("10.0.0.1/8", "proxy.internal", "10.0.0.0/33"):
        monkeypatch.setenv("TRUSTED_PROXIES", wrong)
        with pytest.raises(ImproperlyConfigured, match="TRUSTED_PROXIES"):
            environment.networks("TRUSTED_PROXIES")
