"""What an operator does in the admin, with a real browser, seen again through the API (OPS-1, OPS-2)."""

import re
import uuid
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from computeplatform.home import SIDEBAR
from tests.browser.conftest import Complaints, sign_in
from tests.journeys.installation import Caller, Installation, until

pytestmark = pytest.mark.browser


@pytest.fixture
def ann(installation: Installation) -> Iterator[Caller]:
    """A reserver of acme; nothing of hers is left when the test is over."""
    caller = installation.caller("acme")
    yield caller
    for left in caller("reservations/list", state=["pending", "placed", "binding", "active"])["reservations"]:
        caller("reservations/release", reservationId=left["id"])


def reserve(caller: Caller, pool_id: str, gpus: int, goal: str, **changed: Any) -> str:
    """A reservation that has come to this state."""
    request = {"poolId": pool_id, "devices": {"class": "gpu", "count": gpus}, "durationSeconds": 3600} | changed
    made = caller("reservations/create", idempotencyKey=uuid.uuid4().hex, **request)["reservation"]["id"]
    caller.follow(made, goal)
    return str(made)


def search(page: Page, words: str) -> None:
    """Type into the list's search field."""
    page.locator("#searchbar").fill(words)
    page.locator("#searchbar").press("Enter")
    page.wait_for_load_state()


def press(page: Page, act: str) -> None:
    """Choose an act on an object's page. Its name is read with the name of its icon, so it is found by its address."""
    page.locator(f'#main a[href$="/{act}/"]').click()


def open_reservation(page: Page, reservation_id: str) -> None:
    """Find it as an operator would: by its id, in the list."""
    page.goto("/admin/reservations/reservation/")
    search(page, reservation_id)
    page.locator("#result_list").get_by_role("link", name=reservation_id).click()
    expect(page).to_have_title(re.compile(reservation_id))


def shows(page: Page, name: str, value: str) -> None:
    """An object's page shows this value beside this label."""
    row = page.locator(".field-row", has=page.get_by_text(name, exact=True))
    expect(row).to_contain_text(value, ignore_case=True)


@pytest.mark.clause("OPS-1", "operators sign in and out")
def test_signing_in_and_out(page: Page, installation: Installation) -> None:
    who = installation.credentials["operator"]
    sign_in(page, who["username"], "not the password")
    expect(page.get_by_text("Please enter the correct username and password")).to_be_visible()
    sign_in(page, who["username"], who["password"])
    expect(page).to_have_url(f"{installation.base_url}/admin/")
    expect(page.get_by_text("You act as operator")).to_be_visible()
    expect(page.get_by_text("of 32", exact=False)).to_be_visible()
    page.get_by_text("operator", exact=True).first.click()
    page.get_by_role("button", name="Log out").click()
    page.wait_for_load_state()
    page.goto("/admin/fleet/node/")
    expect(page.get_by_label("Password")).to_be_visible()


@pytest.mark.clause("OPS-1", "every model's pages work in a browser")
def test_every_page_opens_without_a_complaint(operator: Page, installation: Installation, ann: Caller) -> None:
    active = reserve(ann, installation.pool_id, 2, "active", binding="node")
    down = "INSERT INTO reservations_downtime (reservation_id, began_at, ended_at) VALUES (%s, 1, 2) RETURNING id"
    installation.rows(down, active)
    for group, items in SIDEBAR.items():
        for title, _, _ in items:
            operator.locator(f'#nav-sidebar-apps a:has(span:text-is("{title}"))').click()
            if title == "Decisions to be sealed":  # within seconds they are
                expect(operator.get_by_text("results", exact=False).first).to_be_visible()
                continue
            first = operator.locator("#result_list tbody th a").first
            expect(first, f"{group}: {title}").to_be_visible()
            first.click()
            expect(operator.get_by_role("link", name="Close"), f"{group}: {title}").to_be_visible()


@pytest.mark.clause("OPS-1", "searched and filtered")
def test_search_and_filters(operator: Page, installation: Installation, ann: Caller) -> None:
    active = reserve(ann, installation.pool_id, 1, "active", name="needle")
    waits = reserve(ann, installation.pool_id, 20, "pending")
    rows = operator.locator("#result_list tbody tr")
    operator.goto("/admin/reservations/reservation/")
    expect(rows.filter(has_text=active)).to_have_count(1)
    search(operator, "needle")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text(active)
    operator.goto("/admin/reservations/reservation/")
    operator.locator("#changelist a", has_text="Filters").first.click()
    operator.get_by_role("link", name="pending", exact=True).click()
    expect(rows.filter(has_text=waits)).to_have_count(1)
    expect(rows.filter(has_text=active)).to_have_count(0)


