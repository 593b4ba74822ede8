"""The README's commands, run as they are written against an installation that is up."""

import re
from pathlib import Path

import pytest

from computeplatform.launch import BASE_DIR
from tests.journeys.commands import run_commands
from tests.journeys.installation import Installation

pytestmark = pytest.mark.slow

README = (BASE_DIR / "README.md").read_text()


def test_the_first_reservation(installation: Installation, tmp_path: Path):
    told = run_commands(installation, "README.md", where=tmp_path)
    states = re.findall(r'"state":"([a-z]+)"', told)
    assert (states[0], states[-2:]) == ("placed", ["active", "released"])
    assert '"code":"QUOTA_EXCEEDED"' in told
    assert '"details":{"' in told


def test_what_it_says_is_there():
    for link in re.findall(r"\]\(([^)#]+)\)", README):
        assert (BASE_DIR / link).exists(), link
    makefile = (BASE_DIR / "Makefile").read_text()
    for verb in set(re.findall(r"`make ([a-z-]+)`", README)):
        assert re.search(rf"^{verb}:", makefile, flags=re.MULTILINE), verb
