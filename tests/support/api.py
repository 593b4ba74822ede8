"""Calling the API in a test: the Django client, the parking wrapper's part, and a check of every answer against the
OpenAPI document."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import jsonschema
from django.test import Client

from computeplatform.api.openapi import document
from computeplatform.clock import compute_now
from computeplatform.parking import WAIT_HEADER, Resume
from reservations import queries, reconcilers
from reservations.operations.admission import admit_pool


@dataclass(frozen=True)
class Answer:
    """What a call answered."""

    status: int
    body: dict[str, Any]
    headers: dict[str, str]

    @property
    def data(self) -> dict[str, Any]:
        """The answer of a call that succeeded."""
        assert self.status == 200, self.body
        return self.body["data"]

    @property
    def error(self) -> dict[str, Any]:
        """The refusal of a call that did not."""
        assert self.status != 200, self.body
        return self.body["error"]

    def refused(self, code: str, **details: Any) -> dict[str, Any]:
        """Assert the code, and the given members of details; returns the error."""
        assert self.error["code"] == code, self.body
        found = self.error.get("details", {})
        assert {k: found.get(k) for k in details} == details, self.body
        return self.error

    def refused_at(self, path: str) -> str:
        """Assert INVALID_INPUT at this field; returns its message."""
        issues = {issue["path"]: issue["message"] for issue in self.refused("INVALID_INPUT")["details"]["issues"]}
        assert path in issues, issues
        return str(issues[path])


@cache
def _answer_schemas() -> dict[str, Any]:
    return document()


@cache
def _validator(path: str, status: int) -> jsonschema.Draft202012Validator:
    described = _answer_schemas()
    responses = described["paths"][path]["post"]["responses"]
    schema = responses[str(status)]["content"]["application/json"]["schema"]
    return jsonschema.Draft202012Validator({**schema, "components": described["components"]})


def admit_all() -> None:
    """What the woken worker does: bring every due draft on."""
    now = compute_now()
    for pool_id in queries.pools_with_open_drafts(now=now, called_before=now):
        admit_pool(pool_id, now=now)


def settle() -> None:
    """What the workers do when they are woken and ticked: admit, place, reconcile."""
    admit_all()
    reconcilers.placement_tick()
    reconcilers.reconcile_tick()


class Api:
    """A caller with one token. ``work`` is what happens while a call is parked (default: its admission); after
    ``looks`` of those its time is up."""

    def __init__(self, token: str, tenant_id: str, *, work: Callable[[], None] = admit_all, looks: int = 1) -> None:
        self.token = token
        self.tenant_id = tenant_id
        self.work = work
        self.looks = looks
        self.client = Client()

    def __call__(self, method: str, *, service: str = "compute", **fields: Any) -> Answer:
        """Call ``group/name``; ``tenantId`` is the caller's own unless it is given."""
        if method != "session/whoami":
            fields = {"tenantId": self.tenant_id} | fields
        return self.raw(f"/api/{service}/{method}", json.dumps(fields))

    def iam(self, method: str, **fields: Any) -> Answer:
        """Call a method of the identity service."""
        return self(method, service="iam", **fields)

    def raw(self, path: str, body: str | bytes, **headers: str) -> Answer:
        """Post a body as it is."""
        resume: Resume | None = None
        for look in range(self.looks + 3):
            response = self._post(path, body, headers, resume)
            if response.status_code != 202:
                answer = Answer(response.status_code, response.json(), dict(response.headers))
                self._check(path, answer)
                return answer
            _, _, note = response.headers[WAIT_HEADER].split(";", 2)
            resume = Resume(expired=look >= self.looks, note=note)
            self.work()
        raise AssertionError(f"{path} goes on waiting after its time was up")

    def _post(self, path: str, body: str | bytes, headers: dict[str, str], resume: Resume | None) -> Any:
        given = {"authorization": f"Bearer {self.token}"} | {k.replace("_", "-"): v for k, v in headers.items()}
        kept = {k: v for k, v in given.items() if v is not None}
        scope: dict[str, Any] = {"asgi.scope": {"compute.resume": resume}}
        return self.client.post(path, data=body, content_type="application/json", headers=kept, **scope)

    @staticmethod
    def _check(path: str, answer: Answer) -> None:
        assert answer.headers["X-Request-Id"]
        if path in _answer_schemas()["paths"]:
            _validator(path, answer.status).validate(answer.body)
