"""Where a call comes from: the address of its client, behind whatever proxies of ours (IAM-API §5, API-12)."""

import ipaddress
import re
from collections.abc import Callable, Sequence

from django.conf import settings
from django.http import HttpRequest, HttpResponse

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# Some proxies add the port: ``192.0.2.7:4711``, ``[2001:db8::7]:4711``.
_WITH_PORT = re.compile(r"\[([^\]]+)\](?::\d+)?|([0-9.]+):\d+")


def client_address(peer: str | None, forwarded: str, trusted: Sequence[Network]) -> str | None:
    """The client's address, of the one who connected to us and of ``X-Forwarded-For``.

    Every proxy appends whom it was called by, so what stands right of the first address that is not one of our proxies
    was written by them, and what stands left of it by anybody. A header that cannot be read is not believed at all.
    """
    found = read_address(peer)
    if found is None or not _is_among(found, trusted):
        return peer
    client = found
    for entry in reversed(forwarded.split(",") if forwarded else []):
        named = read_address(entry)
        if named is None:
            return peer
        client = named
        if not _is_among(client, trusted):
            break
    return str(client)


def read_address(text: str | None) -> Address | None:
    """An address, without port and zone; an IPv4 one that is wrapped in an IPv6 one is unwrapped. None: it is none."""
    text = (text or "").strip()
    if match := _WITH_PORT.fullmatch(text):
        text = match[1] or match[2]
    try:
        found = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


def network_of(address: str | None) -> str:
    """As whom an address is counted: an IPv6 client usually has a /64 to choose from. All unknown ones are one."""
    found = read_address(address)
    if found is None:
        return "unknown"
    return str(ipaddress.ip_network((found, 64), strict=False)) if found.version == 6 else str(found)


def client_addresses(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Middleware: below it ``REMOTE_ADDR`` is the client, whichever of the trusted proxies the call came through."""

    def middleware(request: HttpRequest) -> HttpResponse:
        meta = request.META
        if settings.TRUSTED_PROXIES and (
            client := client_address(
                meta.get("REMOTE_ADDR"), meta.get("HTTP_X_FORWARDED_FOR", ""), settings.TRUSTED_PROXIES
            )
        ):
            meta["REMOTE_ADDR"] = client
        return get_response(request)

    return middleware


def _is_among(address: Address, networks: Sequence[Network]) -> bool:
    return any(address in network for network in networks)
