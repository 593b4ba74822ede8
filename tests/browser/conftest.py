"""A browser on a whole installation. Whatever a test looks at, the browser has nothing to complain about."""

import os
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Page,
    Request,
    Response,
    StorageState,
    ViewportSize,
    sync_playwright,
)

from tests.journeys.installation import Installation

# Headless, for root too, and without calls to its maker.
OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
SECONDS = 15
FAR = 4_102_444_800_000  # 2100-01-01


@pytest.fixture(scope="session")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """Seeded and running, with a row of everything that the seed does not make."""
    installed = Installation(tmp_path_factory.mktemp("installation"))
    installed.ready()
    platform, acme = installed.platform(), installed.caller("acme", "admin")
    platform("pools/create", idempotencyKey="spare", name="spare", region="x", gpuModel="x", deviceClass="gpu")
    text = 'forbid (principal, action == Compute::Action::"compute:pools:create", resource);'
    assert acme.post("policies/put", service="iam", name="rules", text=text).status_code == 200
    installed.rows(
        "INSERT INTO fleet_taint (node_id, key, effect, reason, subjects, since, until)"
        " SELECT id, 'Inspected', 'NoSchedule', 'looked at', '{}', 1, 2 FROM fleet_node LIMIT 1 RETURNING id"
    )
    installed.rows("INSERT INTO computeplatform_servicegap (began_at, ended_at) VALUES (1, 2) RETURNING id")
    node_id = platform("nodes/list", limit=1)["nodes"][0]["id"]
    platform("nodes/maintenance", nodeId=node_id, **{"from": FAR, "until": FAR + 1})
    delegate(installed)
    yield installed
    installed.end()


@dataclass(frozen=True)
class Delegated:
    """An agent of acme's user, whose request in a session waits to be confirmed; ``asked`` is the request."""

    agent_id: str
    delegation_id: str
    session_id: str
    confirmation_id: str
    reservation_id: str
    tokens: tuple[str, str]
    asked: dict[str, Any]


def delegate(installed: Installation, name: str = "bot") -> Delegated:
    """Such an agent, made over the API."""
    create, user = "compute:reservations:create", installed.caller("acme")
    agent = user("agents/create", service="iam", name=name)["agent"]["id"]
    key = user("keys/create", service="iam", principalId=agent)["token"]
    grant = {"agentId": agent, "scopes": ["compute:*"], "confirm": [create]}
    delegation = user("delegations/grant", service="iam", **grant)["delegation"]["id"]
    assumed = installed.signed_in("acme", key)("delegations/assume", service="iam", delegationId=delegation)
    wanted = {"poolId": installed.pool_id, "devices": {"class": "gpu", "count": 1}, "durationSeconds": 60}
    asked = wanted | {"idempotencyKey": uuid.uuid4().hex}
    answer = installed.signed_in("acme", assumed["token"]).post("reservations/create", **asked).json()
    told = answer["error"]["details"]
    tokens = (key, assumed["token"])
    session_id = assumed["session"]["id"]
    return Delegated(agent, delegation, session_id, told["confirmationId"], told["reservationId"], tokens, asked)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium, as the machine has it."""
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.fail("These tests need chromium: install it, or name its path in CHROMIUM.")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=OPTIONS)
        yield browser
        browser.close()


@dataclass
class Complaints:
    """What a browser reports that its user does not see. ``expected`` are statuses that a test asks for."""

    base_url: str
    found: list[str] = field(default_factory=list)
    expected: set[int] = field(default_factory=set)

    def watch(self, page: Page) -> None:
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.found.append(f"{page.url}: {error}"))
        page.on("request", self._request)
        page.on("response", self._response)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type == "error" and not (self.expected and "Failed to load resource" in message.text):
            self.found.append(f"{message.location.get('url')}: {message.text}")

    def _request(self, request: Request) -> None:
        if not request.url.startswith((f"{self.base_url}/", "data:")):
            self.found.append(f"outside: {request.url}")

    def _response(self, response: Response) -> None:
        if response.status >= 400 and response.status not in self.expected:
            self.found.append(f"{response.status}: {response.url}")


@pytest.fixture
def complaints(installation: Installation) -> Iterator[Complaints]:
    """There are none when the test is over: no error on the console, no refused script, no request to elsewhere."""
    complaints = Complaints(installation.base_url)
    yield complaints
    assert complaints.found == []


def open_page(browser: Browser, complaints: Complaints, state: StorageState | None = None) -> Page:
    """A browser of its own, signed in with what another has kept, if that is given."""
    size: ViewportSize = {"width": 1500, "height": 1000}
    context = browser.new_context(base_url=complaints.base_url, viewport=size, storage_state=state)
    context.set_default_timeout(SECONDS * 1000)
    page = context.new_page()
    complaints.watch(page)
    return page


def sign_in(page: Page, username: str, password: str) -> None:
    """Through the form, from wherever one is."""
    page.goto("/admin/")
    page.get_by_label("Username").fill(username)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_load_state()


@pytest.fixture
def page(browser: Browser, complaints: Complaints) -> Iterator[Page]:
    """A fresh browser that nobody has signed in with."""
    page = open_page(browser, complaints)
    yield page
    page.context.close()


@pytest.fixture(scope="session")
def signed_in(browser: Browser, installation: Installation) -> StorageState:
    """What a browser keeps of the seed's operator, once signed in."""
    who, complaints = installation.credentials["operator"], Complaints(installation.base_url)
    page = open_page(browser, complaints)
    sign_in(page, who["username"], who["password"])
    state = page.context.storage_state()
    page.context.close()
    assert complaints.found == []
    return state


@pytest.fixture
def operator(browser: Browser, complaints: Complaints, signed_in: StorageState) -> Iterator[Page]:
    """The seed's operator, signed in, at the home page."""
    page = open_page(browser, complaints, signed_in)
    page.goto("/admin/")
    yield page
    page.context.close()
