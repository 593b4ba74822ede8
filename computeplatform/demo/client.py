"""A client of the API as the demo needs it: who calls, in which tenant, and what was answered."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

import httpx

T = TypeVar("T")

# Longer than any answer may be held; a server that says nothing for so long has failed.
ANSWER_SECONDS = 45.0
LOOK_SECONDS = 0.05  # between two looks at something that is waited for


class Deviation(Exception):
    """The platform did something else than the story says; the text tells what."""


class Refused(Exception):
    """The API refused a call."""

    def __init__(self, method: str, status: int, error: dict[str, Any]) -> None:
        self.method, self.status, self.error = method, status, error
        super().__init__(f"{method} was refused: {status} {error['code']}: {error['message']}")


class Api:
    """A server's address, and the callers that talk to it."""

    def __init__(self, base_url: str) -> None:
        # No proxy: the server of a demo is on this machine, or in the same network.
        self._http = httpx.Client(base_url=base_url, timeout=ANSWER_SECONDS, trust_env=False)

    def close(self) -> None:
        """Hang up."""
        self._http.close()

    def ready(self) -> bool:
        """Whether the server answers and says that it is ready."""
        try:
            return self._http.get("/readyz").is_success
        except httpx.TransportError:
            return False

    def post(self, path: str, token: str, fields: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """One call; its status and body. Raises Deviation if it was not answered in the API's form."""
        try:
            answer = self._http.post(path, json=fields, headers={"Authorization": f"Bearer {token}"})
            body = answer.json()
        except (httpx.TransportError, ValueError) as error:
            raise Deviation(f"POST {path} was not answered: {error!r}") from error
        return answer.status_code, body


class Caller:
    """Somebody with a token, called by a name in the story."""

    def __init__(self, api: Api, name: str, tenant_id: str, token: str) -> None:
        self.name, self.tenant_id = name, tenant_id
        self._api, self._token = api, token

    def __call__(self, method: str, **fields: Any) -> Any:
        """Call ``group/method`` in the caller's own tenant; raises Refused."""
        return self._post("compute", method, {"tenantId": self.tenant_id, **fields})

    def iam(self, method: str, **fields: Any) -> Any:
        """Call a method of the identity service; raises Refused."""
        return self._post("iam", method, {"tenantId": self.tenant_id, **fields})

    def whoami(self) -> Any:
        """Whom the token makes the caller: the one method that takes no tenant."""
        return self._post("iam", "session/whoami", {})

    def refused(self, method: str, code: str, **fields: Any) -> Refused:
        """Call a method that is to be refused with this code; raises Deviation if it is not."""
        try:
            answer = self(method, **fields)
        except Refused as refusal:
            if refusal.error["code"] != code:
                raise Deviation(f"{refusal}; the story expects {code}") from refusal
            return refusal
        raise Deviation(f"{method} was to be refused with {code}, and answered {answer}")

    def _post(self, service: str, method: str, fields: dict[str, Any]) -> Any:
        status, body = self._api.post(f"/api/{service}/{method}", self._token, fields)
        if "error" in body:
            raise Refused(method, status, body["error"])
        return body["data"]


def until(look: Callable[[], T], good: Callable[[T], bool], *, seconds: float, what: str) -> T:
    """Look again and again until what is seen is good; raises Deviation with the last sight after ``seconds``."""
    late = time.monotonic() + seconds
    while True:
        seen = look()
        if good(seen):
            return seen
        if time.monotonic() > late:
            raise Deviation(f"after {seconds:.0f} s still not: {what}. Last seen: {seen}")
        time.sleep(LOOK_SECONDS)
