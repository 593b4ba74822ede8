"""What an operator sees of people and their agents, with a real browser (OPS-1, OPS-2)."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import delegate
from tests.browser.test_admin import search, shows
from tests.journeys.installation import Installation

pytestmark = pytest.mark.browser

NAME = "night <b>shift</b> & co"


def follow(page: Page, name: str) -> None:
    """A link in the middle of the page, by its text."""
    page.locator("#main").get_by_role("link", name=name, exact=True).first.click()
    page.wait_for_load_state()


def table(page: Page, title: str, text: str) -> None:
    expect(page.locator(f'[data-table="{title}"] tbody tr', has_text=text)).to_have_count(1)


@pytest.mark.clause("OPS-1", "from an agent to what it may do, what it asks, and what was decided")
@pytest.mark.clause("OPS-2", "tokens are on none of these pages")
def test_from_an_agent_to_the_decision(operator: Page, installation: Installation) -> None:
    ann, bot = installation.caller("acme"), delegate(installation, NAME)
    session = installation.signed_in("acme", bot.tokens[1])

    def hides_tokens() -> None:
        assert [one for one in bot.tokens if one in operator.content() or one[12:] in operator.content()] == []

    operator.goto("/admin/iam/principal/")
    search(operator, bot.agent_id)
    operator.locator("#result_list").get_by_role("link", name=NAME).click()
    expect(operator).to_have_title(re.compile(re.escape(NAME)))
    shows(operator, "Sponsor", "user")
    table(operator, "Keys", bot.tokens[0][:12])
    hides_tokens()

    follow(operator, bot.delegation_id)
    shows(operator, "Confirm", "compute:reservations:create")
    table(operator, "Sessions", bot.session_id)
    table(operator, "Confirmations", bot.confirmation_id)
    hides_tokens()
    follow(operator, bot.session_id)
    shows(operator, "Agent", NAME)
    hides_tokens()
    operator.go_back()

    follow(operator, bot.confirmation_id)
    shows(operator, "State", "pending")
    shows(operator, "Asked", '"durationSeconds": 60')
    follow(operator, bot.reservation_id)
    shows(operator, "State", "awaiting-confirmation")
    follow(operator, bot.confirmation_id)

    decided = {"confirmationId": bot.confirmation_id, "approve": True, "reason": "go & see"}
    assert ann("confirmations/decide", service="iam", **decided)["confirmation"]["state"] == "approved"
    operator.reload()
    shows(operator, "State", "approved")
    shows(operator, "Decide reason", "go & see")
    made = session("reservations/create", **bot.asked)["reservation"]["id"]
    assert made == bot.reservation_id
    operator.reload()
    shows(operator, "State", "used")
    operator.locator(".field-row", has_text="Used by").get_by_role("link").click()
    shows(operator, "Reason", "permitted")
    shows(operator, "Agent", NAME)
    shows(operator, "Confirmation", bot.confirmation_id)
    hides_tokens()
    ann("reservations/release", reservationId=made)

    ann("delegations/revoke", service="iam", delegationId=bot.delegation_id)
    for state, count in (("revoked", 1), ("active", 0), ("expired", 0)):
        operator.goto(f"/admin/iam/delegation/?agent_id={bot.agent_id}")
        operator.locator("#changelist a", has_text="Filters").first.click()
        operator.get_by_role("link", name=state, exact=True).click()
        expect(operator.locator("#result_list tbody tr", has_text=bot.delegation_id)).to_have_count(count)


@pytest.mark.clause("OPS-1", "a batch of the audit log leads to its decisions")
def test_a_batch_leads_to_its_decisions(operator: Page, installation: Installation) -> None:
    operator.goto("/admin/iam/decisionbatch/")
    first = operator.locator("#result_list tbody tr", has_text="acme").last
    first.get_by_role("link").first.click()
    entries = operator.locator(".field-row", has_text="Entries").locator(".readonly").first.inner_text()
    follow(operator, "Decisions of that time")
    rows = operator.locator("#result_list tbody tr")
    assert rows.count() >= min(int(entries), 50)
    rows.first.get_by_role("link").first.click()
    expect(operator.get_by_role("link", name="Close")).to_be_visible()
