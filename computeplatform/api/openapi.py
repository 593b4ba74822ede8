"""The OpenAPI document, generated from the declarations by drf-spectacular (API-8)."""

from typing import Any, cast

from django.urls import path
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import ResolvedComponent

from computeplatform.api.methods import Method, methods
from computeplatform.api.view import MethodView, view_of
from computeplatform.errors import CODES


class MethodSchema(AutoSchema):
    """Describes one method from its declaration."""

    @property
    def declared(self) -> Method:
        return cast("MethodView", self.view).method

    def get_operation_id(self) -> str:
        m = self.declared
        return f"{m.service}_{m.group}_{m.name}"

    def get_tags(self) -> list[str]:
        return [f"{self.declared.service}/{self.declared.group}"]

    def get_summary(self) -> str:
        return self.declared.description.partition("\n\n")[0].replace("\n", " ")

    def get_description(self) -> str:  # type: ignore[override]
        m = self.declared
        facts = f"Kind: {m.kind}. Authorization: `{m.authorization}`. Module: {m.module}. Phase: {m.phase}."
        return f"{m.description}\n\n{facts}"

    def get_auth(self) -> list[dict[str, Any]]:
        return [{"bearer": []}]

    def get_request_serializer(self) -> Any:
        return self.declared.input

    def get_response_serializers(self) -> Any:
        return self.declared.output

    def get_operation(self, *args: Any, **kwargs: Any) -> dict[str, Any] | None:
        operation = super().get_operation(*args, **kwargs)
        if operation is None:
            return None
        m = self.declared
        operation["x-action"] = m.action
        operation["x-resource"] = m.resource
        operation["x-codes"] = list(m.codes)
        success = operation["responses"]["200"]["content"]["application/json"]
        success["schema"] = {
            "type": "object",
            "properties": {"data": success["schema"]},
            "required": ["data"],
            "additionalProperties": False,
        }
        by_status: dict[int, list[str]] = {}
        for code in m.codes:
            by_status.setdefault(CODES[code].status, []).append(code)
        for status, codes in sorted(by_status.items()):
            operation["responses"][str(status)] = {
                "description": ", ".join(f"{code}: {CODES[code].meaning}" for code in codes),
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
            }
        return operation

    def resolve_serializer(self, serializer: Any, direction: Any, *rest: Any, **named: Any) -> ResolvedComponent:
        component = super().resolve_serializer(serializer, direction, *rest, **named)
        if component.schema and component.schema.get("type") == "object" and not _ignores_unknown(serializer):
            component.schema["additionalProperties"] = False
        return component

    def get_serializer_name(self, serializer: Any, direction: Any) -> str:
        # Every module may have its ListInput; a component's name must tell them apart.
        cls = serializer if isinstance(serializer, type) else type(serializer)
        app, *_, module = cls.__module__.split(".")
        place = "" if module == "shapes" else module.title().replace("_", "")
        return f"{app.title()}{place}{cls.__name__}"


def _ignores_unknown(serializer: Any) -> bool:
    return bool(getattr(serializer, "ignore_unknown", False))


MethodView.schema = MethodSchema()  # type: ignore[assignment]

ERROR_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["error"],
    "additionalProperties": False,
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message", "requestId", "fix", "docs"],
            "additionalProperties": False,
            "properties": {
                "code": {"type": "string", "enum": list(CODES)},
                "message": {"type": "string"},
                "details": {"type": "object", "additionalProperties": True},
                "retryAfterSeconds": {"type": "integer", "minimum": 1},
                "requestId": {"type": "string"},
                "fix": {"type": "string"},
                "docs": {"type": "string"},
            },
        }
    },
}


def finish(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Spectacular's postprocessing: what belongs to the document as a whole."""
    components = result.setdefault("components", {})
    components.setdefault("schemas", {})["Error"] = ERROR_SCHEMA
    components["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
    return result


def document() -> dict[str, Any]:
    """The whole document, from the registry."""
    patterns = [path(m.path, view_of(m)) for m in methods()]
    generator = SchemaGenerator(patterns=patterns)  # type: ignore[no-untyped-call]
    return dict(generator.get_schema(request=None, public=True))  # type: ignore[no-untyped-call]


__all__ = ["document", "finish"]
