"""The pages for users, whose commands are run as they are written."""

import re
from pathlib import Path

import pytest

from tests.journeys.commands import blocks, run_commands
from tests.journeys.installation import Installation

pytestmark = pytest.mark.slow


@pytest.mark.clause("IAM-5", "grant, assume, revoke: a person lets an agent reserve")
@pytest.mark.clause("IAM-6", "approval by the user, used by the same request")
@pytest.mark.clause("OPS-4", "agents suspended with endReservations")
def test_let_an_agent_reserve_for_you(installation: Installation, tmp_path: Path):
    told = run_commands(installation, "docs/agents.md", where=tmp_path)
    whoami, asked, question, decided, got, *stopped = told.splitlines()
    assert '"kind":"delegated-session"' in whoami
    assert '"code":"CONFIRMATION_REQUIRED"' in asked
    assert re.search(r'"asked":\{.*"durationSeconds":7200', question)
    assert '"state":"approved"' in decided
    assert re.search(r'"createdBy":\{"principal":"usr_[a-z0-9]+","agent":"agt_[a-z0-9]+"\}', got)
    suspended, dead, ended, log = stopped
    assert '"status":"suspended"' in suspended
    assert '"code":"UNAUTHENTICATED"' in dead
    assert '"state":"released"' in ended
    outcomes = re.findall(r'"outcome":"(\w+)","reason":"([\w-]+)"', log)
    # Newest first: what became of it, the decision with the approval, and the one that asked for it.
    assert outcomes == [("allow", "permitted"), ("deny", "confirmation-required")]


@pytest.mark.clause("IAM-2", "a typo is INVALID_INPUT with the place")
@pytest.mark.clause("IAM-3", "who may sees why")
def test_write_a_policy(installation: Installation, tmp_path: Path):
    told = run_commands(installation, "docs/policies.md", where=tmp_path)
    checked, tried, stored, grouped, refused, why, foreseen, *_ = told.splitlines()
    assert '"valid":false' in checked
    assert re.search(r'"line":5,"column":\d+', checked)
    assert '"examined":' in tried
    assert '"version":1' in stored
    assert '"groups":["research"]' in grouped
    assert '"code":"ACCESS_DENIED"' in refused
    assert "details" not in refused
    assert '"policy":"research-24h"' in why
    assert '"durationHours":48' in why
    assert '"outcome":"allow"' in foreseen


@pytest.mark.clause("IAM-2", "the examples of the page fit the schema")
def test_the_examples_are_policies(installation: Installation):
    admin = installation.caller("acme", "admin")
    [examples] = blocks("docs/policies.md", "cedar")
    answer = admin.post("policies/validate", service="iam", text=examples).json()["data"]
    assert (answer["valid"], answer["issues"], answer["warnings"]) == (True, [], [])
