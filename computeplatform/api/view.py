"""One DRF view serves every method: authenticate, parse, screen, load, decide, call the handler."""

import time
from dataclasses import replace
from typing import Any, ClassVar, cast

from django.http import QueryDict
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from computeplatform.api.authentication import BearerAuthentication, SignedIn
from computeplatform.api.calls import Call, CallContext, screen_port
from computeplatform.api.envelope import request_id_of
from computeplatform.api.fields import read_input
from computeplatform.api.idempotency import answer_once
from computeplatform.api.methods import Answer, Method
from computeplatform.api.parsers import StrictJSONParser
from computeplatform.api.throttling import CallLimits
from computeplatform.errors import UnsupportedMediaType
from computeplatform.metrics import CALL_SECONDS, CALLS
from computeplatform.parking import WAIT_HEADER, Park, resume_of, wait_briefly


class AlwaysJSON(BaseContentNegotiation):
    """The answer is JSON whatever ``Accept`` says: its absence, or a browser's, must not change what a call does."""

    def select_parser(self, request: Request, parsers: Any) -> Any:
        given = request.content_type.partition(";")[0].strip().lower()
        return next((parser for parser in parsers if parser.media_type == given), None)

    def select_renderer(self, request: Request, renderers: Any, format_suffix: str | None = None) -> Any:
        return renderers[0], renderers[0].media_type


class MethodView(APIView):
    """``POST /api/<service>/<group>/<method>``; a subclass per method carries its declaration."""

    method: ClassVar[Method]

    authentication_classes = (BearerAuthentication,)
    permission_classes = ()
    throttle_classes = (CallLimits,)
    parser_classes = (StrictJSONParser,)
    renderer_classes = (JSONRenderer,)
    content_negotiation_class = AlwaysJSON
    http_method_names = ["post"]
    schema = None

    def dispatch(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """Count the call and the time that a thread worked on it."""
        began = time.perf_counter()
        response = super().dispatch(request, *args, **kwargs)
        name = f"{self.method.service}/{self.method.id}"
        CALL_SECONDS.labels(name).observe(time.perf_counter() - began)
        if WAIT_HEADER not in response:
            CALLS.labels(name, cast("Response", response).data.get("error", {}).get("code", "OK")).inc()
        return response

    def post(self, request: Request) -> Response:
        """Answer ``{"data": …}``; every refusal is raised and mapped by ``envelope.refuse``."""
        if isinstance(request.data, QueryDict):
            # DRF makes one of an empty form without asking for a parser.
            raise UnsupportedMediaType
        data = read_input(self.method.input, cast("dict[str, Any]", request.data))
        call = self._call(request, data)
        try:
            answer = self._answer_soon(call, data)
        except Park as park:
            if call.resume is not None and call.resume.expired:
                raise RuntimeError("a call whose time is up must answer") from park
            # The wrapper around us holds the call and asks again; no thread waits here (see ``parking``).
            return Response({}, status=202, headers={WAIT_HEADER: park.header})
        return Response({"data": answer})

    def _call(self, request: Request, data: dict[str, Any]) -> Call:
        signed_in = cast("SignedIn", request.auth)
        caller = signed_in.caller
        tenant_id = data.get("tenantId", caller.tenant_id)
        context = CallContext(
            time=signed_in.now, source_ip=request.META.get("REMOTE_ADDR"), request_id=request_id_of(request)
        )
        if action := self.method.action:
            kind = self.method.resource_type
            screen_port()(caller, action, resource_type=kind, tenant_id=tenant_id, context=context)
        return Call(caller, tenant_id, context, signed_in.now, resume_of(request.META))

    def _answer_soon(self, call: Call, data: dict[str, Any]) -> Answer:
        """The answer, waited for on this thread if it comes within moments; raises Park if it does not."""
        looked = time.monotonic()
        try:
            return self._answer(call, data)
        except Park as park:
            resume = None if call.resume else wait_briefly(self.request.META, park, since=looked)
            if resume is None:
                raise
        return self._answer(replace(call, resume=resume), data)

    def _answer(self, call: Call, data: dict[str, Any]) -> Answer:
        method = self.method
        if not method.decides:
            return method.handler(call, data, None)
        resource, loaded = method.target(call, data)
        # A parked call was decided and counted when it came: later looks only ask whether it would still be allowed.
        if method.action and not (call.resume and call.permits(method.action, resource)):
            call.decide(method.action, resource)
        if method.replay and "idempotencyKey" in data:
            return answer_once(method, method.replay, call, data, loaded)
        return method.handler(call, data, loaded)


def view_of(method: Method) -> Any:
    """The Django view of one method."""
    name = "".join(part.title() for part in (method.service, method.group, method.name))
    view = cast("type[MethodView]", type(f"{name}View", (MethodView,), {"method": method}))
    return view.as_view()
