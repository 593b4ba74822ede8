"""The request body: JSON, within the method's limit, read strictly."""

from collections.abc import Mapping
from typing import IO, Any

from rest_framework.parsers import BaseParser

from computeplatform.api.strict_json import parse_object
from computeplatform.errors import PayloadTooLarge


class StrictJSONParser(BaseParser):
    """Reads at most the method's ``body_limit`` bytes, then parses as API-4 says."""

    media_type = "application/json"

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        limit = (parser_context or {})["view"].method.body_limit
        body = stream.read(limit + 1)
        if len(body) > limit:
            raise PayloadTooLarge(f"The body is over {limit} bytes.", details={"maxBytes": limit})
        return parse_object(body)