@pytest.mark.clause("OPS-1", "release, seen through the API")
@pytest.mark.clause("OPS-2", "asked first")
def test_release_asks_and_then_ends_it(operator: Page, installation: Installation, ann: Caller) -> None:
    mine = reserve(ann, installation.pool_id, 3, "active")
    open_reservation(operator, mine)
    shows(operator, "State", "active")
    press(operator, "release")
    expect(operator.get_by_text("is released now: its workloads lose 3 gpu")).to_be_visible()
    operator.get_by_role("link", name="Go back").click()
    assert ann.state_of(mine) == "active"

    press(operator, "release")
    operator.get_by_label("Reason").fill("the rack burns")
    operator.get_by_role("button", name="Release").click()
    expect(operator.get_by_text(f"{mine}: released")).to_be_visible()
    shows(operator, "State", "released")
    seen = ann.get(mine)["reservation"]
    assert (seen["state"], seen["reason"]) == ("released", "release")

    history = operator.locator("[data-table=History] tbody tr").first
    expect(history).to_contain_text("reservation.released")
    expect(history).to_contain_text("operator")
    history.get_by_role("link").last.click()
    expect(operator.locator("#result_list tbody tr")).to_contain_text(f"reservations/release {mine} of acme")
    acme = installation.caller("acme", "admin")
    until(lambda: acme.types_of(mine), lambda types: types[-1:] == ["released"])


@pytest.mark.clause("OPS-1", "cancel of several, seen through the API")
def test_cancelling_several_tells_of_each(operator: Page, installation: Installation, ann: Caller) -> None:
    waiting = [reserve(ann, installation.pool_id, 20, "pending") for _ in range(2)]
    running = reserve(ann, installation.pool_id, 1, "active")
    operator.goto("/admin/reservations/reservation/?tenant_id=acme")
    for one in [*waiting, running]:
        operator.locator("#result_list tr", has_text=one).locator("input.action-select").check()
    operator.locator("select[name=action]").select_option("cancel_selected")
    operator.get_by_role("button", name="Run").click()
    expect(operator.get_by_text("is refused: it has started; release ends it")).to_be_visible()
    operator.get_by_label("Reason").fill("no longer needed")
    operator.get_by_role("button", name="Cancel all 3").click()
    expect(operator.get_by_text(f"{running}: The reservation is active")).to_be_visible()
    expect(operator.get_by_text(": cancelled")).to_be_visible()
    assert [ann.state_of(one) for one in [*waiting, running]] == ["cancelled", "cancelled", "active"]


@pytest.mark.clause("OPS-1", "cordon and uncordon, seen through the API")
def test_a_node_is_cordoned_and_uncordoned(operator: Page, installation: Installation) -> None:
    platform = installation.platform()
    node = platform("nodes/list", poolId=installation.pool_id)["nodes"][0]
    operator.goto("/admin/fleet/node/")
    operator.locator("#result_list").get_by_role("link", name=node["name"], exact=True).click()
    for act, cordoned in (("cordon", True), ("uncordon", False)):
        press(operator, act)
        operator.get_by_label("Reason").fill("fan")
        operator.get_by_role("button", name=act, exact=False).click()
        expect(operator.locator(".field-row", has_text="State").get_by_text("cordoned")).to_have_count(int(cordoned))
        assert platform("nodes/get", nodeId=node["id"])["node"]["cordoned"] is cordoned


@pytest.mark.clause("OPS-1", "without a principal one looks and does not act")
def test_an_onlooker_cannot_act(page: Page, installation: Installation, ann: Caller, complaints: Complaints) -> None:
    password = uuid.uuid4().hex
    installation.environment["DJANGO_SUPERUSER_PASSWORD"] = password
    made = installation.manage("createsuperuser", "--noinput", "--username=eve", "--email=eve@example.org")
    assert made.returncode == 0, made.stderr
    mine = reserve(ann, installation.pool_id, 1, "active")
    sign_in(page, "eve", password)
    expect(page.get_by_text("You can look, but not act")).to_be_visible()
    open_reservation(page, mine)
    expect(page.locator('#main a[href*="/history/"]')).to_be_visible()
    expect(page.locator('a[href$="/release/"]')).to_have_count(0)
    complaints.expected.add(403)
    answer = page.goto(f"/admin/reservations/reservation/{quote(mine.replace('_', '_5F'))}/release/")
    assert answer is not None
    assert answer.status == 403
    assert ann.state_of(mine) == "active"


def test_a_browser_that_has_something_to_complain_about_fails_a_test(operator: Page, complaints: Complaints) -> None:
    """So that the silence of the others means something."""
    operator.evaluate("document.body.append(Object.assign(document.createElement('script'), {textContent: 'let x'}))")
    operator.evaluate("document.body.append(Object.assign(new Image(), {src: 'http://127.0.0.1:9/x.png'}))")
    operator.evaluate("fetch('/admin/no-such-page/')")
    operator.wait_for_load_state("networkidle")
    found, complaints.found = "\n".join(complaints.found), []
    assert "Content Security Policy" in found
    assert "127.0.0.1:9" in found
    assert "404: " in found
