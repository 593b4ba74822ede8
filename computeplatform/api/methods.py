"""A method is a declaration: address, kind, input, output, action, resource, codes, words. Everything that tells
clients about methods (index, OpenAPI document, pages) is generated from the registry here (API-8)."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rest_framework import serializers

from computeplatform.api.calls import Call, Resource, tenant_resource
from computeplatform.api.fields import Shape
from computeplatform.errors import CODES

Kind = Literal["read", "mutation"]
KIB = 1024

Data = dict[str, Any]
Answer = dict[str, Any]
Loader = Callable[[Call, Data], tuple[Resource, Any]]
Handler = Callable[[Call, Data, Any], Answer]

# What any method can answer, whatever it does (API-3, API-12).
SHARED_CODES = (
    "INVALID_INPUT",
    "UNAUTHENTICATED",
    "ACCESS_DENIED",
    "METHOD_NOT_ALLOWED",
    "PAYLOAD_TOO_LARGE",
    "UNSUPPORTED_MEDIA_TYPE",
    "RATE_LIMITED",
    "INTERNAL_ERROR",
    "UNAVAILABLE",
)


@dataclass(frozen=True)
class Replay:
    """How a creating mutation answers a key that it has seen (API-11).

    ``stored_id`` takes the id out of the first answer; ``answer`` renders the stored object, without its secret.
    """

    stored_id: Callable[[Answer], str]
    answer: Callable[[Call, str], Answer]


@dataclass(frozen=True, kw_only=True)
class Method:
    """One RPC method.

    ``action`` None: no decision is asked of IAM. ``load`` finds what is decided on and raises NotFound; without it
    the tenant is. ``decides`` False: the handler sees to the decision itself (create decides on the stored draft).
    """

    service: Literal["compute", "iam"]
    group: str
    name: str
    kind: Kind
    action: str | None
    resource: str
    input: type[Shape]
    output: type[serializers.Serializer[Any]]
    handler: Handler
    load: Loader | None
    decides: bool
    codes: tuple[str, ...]
    replay: Replay | None
    body_limit: int
    module: str
    phase: str

    @property
    def id(self) -> str:
        """``group/method``."""
        return f"{self.group}/{self.name}"

    @property
    def path(self) -> str:
        """The address without its leading slash."""
        return f"api/{self.service}/{self.group}/{self.name}"

    @property
    def description(self) -> str:
        """The handler's docstring: the page of this method. Pages are Markdown, docstrings double their backquotes."""
        return (inspect.getdoc(self.handler) or "").replace("``", "`")

    @property
    def resource_type(self) -> str:
        """What the call itself is decided on, without the items of a list."""
        return self.resource.partition(" ")[0]

    @property
    def authorization(self) -> str:
        """``action @ resource`` for the index."""
        return f"{self.action} @ {self.resource}" if self.action else "none"

    def target(self, call: Call, data: Data) -> tuple[Resource, Any]:
        """What the decision is about, and the loaded object if there is one."""
        return self.load(call, data) if self.load else (tenant_resource(call), None)


_registry: dict[tuple[str, str], Method] = {}


def method(
    address: str,
    *,
    kind: Kind,
    action: str | None,
    resource: str = "compute-tenant",
    input: type[Shape],  # noqa: A002 - the contract's word
    output: type[serializers.Serializer[Any]],
    load: Loader | None = None,
    decides: bool = True,
    codes: tuple[str, ...] = (),
    replay: Replay | None = None,
    body_limit: int = 64 * KIB,
    service: Literal["compute", "iam"] = "compute",
    module: str = "platform",
    phase: str = "v0.1",
) -> Callable[[Handler], Handler]:
    """Declare the decorated function as the method ``group/name``; it gets the call, the input, what was loaded."""

    def declare(handler: Handler) -> Handler:
        group, name = address.split("/")
        unknown = set(codes) - set(CODES)
        if unknown or (service, address) in _registry:
            raise ValueError(f"{service} {address}: declared twice, or with unknown codes {unknown}")
        not_found = ("NOT_FOUND",) if load else ()
        conflict = ("CONFLICT",) if replay or "version" in input().fields else ()
        _registry[service, address] = Method(
            service=service,
            group=group,
            name=name,
            kind=kind,
            action=action,
            resource=resource,
            input=input,
            output=output,
            handler=handler,
            load=load,
            decides=decides,
            codes=tuple(c for c in CODES if c in {*SHARED_CODES, *not_found, *conflict, *codes}),
            replay=replay,
            body_limit=body_limit,
            module=module,
            phase=phase,
        )
        return handler

    return declare


def methods() -> list[Method]:
    """Every declared method, by address."""
    return [_registry[key] for key in sorted(_registry)]


def index() -> list[Mapping[str, str]]:
    """The rows of ``GET /api/methods``."""
    return [
        {
            "method": m.id,
            "service": m.service,
            "path": f"/{m.path}",
            "kind": m.kind,
            "authorization": m.authorization,
            "module": m.module,
            "phase": m.phase,
            "status": "registered",
        }
        for m in methods()
    ]
